// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"reflect" //nolint:depguard // Not every type can be compared.
)

// forNamespace is the key of a namespaced.
type forNamespace struct{}

// namespaced is the namespace of a request for an object, whatever scope its kind has. What the program asks for
// meanwhile, with the same context, is another request.
type namespaced struct {
	obj       any // nil: all
	namespace string
}

// InNamespace returns a context for a request through a client for one namespace. Upstream's such client leaves
// the namespace out of what it sends for a kind that it takes for cluster-wide.
func InNamespace(ctx context.Context, namespace string, obj any) context.Context {
	if namespace == "" {
		return ctx
	}
	if !reflect.ValueOf(obj).Comparable() {
		obj = nil
	}
	return context.WithValue(ctx, forNamespace{}, namespaced{obj, namespace})
}

// NamespaceOf returns the namespace of the request for an object that a context is for, or "".
func NamespaceOf(ctx context.Context, obj any) string {
	of, _ := ctx.Value(forNamespace{}).(namespaced)
	if of.obj != nil && of.obj != obj {
		return ""
	}
	return of.namespace
}
