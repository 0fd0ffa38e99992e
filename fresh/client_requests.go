// SPDX-License-Identifier: Apache-2.0

package fresh

import (
	"cmp"
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crapiutil "sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/freshmapper/freshmapper/internal/follow"
)

// The methods of a client. Each sends a request with the method of the same name of an upstream client.

func (c *followingClient) Scheme() *runtime.Scheme     { return c.options.Scheme }
func (c *followingClient) RESTMapper() meta.RESTMapper { return c.options.Mapper }
func (c *followingClient) GroupVersionKindFor(obj runtime.Object) (schema.GroupVersionKind, error) {
	return crapiutil.GVKForObject(obj, c.options.Scheme)
}

func (c *followingClient) IsObjectNamespaced(obj runtime.Object) (bool, error) {
	if gvk, err := c.kindOf(obj); err == nil {
		if mapping, err := c.mapper.Mapping(gvk); err == nil {
			return mapping.Scope.Name() != meta.RESTScopeNameRoot, nil
		}
	}
	return crapiutil.IsObjectNamespaced(obj, c.options.Scheme, c.options.Mapper) // it has the error
}

func (c *followingClient) Get(
	ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption,
) error {
	if cached := c.cached(obj); cached != nil {
		return cached.Get(ctx, key, obj, opts...)
	}
	key.Namespace = cmp.Or(key.Namespace, follow.NamespaceOf(ctx, obj))
	return c.send(ctx, request{does: readsObject, obj: obj, send: func(u *upstreamClient) error {
		return u.Get(ctx, key, obj, opts...)
	}})
}

func (c *followingClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if cached := c.cached(list); cached != nil {
		return cached.List(ctx, list, opts...)
	}
	namespace := (&client.ListOptions{}).ApplyOptions(opts).Namespace
	ofContext := follow.NamespaceOf(ctx, list)
	if namespace == "" && ofContext != "" {
		namespace = ofContext
		opts = append(slices.Clone(opts), client.InNamespace(namespace)) // which counts if the kind is namespaced
	}
	return c.send(ctx, request{
		does:      listsObjects,
		namespace: namespace,
		obj:       list,
		send:      func(u *upstreamClient) error { return u.List(ctx, list, opts...) },
	})
}

func (c *followingClient) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	return c.write(ctx, obj, func(u *upstreamClient) error { return u.Create(ctx, obj, opts...) })
}

func (c *followingClient) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	return c.write(ctx, obj, func(u *upstreamClient) error { return u.Update(ctx, obj, opts...) })
}

func (c *followingClient) Patch(
	ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption,
) error {
	return c.write(ctx, obj, func(u *upstreamClient) error { return u.Patch(ctx, obj, patch, opts...) })
}

func (c *followingClient) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	return c.write(ctx, obj, func(u *upstreamClient) error { return u.Delete(ctx, obj, opts...) })
}

func (c *followingClient) DeleteAllOf(
	ctx context.Context, obj client.Object, opts ...client.DeleteAllOfOption,
) error {
	options := (&client.DeleteAllOfOptions{}).ApplyOptions(opts)
	selected := ""
	if options.FieldSelector != nil {
		selected, _ = options.FieldSelector.RequiresExactMatch("metadata.namespace")
	}
	return c.send(ctx, request{
		does:          writesObject,
		namespace:     cmp.Or(options.Namespace, obj.GetNamespace(), selected, follow.NamespaceOfWrite(ctx)),
		onlyInContext: options.Namespace == "" && selected == "" && follow.NamespaceOfWrite(ctx) != "",
		obj:           obj,
		send:          func(u *upstreamClient) error { return u.DeleteAllOf(ctx, obj, opts...) },
	})
}

func (c *followingClient) Apply(
	ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption,
) error {
	return c.write(ctx, obj, func(u *upstreamClient) error { return u.Apply(ctx, obj, opts...) })
}

// write sends a write of one object.
func (c *followingClient) write(ctx context.Context, obj any, send func(*upstreamClient) error) error {
	namespace := ""
	switch obj := obj.(type) {
	case interface{ GetNamespace() string }:
		namespace = obj.GetNamespace()
	case interface{ GetNamespace() *string }:
		namespace = ptr.Deref(obj.GetNamespace(), "")
	}
	return c.send(ctx, request{
		does:          writesObject,
		namespace:     cmp.Or(namespace, follow.NamespaceOfWrite(ctx)),
		onlyInContext: namespace == "" && follow.NamespaceOfWrite(ctx) != "",
		obj:           obj,
		send:          send,
	})
}

func (c *followingClient) Status() client.SubResourceWriter { return c.SubResource("status") }
func (c *followingClient) SubResource(name string) client.SubResourceClient {
	return &followingSubResource{c, name}
}

type followingSubResource struct {
	c    *followingClient
	name string
}

func (s *followingSubResource) Get(
	ctx context.Context, obj, sub client.Object, opts ...client.SubResourceGetOption,
) error {
	if namespace := follow.NamespaceOf(ctx, obj); namespace != "" && obj.GetNamespace() == "" {
		copied, _ := obj.DeepCopyObject().(client.Object) // the caller's object stays as it is
		copied.SetNamespace(namespace)
		obj = copied
	}
	return s.c.send(ctx, request{does: readsObject, obj: obj, send: func(u *upstreamClient) error {
		return u.SubResource(s.name).Get(ctx, obj, sub, opts...)
	}})
}

func (s *followingSubResource) Create(
	ctx context.Context, obj, sub client.Object, opts ...client.SubResourceCreateOption,
) error {
	return s.c.write(ctx, obj, func(u *upstreamClient) error {
		return u.SubResource(s.name).Create(ctx, obj, sub, opts...)
	})
}

func (s *followingSubResource) Update(
	ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption,
) error {
	return s.c.write(ctx, obj, func(u *upstreamClient) error {
		return u.SubResource(s.name).Update(ctx, obj, opts...)
	})
}

func (s *followingSubResource) Patch(
	ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption,
) error {
	return s.c.write(ctx, obj, func(u *upstreamClient) error {
		return u.SubResource(s.name).Patch(ctx, obj, patch, opts...)
	})
}

func (s *followingSubResource) Apply(
	ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption,
) error {
	return s.c.write(ctx, obj, func(u *upstreamClient) error {
		return u.SubResource(s.name).Apply(ctx, obj, opts...)
	})
}
