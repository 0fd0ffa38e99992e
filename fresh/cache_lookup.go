// SPDX-License-Identifier: Apache-2.0

package fresh

import (
	"maps"
	"reflect"
	"slices"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kindTable has the kinds of a cache. A caller that changes it holds the mutex of the cache. Readers take no lock,
// because its maps are replaced and never changed: each Get and List of a program reads from it.
type kindTable struct {
	current atomic.Pointer[kindMaps]
}

// kindMaps are the kinds by GroupVersionKind, and by what objects that were read say of themselves. The latter spares
// a read the parsing of an apiVersion and the search of a scheme.
type kindMaps struct {
	byGVK  map[schema.GroupVersionKind]*kind
	byType map[reflect.Type]*kind        // by the Go type of typed objects and lists, unless the type has several kinds
	byName map[string][]kindWithTypeMeta // by the kind in unstructured and metadata-only objects and lists
}

// typeMeta is what an object, or a list of objects, says of its kind.
type typeMeta struct {
	apiVersion, kind string
	isList           bool
}

type kindWithTypeMeta struct {
	says typeMeta
	of   *kind
}

func newKindTable() *kindTable {
	t := &kindTable{}
	t.current.Store(&kindMaps{})
	return t
}

// all returns all kinds. The caller must not change the map.
func (t *kindTable) all() map[schema.GroupVersionKind]*kind { return t.current.Load().byGVK }

// get returns a kind, or nil.
func (t *kindTable) get(gvk schema.GroupVersionKind) *kind { return t.current.Load().byGVK[gvk] }

// ofObject returns the kind of an object or a list like one for which remember was called, or nil.
func (t *kindTable) ofObject(obj runtime.Object) *kind {
	now := t.current.Load()
	says, typed := typeMetaOf(obj)
	if typed {
		return now.byType[reflect.TypeOf(obj)]
	}
	for _, known := range now.byName[says.kind] {
		if known.says == says {
			return known.of
		}
	}
	return nil
}

// typeMetaOf returns what an object says of its kind, or typed if its Go type says it.
func typeMetaOf(obj runtime.Object) (says typeMeta, typed bool) {
	switch obj := obj.(type) {
	case *metav1.PartialObjectMetadata:
		return typeMeta{obj.APIVersion, obj.Kind, false}, false
	case *metav1.PartialObjectMetadataList:
		return typeMeta{obj.APIVersion, obj.Kind, true}, false
	case *unstructured.Unstructured:
		return typeMetaOfContent(obj.Object, obj.IsList()), false
	case *unstructured.UnstructuredList:
		return typeMetaOfContent(obj.Object, true), false
	case runtime.Unstructured:
		return typeMetaOfContent(obj.UnstructuredContent(), obj.IsList()), false
	}
	return typeMeta{}, true
}

func typeMetaOfContent(content map[string]any, isList bool) typeMeta {
	apiVersion, _ := content["apiVersion"].(string)
	kind, _ := content["kind"].(string)
	return typeMeta{apiVersion, kind, isList}
}

// add adds a kind.
func (t *kindTable) add(k *kind) {
	t.change(func(next *kindMaps) { next.byGVK[k.gvk] = k })
}

// remember notes that an object or a list is of a kind, unless the table has that, or no longer has the kind. If it
// is typed, its Go type must have no other kind.
func (t *kindTable) remember(obj runtime.Object, k *kind) {
	if t.get(k.gvk) != k || t.ofObject(obj) == k {
		return
	}
	says, typed := typeMetaOf(obj)
	t.change(func(next *kindMaps) {
		if typed {
			next.byType[reflect.TypeOf(obj)] = k
			return
		}
		known := slices.Clone(next.byName[says.kind])
		next.byName[says.kind] = append(known, kindWithTypeMeta{says, k})
	})
}

// remove removes a kind.
func (t *kindTable) remove(k *kind) {
	t.change(func(next *kindMaps) {
		delete(next.byGVK, k.gvk)
		maps.DeleteFunc(next.byType, func(_ reflect.Type, other *kind) bool { return other == k })
		for name, known := range next.byName {
			isOfKind := func(other kindWithTypeMeta) bool { return other.of == k }
			next.byName[name] = slices.DeleteFunc(slices.Clone(known), isOfKind)
		}
	})
}

// change replaces the maps by copies, which it changes before.
func (t *kindTable) change(with func(next *kindMaps)) {
	now := t.current.Load()
	next := &kindMaps{
		byGVK:  copyOf(now.byGVK),
		byType: copyOf(now.byType),
		byName: copyOf(now.byName),
	}
	with(next)
	t.current.Store(next)
}

// copyOf is maps.Clone that makes an empty map of nil.
func copyOf[K comparable, V any](m map[K]V) map[K]V {
	result := make(map[K]V, len(m)+1)
	maps.Copy(result, m)
	return result
}
