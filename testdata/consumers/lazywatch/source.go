// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	runtimesource "sigs.k8s.io/controller-runtime/pkg/source"
)

// verbs are what mirroring needs.
var verbs = []string{"get", "list", "watch", "create", "patch", "delete"}

// source mirrors the marked objects of a kind. One source is enough for all kinds,
// because it keeps nothing.
type source struct {
	mgr   ctrl.Manager
	apis  apis
	board *board
	opts  options
}

func newSource(mgr ctrl.Manager, apis apis, board *board, opts options) *source {
	return &source{mgr: mgr, apis: apis, board: board, opts: opts}
}

// run returns when ctx ends, or on an error. The kind is served until ctx ends.
func (s *source) run(ctx context.Context, kind schema.GroupKind) error {
	mapping, err := s.apis.Mapping(kind)
	if err != nil {
		return err
	}
	obstacle, err := s.obstacle(mapping)
	if err != nil {
		return err
	}
	if obstacle != "" {
		s.board.set(kind, notMirrorable, obstacle)
		<-ctx.Done()
		return nil
	}
	if err := s.awaitUse(ctx, mapping.GroupVersionKind); err != nil {
		return err
	}
	return s.mirror(ctx, mapping.GroupVersionKind)
}

// obstacle returns why objects of a kind cannot be mirrored, or "" if they can.
func (s *source) obstacle(mapping *meta.RESTMapping) (string, error) {
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return "objects of this kind are in no namespace", nil
	}
	// A mapping does not have the verbs of its resource.
	server, err := discovery.NewDiscoveryClientForConfigAndClient(s.mgr.GetConfig(), s.mgr.GetHTTPClient())
	if err != nil {
		return "", err
	}
	resources, err := server.ServerResourcesForGroupVersion(mapping.Resource.GroupVersion().String())
	if err != nil {
		return "", err
	}
	return missingVerb(resources, mapping.Resource.Resource), nil
}

func missingVerb(resources *metav1.APIResourceList, name string) string {
	i := slices.IndexFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == name })
	if i < 0 {
		return "the server does not list the resource " + name
	}
	for _, verb := range verbs {
		if !slices.Contains(resources.APIResources[i].Verbs, verb) {
			return "the server does not " + verb + " " + name
		}
	}
	return ""
}

// awaitUse returns once there is a marked object of the kind, or when ctx ends. Asking
// for one from time to time is cheaper than a watch, and most kinds are never used at
// all.
func (s *source) awaitUse(ctx context.Context, gvk schema.GroupVersionKind) error {
	for ctx.Err() == nil {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		err := s.mgr.GetAPIReader().List(ctx, list, client.Limit(1), client.MatchingLabelsSelector{Selector: marked()})
		if err != nil || len(list.Items) > 0 {
			return err
		}
		s.board.set(gvk.GroupKind(), unused, "")
		pause(ctx, s.opts.probeInterval)
	}
	return nil
}

// marked selects what a user marked as a source, and what this program marked as a copy.
func marked() labels.Selector {
	requirement, err := labels.NewRequirement(markLabel, selection.Exists, nil)
	if err != nil {
		return labels.Nothing() // markLabel is a constant, and valid
	}
	return labels.NewSelector().Add(*requirement)
}

// mirror watches the marked objects of a kind with its own cache and controller: they end
// with ctx, and leave nothing behind. In the manager's cache, the watch of a kind that
// has gone would fail again and again for ever.
func (s *source) mirror(ctx context.Context, gvk schema.GroupVersionKind) error {
	objects, err := s.newCache()
	if err != nil {
		return err
	}
	c, err := s.newController(gvk, objects)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	cached := make(chan error, 1)
	go func() {
		defer cancel()
		cached <- objects.Start(ctx)
	}()
	err = s.runController(ctx, gvk, objects, c)
	cancel()
	return errors.Join(err, <-cached)
}

func (s *source) runController(ctx context.Context, gvk schema.GroupVersionKind, objects cache.Cache, c controller.Controller) error {
	if err := s.awaitSync(ctx, gvk, objects); err != nil || ctx.Err() != nil {
		return err
	}
	s.board.set(gvk.GroupKind(), running, "")
	return c.Start(ctx)
}

// awaitSync waits for the first list, so that the controller, which waits for it, too,
// need not wait.
func (s *source) awaitSync(ctx context.Context, gvk schema.GroupVersionKind, objects cache.Cache) error {
	limited, cancel := context.WithTimeout(ctx, s.opts.syncTimeout)
	defer cancel()
	// Asking for the informer starts it, and waits.
	if _, err := objects.GetInformer(limited, metadataOf(gvk)); err != nil && ctx.Err() == nil {
		return fmt.Errorf("listing %s took longer than %s: %w", gvk.GroupKind(), s.opts.syncTimeout, err)
	}
	return nil
}

// newCache makes a cache of the metadata of marked objects. The rest of an object is read
// when the program copies it.
func (s *source) newCache() (cache.Cache, error) {
	return cache.New(s.mgr.GetConfig(), cache.Options{
		HTTPClient:           s.mgr.GetHTTPClient(),
		Scheme:               s.mgr.GetScheme(),
		Mapper:               s.mgr.GetRESTMapper(),
		DefaultLabelSelector: marked(),
		DefaultTransform:     cache.TransformStripManagedFields(),
	})
}

func (s *source) newController(gvk schema.GroupVersionKind, objects cache.Cache) (controller.Controller, error) {
	c, err := controller.NewUnmanaged("mirror-"+gvk.GroupKind().String(), controller.Options{
		Reconciler: &reconciler{
			gvk:        gvk,
			copies:     objects,
			client:     s.mgr.GetClient(), // which reads unstructured objects from the server
			events:     s.mgr.GetEventRecorder("lazywatch"),
			maxTargets: s.opts.maxTargets,
		},
		Logger:             s.mgr.GetLogger(),
		CacheSyncTimeout:   s.opts.syncTimeout,
		SkipNameValidation: ptr.To(true), // the kind may come back, and its controller with it
		// The program looks for a missing target at least every minute.
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, time.Minute),
	})
	if err != nil {
		return nil, err
	}
	return c, c.Watch(runtimesource.Kind[client.Object](objects, metadataOf(gvk), handler.EnqueueRequestsFromMapFunc(sourceOf)))
}

func metadataOf(gvk schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(gvk)
	return object
}
