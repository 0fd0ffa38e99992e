// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"reflect" //nolint:depguard // A scheme finds the kind of an object by its Go type, and so does this.
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kinds finds the kinds of objects. It keeps that of a Go type, because each read of a cache needs it.
type Kinds struct {
	Scheme *runtime.Scheme
	Find   func(runtime.Object, *runtime.Scheme) (schema.GroupVersionKind, error) // controller-runtime's apiutil.GVKForObject

	types sync.Map // of schema.GroupVersionKind by reflect.Type
}

// Of returns the kind of an object, or of the objects in a list. Its errors are those of Find.
func (k *Kinds) Of(obj runtime.Object) (schema.GroupVersionKind, error) {
	switch obj := obj.(type) {
	case runtime.Unstructured, *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		if gvk := obj.GetObjectKind().GroupVersionKind(); gvk.Kind != "" && gvk.Version != "" {
			return ofItem(gvk, obj), nil
		}
		gvk, err := k.Find(obj, k.Scheme)
		return ofItem(gvk, obj), err
	}
	if gvk, ok := k.types.Load(reflect.TypeOf(obj)); ok {
		return gvk.(schema.GroupVersionKind), nil //nolint:forcetypeassert // It holds nothing else.
	}
	gvk, err := k.Find(obj, k.Scheme)
	gvk = ofItem(gvk, obj)
	if all, _, _ := k.Scheme.ObjectKinds(obj); err == nil && len(all) == 1 { // else the object tells which
		k.types.Store(reflect.TypeOf(obj), gvk)
	}
	return gvk, err
}

func ofItem(gvk schema.GroupVersionKind, obj runtime.Object) schema.GroupVersionKind {
	if kind, ok := strings.CutSuffix(gvk.Kind, "List"); ok && meta.IsListType(obj) {
		gvk.Kind = kind
	}
	return gvk
}
