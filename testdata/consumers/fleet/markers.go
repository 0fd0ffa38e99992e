// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// clusterAnnotation holds the name of the cluster that an object is in.
const clusterAnnotation = "fleet.example.com/cluster"

// retry is how long the program waits after an error before it runs a marker again.
const retry = 10 * time.Second

// markers runs a marker in each cluster that serves the kind. A controller of
// multicluster-runtime can't do that: it refuses a cluster that does not serve what it
// watches, and then all controllers lose the cluster.
type markers struct {
	fleet fleet
	kind  schema.GroupVersionKind
}

// Start only waits: everything that Engage has started ends with the cluster's context.
func (m *markers) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Engage returns at once, as the manager expects.
func (m *markers) Engage(ctx context.Context, name multicluster.ClusterName, cl cluster.Cluster) error {
	log := ctrl.Log.WithName("marker").WithValues("cluster", name)
	mark := func(ctx context.Context) {
		err := m.fleet.whileServed(ctx, name.String(), cl, m.kind, func(ctx context.Context) error {
			log.Info("begins", "kind", m.kind)
			defer log.Info("ends", "kind", m.kind)
			return m.run(ctx, name.String(), cl)
		})
		if err != nil && ctx.Err() == nil {
			log.Error(err, "has failed, and is tried again", "after", retry)
		}
	}
	go func() {
		// Without this they stay for 90 seconds. The method of http.Client does not reach
		// a transport that client-go has wrapped.
		defer utilnet.CloseIdleConnectionsFor(cl.GetHTTPClient().Transport)
		wait.UntilWithContext(ctx, mark, retry)
	}()
	return nil
}

// run makes its own cache and controller, which end with ctx.
func (m *markers) run(ctx context.Context, name string, cl cluster.Cluster) error {
	objects, err := cache.New(cl.GetConfig(), cache.Options{HTTPClient: cl.GetHTTPClient(), Scheme: cl.GetScheme(), Mapper: cl.GetRESTMapper()})
	if err != nil {
		return err
	}
	c, err := client.New(cl.GetConfig(), client.Options{
		HTTPClient: cl.GetHTTPClient(), Scheme: cl.GetScheme(), Mapper: cl.GetRESTMapper(), Cache: &client.CacheOptions{Reader: objects},
	})
	if err != nil {
		return err
	}
	marker, err := controller.NewUnmanaged("marker", controller.Options{
		Reconciler:         &reconciler{client: c, kind: m.kind, cluster: name},
		SkipNameValidation: ptr.To(true), // there is one for each cluster
	})
	if err != nil {
		return err
	}
	watched := &metav1.PartialObjectMetadata{}
	watched.SetGroupVersionKind(m.kind)
	if err := marker.Watch(source.Kind(objects, watched, &handler.TypedEnqueueRequestForObject[*metav1.PartialObjectMetadata]{})); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return objects.Start(ctx) })
	group.Go(func() error { return marker.Start(ctx) })
	return group.Wait()
}

// reconciler writes the name of the cluster into an object.
type reconciler struct {
	client  client.Client
	kind    schema.GroupVersionKind
	cluster string
}

func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(r.kind)
	if err := r.client.Get(ctx, req.NamespacedName, object); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if object.Annotations[clusterAnnotation] == r.cluster {
		return reconcile.Result{}, nil
	}
	before := client.MergeFrom(object.DeepCopy())
	metav1.SetMetaDataAnnotation(&object.ObjectMeta, clusterAnnotation, r.cluster)
	return reconcile.Result{}, r.client.Patch(ctx, object, before)
}
