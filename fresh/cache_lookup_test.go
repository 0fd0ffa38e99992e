// SPDX-License-Identifier: Apache-2.0

package fresh

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func saying[T runtime.Object](obj T, apiVersion, kind string) T {
	obj.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kind))
	return obj
}

// ownUnstructured is a runtime.Unstructured of a program.
type ownUnstructured struct{ *unstructured.Unstructured }

// A kind is found by objects and lists like those that were remembered, and by no others; and not after it was
// removed.
func TestKindTable(t *testing.T) {
	table := newKindTable()
	things := &kind{gvk: schema.GroupVersionKind{Group: "a", Version: "v1", Kind: "Thing"}}
	others := &kind{gvk: schema.GroupVersionKind{Group: "b", Version: "v1", Kind: "Thing"}}
	thingLists := &kind{gvk: schema.GroupVersionKind{Group: "a", Version: "v1", Kind: "ThingList"}} // a kind of objects
	for _, k := range []*kind{things, others, thingLists} {
		table.add(k)
	}
	objects := []struct {
		obj runtime.Object
		of  *kind
	}{
		{&corev1.ConfigMap{}, things},
		{&corev1.ConfigMapList{}, things},
		{saying(&metav1.PartialObjectMetadata{}, "a/v1", "Thing"), things},
		{saying(&metav1.PartialObjectMetadataList{}, "a/v1", "ThingList"), things},
		{saying(&metav1.PartialObjectMetadata{}, "a/v1", "ThingList"), thingLists},
		{saying(&unstructured.Unstructured{}, "b/v1", "Thing"), others},
		{saying(&unstructured.UnstructuredList{}, "b/v1", "ThingList"), others},
		{ownUnstructured{saying(&unstructured.Unstructured{}, "a/v1", "Thing")}, things},
		{ownUnstructured{saying(&unstructured.Unstructured{}, "a/v1", "ThingList")}, thingLists},
	}
	for _, o := range objects {
		if table.ofObject(o.obj) != nil {
			t.Errorf("%T of %v is found before anything was remembered", o.obj, o.of.gvk)
		}
	}
	for range 2 {
		for _, o := range objects {
			table.remember(o.obj, o.of)
		}
	}
	for _, o := range objects {
		if found := table.ofObject(o.obj); found != o.of {
			t.Errorf("%T of %v: %+v", o.obj, o.of.gvk, found)
		}
	}
	if len(table.current.Load().byName["Thing"]) != 2 {
		t.Errorf("what was remembered twice is there twice: %v", table.current.Load().byName)
	}
	table.remove(things)
	table.remember(&corev1.ConfigMap{}, things)
	for _, o := range objects {
		found := table.ofObject(o.obj)
		if o.of == things && found != nil || o.of != things && found != o.of {
			t.Errorf("%T of %v, after a kind was removed: %+v", o.obj, o.of.gvk, found)
		}
	}
	if table.get(things.gvk) != nil || len(table.all()) != 2 {
		t.Errorf("the kinds are %v, and one of three was removed", table.all())
	}
}
