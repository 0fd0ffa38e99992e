// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"example.com/consumers/frame"
)

var widget = schema.GroupVersionKind{Group: "example.com", Version: "v2", Kind: "Widget"}

func TestReport(t *testing.T) {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{widget.GroupVersion()})
	mapper.Add(widget, meta.RESTScopeRoot)
	tests := map[string]struct {
		input string
		want  []string
		err   string
	}{
		"served":       {"lookup Widget.example.com", []string{`"ok":true,"groupVersion":"example.com/v2","resource":"widgets","scope":"root"`}, ""},
		"with version": {"\n lookup  Widget.example.com v1 v2\n", []string{`"groupVersion":"example.com/v2"`}, ""},
		"not served":   {"lookup Gadget.example.com", []string{`"ok":false,"noMatch":true`}, ""},
		"reset":        {"reset\nlookup Widget.example.com", []string{`"command":"reset","ok":false`, `"ok":true`}, ""},
		"unknown":      {"lookup Widget.example.com\nlook Widget", []string{`"ok":true`}, `line 2: do not understand "look Widget"`},
		"no kind":      {"lookup", nil, "want \"lookup KIND.GROUP"},
		"too much":     {"reset all", nil, `"reset all"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			err := (&reporter{mapper: mapper, requests: &frame.Requests{}}).run(strings.NewReader(test.input), &out)
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("got error %v, want %q", err, test.err)
			}
			answers := strings.FieldsFunc(out.String(), func(r rune) bool { return r == '\n' })
			if len(answers) != len(test.want) {
				t.Fatalf("got %d answers, want %d:\n%s", len(answers), len(test.want), &out)
			}
			for i, want := range test.want {
				if !strings.Contains(answers[i], want) {
					t.Errorf("got %s, want %s", answers[i], want)
				}
			}
		})
	}
}

func TestReconcile(t *testing.T) {
	const retry = 7
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(widget)
	object.SetName("one")
	tests := map[string]struct {
		kind string
		want map[string]string
		wait ctrl.Result
		err  string
	}{
		"served":     {"Widget.example.com", map[string]string{"state": "Ready", "version": "example.com/v2", "scope": "root", "objects": "1", "attempts": "3"}, ctrl.Result{}, ""},
		"not served": {"Gadget.example.com", map[string]string{"state": "NotServed", "attempts": "3"}, ctrl.Result{RequeueAfter: retry}, ""},
		"no kind":    {"", map[string]string{"state": "Failed", "error": errNoKind.Error()}, ctrl.Result{}, "annotation"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: "ask", Annotations: map[string]string{kindAnnotation: test.kind},
			}, Data: map[string]string{"attempts": "2"}}
			mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{widget.GroupVersion()})
			mapper.Add(widget, meta.RESTScopeRoot)
			mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
			c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithRESTMapper(mapper).WithObjects(cm, object.DeepCopy()).Build()
			r := &reconciler{client: c, mapper: mapper, requests: &frame.Requests{}, retry: retry}

			key := client.ObjectKeyFromObject(cm)
			wait, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
			if wait != test.wait || (err != nil) != (test.err != "") {
				t.Errorf("got %v, %v", wait, err)
			}
			if err := c.Get(t.Context(), key, cm); err != nil {
				t.Fatal(err)
			}
			for name, want := range test.want {
				if got := cm.Data[name]; got != want {
					t.Errorf("%s: got %q, want %q", name, got, want)
				}
			}
		})
	}
}

func TestIsDiscovery(t *testing.T) {
	for path, want := range map[string]bool{
		"/api": true, "/api/v1": true, "/apis": true, "/apis/example.com": true, "/apis/example.com/v1": true,
		"/api/v1/configmaps": false, "/apis/example.com/v1/widgets": false, "/version": false, "/": false,
	} {
		if got := isDiscovery(httptest.NewRequest(http.MethodGet, path, nil)); got != want {
			t.Errorf("isDiscovery(%q) = %v", path, got)
		}
	}
}

func TestBadInput(t *testing.T) {
	for args, want := range map[string]string{
		"": "usage", "mend": `unknown command "mend"`, "manager -retry -1s": "-retry must be positive, not -1s",
	} {
		if err := run(t.Context(), strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", args, err, want)
		}
	}
}
