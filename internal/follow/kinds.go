// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"reflect" //nolint:depguard // A scheme finds the kind of an object by its Go type, and so does this.
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kinds finds the kinds of objects. It keeps that of a Go type, because each read of a cache needs it.
type Kinds struct {
	Scheme *runtime.Scheme
	// Find is controller-runtime's apiutil.GVKForObject.
	Find func(runtime.Object, *runtime.Scheme) (schema.GroupVersionKind, error)

	types sync.Map // of schema.GroupVersionKind by reflect.Type
}

// Of returns the kind of an object, or of the objects in a list. Its errors are those of Find.
func (k *Kinds) Of(obj runtime.Object) (schema.GroupVersionKind, error) {
	if RepresentationOf(obj) != Typed {
		return k.ofUntyped(obj)
	}
	goType := reflect.TypeOf(obj)
	if gvk, ok := k.types.Load(goType); ok {
		return gvk.(schema.GroupVersionKind), nil //nolint:forcetypeassert // It holds nothing else.
	}
	gvk, err := k.Find(obj, k.Scheme)
	gvk = kindOfItems(gvk, obj)
	all, _, _ := k.Scheme.ObjectKinds(obj)
	if err == nil && len(all) == 1 { // a type of several kinds leaves it to the object
		k.types.Store(goType, gvk)
	}
	return gvk, err
}

// ofUntyped is Of for an object that says itself of which kind it is.
func (k *Kinds) ofUntyped(obj runtime.Object) (schema.GroupVersionKind, error) {
	gvk := obj.GetObjectKind().GroupVersionKind()
	if gvk.Kind != "" && gvk.Version != "" {
		return kindOfItems(gvk, obj), nil
	}
	gvk, err := k.Find(obj, k.Scheme)
	return kindOfItems(gvk, obj), err
}

// kindOfItems returns the kind of the objects in a list whose kind is given, and that of any other object as it is.
func kindOfItems(gvk schema.GroupVersionKind, obj runtime.Object) schema.GroupVersionKind {
	kind, ok := strings.CutSuffix(gvk.Kind, "List")
	if ok && meta.IsListType(obj) {
		gvk.Kind = kind
	}
	return gvk
}
