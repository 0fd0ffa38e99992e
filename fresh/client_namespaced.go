// SPDX-License-Identifier: Apache-2.0

package fresh

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/freshmapper/freshmapper/internal/follow"
)

// NewNamespacedClient is client.NewNamespacedClient for a client of this package, also if another client wraps that
// one. A write is rejected, and nothing is sent, if the mapper has known the kind as namespaced and it is
// cluster-scoped now. The error is NotFound. If the kind becomes namespaced again while the write is prepared, the
// error is a Conflict, and the write can be repeated. A list never has objects of other namespaces. Around any other
// client this is the same as controller-runtime's.
//
// Use it in place of controller-runtime's, which looks the scope up by itself, and leaves the namespace out of the
// requests for a kind that is cluster-scoped at that moment.
func NewNamespacedClient(c client.Client, ns string) client.Client {
	return &followingNamespaced{client.NewNamespacedClient(c, ns), ns}
}

// followingNamespaced puts its namespace into the context of each request, because upstream's client leaves it out of
// the request if it takes the kind for cluster-scoped.
type followingNamespaced struct {
	client.Client
	namespace string
}

func (n *followingNamespaced) withNamespace(ctx context.Context, obj any) context.Context {
	return follow.InNamespace(ctx, n.namespace, obj)
}

func (n *followingNamespaced) Get(
	ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption,
) error {
	return n.Client.Get(n.withNamespace(ctx, obj), key, obj, opts...)
}

func (n *followingNamespaced) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	named := (&client.ListOptions{}).ApplyOptions(opts).Namespace
	if n.namespace != "" && named != "" { // upstream's client overrides it, too, if the kind is namespaced
		opts = append(slices.Clone(opts), client.InNamespace(n.namespace))
	}
	return n.Client.List(n.withNamespace(ctx, list), list, opts...)
}

func (n *followingNamespaced) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	return n.Client.Create(n.withNamespace(ctx, obj), obj, opts...)
}

func (n *followingNamespaced) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	return n.Client.Update(n.withNamespace(ctx, obj), obj, opts...)
}

func (n *followingNamespaced) Patch(
	ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption,
) error {
	return n.Client.Patch(n.withNamespace(ctx, obj), obj, patch, opts...)
}

func (n *followingNamespaced) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	return n.Client.Delete(n.withNamespace(ctx, obj), obj, opts...)
}

func (n *followingNamespaced) DeleteAllOf(
	ctx context.Context, obj client.Object, opts ...client.DeleteAllOfOption,
) error {
	return n.Client.DeleteAllOf(n.withNamespace(ctx, obj), obj, opts...)
}

func (n *followingNamespaced) Apply(
	ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption,
) error {
	return n.Client.Apply(n.withNamespace(ctx, obj), obj, opts...)
}

func (n *followingNamespaced) Status() client.SubResourceWriter { return n.SubResource("status") }
func (n *followingNamespaced) SubResource(name string) client.SubResourceClient {
	return &namespacedSubResource{n.Client.SubResource(name), n}
}

// namespacedSubResource does the same for the requests of a subresource.
type namespacedSubResource struct {
	client.SubResourceClient
	n *followingNamespaced
}

func (s *namespacedSubResource) Get(
	ctx context.Context, obj, sub client.Object, opts ...client.SubResourceGetOption,
) error {
	return s.SubResourceClient.Get(s.n.withNamespace(ctx, obj), obj, sub, opts...)
}

func (s *namespacedSubResource) Create(
	ctx context.Context, obj, sub client.Object, opts ...client.SubResourceCreateOption,
) error {
	return s.SubResourceClient.Create(s.n.withNamespace(ctx, obj), obj, sub, opts...)
}

func (s *namespacedSubResource) Update(
	ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption,
) error {
	return s.SubResourceClient.Update(s.n.withNamespace(ctx, obj), obj, opts...)
}

func (s *namespacedSubResource) Patch(
	ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption,
) error {
	return s.SubResourceClient.Patch(s.n.withNamespace(ctx, obj), obj, patch, opts...)
}

func (s *namespacedSubResource) Apply(
	ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption,
) error {
	return s.SubResourceClient.Apply(s.n.withNamespace(ctx, obj), obj, opts...)
}
