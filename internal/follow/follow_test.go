// SPDX-License-Identifier: Apache-2.0

package follow_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/follow"
)

var things = schema.GroupResource{Group: "example.com", Resource: "things"}

func TestDoubtOf(t *testing.T) {
	text := func(code int, body string) error { // as client-go makes an error of text
		return apierrors.NewGenericServerResponse(code, "GET", things, "one", body, 0, true)
	}
	for _, c := range []struct {
		name string
		err  error
		want follow.Doubt
	}{
		{"no error", nil, follow.None},
		{"an object that is not there", apierrors.NewNotFound(things, "one"), follow.Slight},
		{"the same, wrapped", fmt.Errorf("get it: %w", apierrors.NewNotFound(things, "one")), follow.Slight},
		{"the server's own text for a path that it does not serve", text(http.StatusNotFound, "404 page not found"), follow.Contradiction},
		{"a gateway's text", text(http.StatusNotFound, "no such service"), follow.Slight},
		{"a Status without details, from Kubernetes 1.38 on", &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound}}, follow.Contradiction},
		{"details without a name", apierrors.NewNotFound(things, ""), follow.Contradiction},
		{"client-go refuses to send a request without a namespace", errors.New("an empty namespace may not be set when a resource name is provided"), follow.Contradiction},
		{"forbidden", apierrors.NewForbidden(things, "one", nil), follow.None},
		{"an outage", text(http.StatusServiceUnavailable, "404 page not found"), follow.None},
		{"no answer", errors.New("connection refused"), follow.None},
	} {
		if got := follow.DoubtOf(c.err); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestDoubtOfList(t *testing.T) {
	for scope, fits := range map[meta.RESTScope]string{meta.RESTScopeRoot: "", meta.RESTScopeNamespace: "ns"} {
		for _, namespace := range []string{"", "ns"} {
			list, want := &metav1.PartialObjectMetadataList{}, follow.None
			if got := follow.DoubtOfList(&meta.RESTMapping{Scope: scope}, list, nil); got != want {
				t.Errorf("scope %s, an empty list: %v, want %v", scope.Name(), got, want)
			}
			if list.Items = []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}}; namespace != fits {
				want = follow.Contradiction
			}
			if got := follow.DoubtOfList(&meta.RESTMapping{Scope: scope}, list, nil); got != want {
				t.Errorf("scope %s, an object in namespace %q: %v, want %v", scope.Name(), namespace, got, want)
			}
		}
	}
}

// wrapper says that it wraps another mapper, which may be itself.
type wrapper struct{ meta.RESTMapper }

func (w *wrapper) Unwrap() meta.RESTMapper { return w.RESTMapper }

// Mappers that are not ours are not followed, nor are those that wrap themselves.
func TestOtherMappers(t *testing.T) {
	itself := &wrapper{}
	itself.RESTMapper = itself
	for name, m := range map[string]meta.RESTMapper{
		"another": meta.NewDefaultRESTMapper(nil), "a wrapper of another": &wrapper{meta.NewDefaultRESTMapper(nil)},
		"a wrapper of nothing": &wrapper{}, "a wrapper of itself": itself, "nothing": nil,
	} {
		if follow.Of(m, follow.WaitBriefly) != nil {
			t.Errorf("%s is followed", name)
		}
	}
}

// The kind of a Go type is looked for once, unless the type has several kinds. That of a list is that of its objects.
func TestKindsOf(t *testing.T) {
	types, gv, searches := runtime.NewScheme(), schema.GroupVersion{Version: "v1"}, 0
	types.AddKnownTypes(gv, &corev1.ConfigMapList{})
	types.AddKnownTypeWithName(gv.WithKind("One"), &corev1.Secret{})
	types.AddKnownTypeWithName(gv.WithKind("Another"), &corev1.Secret{})
	kinds := follow.Kinds{Scheme: types, Find: func(obj runtime.Object, _ *runtime.Scheme) (schema.GroupVersionKind, error) {
		searches++
		return obj.GetObjectKind().GroupVersionKind(), nil
	}}
	for n, c := range []struct{ kind, want string }{{"ConfigMapList", "ConfigMap"}, {"nothing asks", "ConfigMap"}, {"One", "One"}, {"Another", "Another"}} {
		var obj runtime.Object = &corev1.Secret{}
		if c.want == "ConfigMap" {
			obj = &corev1.ConfigMapList{}
		}
		obj.GetObjectKind().SetGroupVersionKind(gv.WithKind(c.kind))
		if got, err := kinds.Of(obj); got != gv.WithKind(c.want) || err != nil {
			t.Errorf("call %d, of a %T: %v, %v, want %s", n, obj, got, err, c.want)
		}
	}
	if searches != 3 {
		t.Errorf("%d searches, want 3: one for two lists, and one for each object of a type that has two kinds", searches)
	}
}
