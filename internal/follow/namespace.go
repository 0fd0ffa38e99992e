// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"reflect" //nolint:depguard // A typed object need not say its kind.

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// namespaceKey is the key under which a context has a requestNamespace.
type namespaceKey struct{}

// requestNamespace is the namespace of a request for objects, whatever scope their kind has.
type requestNamespace struct {
	of        objectType
	namespace string
}

// objectType is the Go type of an object or a list, and the kind if the type does not say it. What wraps a client may
// send a copy, or list page by page; what it asks for meanwhile, with the same context, is most often of another type.
type objectType struct {
	goType reflect.Type
	kind   schema.GroupVersionKind
}

func objectTypeOf(obj any) objectType {
	of := objectType{goType: reflect.TypeOf(obj)}
	if object, ok := obj.(runtime.Object); ok && RepresentationOf(object) != Typed {
		of.kind = object.GetObjectKind().GroupVersionKind()
	}
	return of
}

// InNamespace returns a context for a request through a client for one namespace. Upstream's such client leaves the
// namespace out of what it sends for a kind that it takes for cluster-scoped.
func InNamespace(ctx context.Context, namespace string, obj any) context.Context {
	if namespace == "" {
		return ctx
	}
	return context.WithValue(ctx, namespaceKey{}, requestNamespace{objectTypeOf(obj), namespace})
}

// NamespaceOf returns the namespace of the read into an object or a list that a context is for, or "".
func NamespaceOf(ctx context.Context, obj any) string {
	request, ok := ctx.Value(namespaceKey{}).(requestNamespace)
	if !ok || request.of != objectTypeOf(obj) {
		return ""
	}
	return request.namespace
}

// NamespaceOfWrite returns the namespace of a write that a context is for, or "", whatever is written. It leads to no
// path, and only refuses what would reach a cluster-scoped object of a kind that was namespaced.
func NamespaceOfWrite(ctx context.Context) string {
	request, _ := ctx.Value(namespaceKey{}).(requestNamespace)
	return request.namespace
}
