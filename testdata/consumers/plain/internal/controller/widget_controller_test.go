// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	examplev1 "example.com/plain/api/v1"
)

func reconciler(t *testing.T, calls interceptor.Funcs) *WidgetReconciler {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := examplev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	widget := &examplev1.Widget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"},
		Spec:       examplev1.WidgetSpec{Size: 3, Class: "ours"},
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(widget).WithStatusSubresource(widget).WithInterceptorFuncs(calls).Build()
	return &WidgetReconciler{Client: c, Scheme: scheme, Class: "ours"}
}

func request(name string) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "default", Name: name}}
}

func TestReconcile(t *testing.T) {
	for name, tt := range map[string]struct {
		class, widget string
		want          int
	}{
		"of its class":        {class: "ours", widget: "one", want: 3},
		"of another class":    {class: "theirs", widget: "one"},
		"that does not exist": {class: "ours", widget: "gone"},
	} {
		t.Run(name, func(t *testing.T) {
			r := reconciler(t, interceptor.Funcs{})
			r.Class = tt.class
			if _, err := r.Reconcile(t.Context(), request(tt.widget)); err != nil {
				t.Fatal(err)
			}
			widget := &examplev1.Widget{}
			if err := r.Get(t.Context(), request("one").NamespacedName, widget); err != nil || widget.Status.ObservedSize != tt.want {
				t.Errorf("got status %+v, %v; want size %d", widget.Status, err, tt.want)
			}
		})
	}
}

func TestReconcileAgainAfterAnError(t *testing.T) {
	down := errors.New("connection refused")
	r := reconciler(t, interceptor.Funcs{
		SubResourceUpdate: func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
			return down
		},
	})
	if _, err := r.Reconcile(t.Context(), request("one")); !errors.Is(err, down) {
		t.Errorf("got %v, want an error, so that the queue tries again", err)
	}
}
