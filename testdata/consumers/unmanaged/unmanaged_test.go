// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
)

var widget = schema.GroupVersionKind{Group: "plain.example.com", Version: "v1", Kind: "Widget"}

func object(namespace, name, class string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"class": class}}}
	obj.SetGroupVersionKind(widget)
	obj.SetNamespace(namespace)
	obj.SetName(name)
	obj.SetUID(types.UID(namespace + "/" + name))
	return obj
}

// mapped returns a mapper that has the kind in one scope.
func mapped(scope meta.RESTScope) meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(widget, scope)
	return mapper
}

func newServer(scope meta.RESTScope, objects ...runtime.Object) *server {
	lists := map[schema.GroupVersionResource]string{widget.GroupVersion().WithResource("widgets"): "WidgetList"}
	return &server{
		client: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, objects...),
		mapper: mapped(scope), gvk: widget, class: "ours", marked: map[types.UID]bool{},
	}
}

func TestMarksItsClassOnce(t *testing.T) {
	s := newServer(meta.RESTScopeNamespace, object("default", "one", "ours"), object("default", "other", "theirs"))
	for range 2 {
		if err := s.markAll(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	patches := 0
	for _, action := range s.client.(*fake.FakeDynamicClient).Actions() {
		if action.GetVerb() == "patch" {
			patches++
		}
	}
	if patches != 1 || !s.marked["default/one"] || s.marked["default/other"] {
		t.Errorf("got %d patches, marked %v; want one patch, of the object of its class", patches, s.marked)
	}
}

// The scope is the mapper's, asked for each time: so a kind that changes it is
// found again.
func TestFollowsTheScope(t *testing.T) {
	s := newServer(meta.RESTScopeNamespace, object("", "global", "ours"))
	if err := s.markAll(t.Context()); err != nil || len(s.marked) != 0 {
		t.Fatalf("namespaced: got %v, %v; want nothing in the namespace", s.marked, err)
	}
	s.mapper = mapped(meta.RESTScopeRoot)
	if err := s.markAll(t.Context()); err != nil || !s.marked["/global"] {
		t.Errorf("cluster-wide: got %v, %v", s.marked, err)
	}
	got, err := s.client.Resource(widget.GroupVersion().WithResource("widgets")).Get(t.Context(), "global", metav1.GetOptions{})
	if err != nil || got.GetAnnotations()["unmanaged.example.com/ours"] != "marked" {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestBadInput(t *testing.T) {
	for args, want := range map[string]string{
		"":                   "usage: unmanaged serve|miss",
		"sing":               `unknown command "sing"`,
		"serve -kind Widget": "must be Kind.version.group",
	} {
		if err := run(t.Context(), strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", args, err, want)
		}
	}
}
