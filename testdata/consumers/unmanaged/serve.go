// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	ctrl "sigs.k8s.io/controller-runtime"
)

// server marks the objects of a kind. It asks the mapper for the kind each time, because
// the mapper knows how the kind is served now.
type server struct {
	client dynamic.Interface
	mapper meta.RESTMapper
	gvk    schema.GroupVersionKind
	class  string
	marked map[types.UID]bool
}

func serve(ctx context.Context, kind, class string) error {
	gvk, _ := schema.ParseKindArg(kind)
	if gvk == nil {
		return fmt.Errorf("-kind must be Kind.version.group, not %q", kind)
	}
	cfg, httpClient, mapper, err := connect()
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		return err
	}
	s := &server{client: client, mapper: mapper, gvk: *gvk, class: class, marked: map[types.UID]bool{}}
	for ctx.Err() == nil {
		if err := s.markAll(ctx); err != nil && ctx.Err() == nil {
			ctrl.Log.Error(err, "Failed to mark objects")
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
	return nil
}

func (s *server) markAll(ctx context.Context) error {
	mapping, err := s.mapper.RESTMapping(s.gvk.GroupKind(), s.gvk.Version)
	if err != nil {
		return err
	}
	resource := dynamic.ResourceInterface(s.client.Resource(mapping.Resource))
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		resource = s.client.Resource(mapping.Resource).Namespace(metav1.NamespaceDefault)
	}
	list, err := resource.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		if err := s.mark(ctx, resource, &list.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) mark(ctx context.Context, resource dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
	class, _, _ := unstructured.NestedString(obj.Object, "spec", "class")
	if class != s.class || s.marked[obj.GetUID()] {
		return nil
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"unmanaged.example.com/%s":"marked"}}}`, s.class)
	if _, err := resource.Patch(ctx, obj.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	s.marked[obj.GetUID()] = true
	ctrl.Log.Info("Reconciled", "name", obj.GetName())
	return nil
}
