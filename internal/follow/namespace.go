// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"reflect" //nolint:depguard // A typed object need not say its kind.

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// forNamespace is the key of a namespaced.
type forNamespace struct{}

// namespaced is the namespace of a request for objects, whatever scope their kind has.
type namespaced struct {
	of        sort
	namespace string
}

// sort is the Go type of an object or a list, and the kind if the type does not say it. What wraps a client may send a copy, or list page by page;
// what it asks for meanwhile, with the same context, is most often of another sort.
type sort struct {
	goType reflect.Type
	kind   schema.GroupVersionKind
}

func sortOf(obj any) (of sort) {
	switch o := obj.(type) {
	case runtime.Unstructured:
		of.kind = o.GetObjectKind().GroupVersionKind()
	case *metav1.PartialObjectMetadata:
		of.kind = o.GroupVersionKind()
	case *metav1.PartialObjectMetadataList:
		of.kind = o.GroupVersionKind()
	}
	of.goType = reflect.TypeOf(obj)
	return of
}

// InNamespace returns a context for a request through a client for one namespace. Upstream's such client leaves
// the namespace out of what it sends for a kind that it takes for cluster-scoped.
func InNamespace(ctx context.Context, namespace string, obj any) context.Context {
	if namespace == "" {
		return ctx
	}
	return context.WithValue(ctx, forNamespace{}, namespaced{sortOf(obj), namespace})
}

// NamespaceOf returns the namespace of the read into an object or a list that a context is for, or "".
func NamespaceOf(ctx context.Context, obj any) string {
	of, ok := ctx.Value(forNamespace{}).(namespaced)
	if !ok || of.of != sortOf(obj) {
		return ""
	}
	return of.namespace
}

// NamespaceOfWrite returns the namespace of a write that a context is for, or "", whatever is written: it leads to no
// path, and only refuses what would reach a cluster-scoped object of a kind that was namespaced.
func NamespaceOfWrite(ctx context.Context) string {
	of, _ := ctx.Value(forNamespace{}).(namespaced)
	return of.namespace
}
