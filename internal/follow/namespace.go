// SPDX-License-Identifier: Apache-2.0

package follow

import "context"

// forNamespace is the key of the namespace that a request is for, whatever scope its kind has.
type forNamespace struct{}

// InNamespace returns a context for requests through a client for one namespace. Upstream's such client leaves
// the namespace out of what it sends for a kind that it takes for cluster-wide.
func InNamespace(ctx context.Context, namespace string) context.Context {
	if namespace == "" {
		return ctx
	}
	return context.WithValue(ctx, forNamespace{}, namespace)
}

// NamespaceOf returns the namespace that a context is for, or "".
func NamespaceOf(ctx context.Context) string {
	namespace, _ := ctx.Value(forNamespace{}).(string)
	return namespace
}
