// SPDX-License-Identifier: Apache-2.0

package fresh

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/freshmapper/freshmapper/internal/follow"
)

// NewNamespacedClient is client.NewNamespacedClient for a client of this package, also if something wraps that. A write is
// rejected, and nothing is sent, if the mapper has known the kind as namespaced and it is cluster-scoped now: the error is
// NotFound. If the kind becomes namespaced again while the write is prepared, the error is a Conflict, and the write can be
// repeated. Lists never return what is in other namespaces. Around any other client it is the same as
// controller-runtime's.
//
// Use it in place of controller-runtime's, which looks the scope up by itself, and leaves the namespace out of what it sends
// of a kind that is cluster-scoped at that moment.
func NewNamespacedClient(c client.Client, ns string) client.Client {
	return &followingNamespaced{client.NewNamespacedClient(c, ns), ns}
}

// followingNamespaced notes its namespace in the context of each request: upstream's client
// leaves it out of what it sends for a kind that it takes for cluster-scoped.
type followingNamespaced struct {
	client.Client
	namespace string
}

func (n *followingNamespaced) in(ctx context.Context, obj any) context.Context {
	return follow.InNamespace(ctx, n.namespace, obj)
}
func (n *followingNamespaced) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return n.Client.Get(n.in(ctx, obj), key, obj, opts...)
}
func (n *followingNamespaced) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if n.namespace != "" && (&client.ListOptions{}).ApplyOptions(opts).Namespace != "" { // upstream's does so while the kind is namespaced
		opts = append(slices.Clone(opts), client.InNamespace(n.namespace))
	}
	return n.Client.List(n.in(ctx, list), list, opts...)
}
func (n *followingNamespaced) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	return n.Client.Create(n.in(ctx, obj), obj, opts...)
}
func (n *followingNamespaced) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	return n.Client.Update(n.in(ctx, obj), obj, opts...)
}
func (n *followingNamespaced) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return n.Client.Patch(n.in(ctx, obj), obj, patch, opts...)
}
func (n *followingNamespaced) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	return n.Client.Delete(n.in(ctx, obj), obj, opts...)
}
func (n *followingNamespaced) DeleteAllOf(ctx context.Context, obj client.Object, opts ...client.DeleteAllOfOption) error {
	return n.Client.DeleteAllOf(n.in(ctx, obj), obj, opts...)
}
func (n *followingNamespaced) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	return n.Client.Apply(n.in(ctx, obj), obj, opts...)
}
func (n *followingNamespaced) Status() client.SubResourceWriter { return n.SubResource("status") }
func (n *followingNamespaced) SubResource(name string) client.SubResourceClient {
	return &namespacedSubResource{n.Client.SubResource(name), n}
}

type namespacedSubResource struct {
	client.SubResourceClient
	n *followingNamespaced
}

func (s *namespacedSubResource) Get(ctx context.Context, obj, sub client.Object, opts ...client.SubResourceGetOption) error {
	return s.SubResourceClient.Get(s.n.in(ctx, obj), obj, sub, opts...)
}
func (s *namespacedSubResource) Create(ctx context.Context, obj, sub client.Object, opts ...client.SubResourceCreateOption) error {
	return s.SubResourceClient.Create(s.n.in(ctx, obj), obj, sub, opts...)
}
func (s *namespacedSubResource) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	return s.SubResourceClient.Update(s.n.in(ctx, obj), obj, opts...)
}
func (s *namespacedSubResource) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	return s.SubResourceClient.Patch(s.n.in(ctx, obj), obj, patch, opts...)
}
func (s *namespacedSubResource) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	return s.SubResourceClient.Apply(s.n.in(ctx, obj), obj, opts...)
}
