// SPDX-License-Identifier: Apache-2.0

// Command fleet writes the name of the cluster into each object of a kind, in every
// cluster for which there is a kubeconfig.
//
//	fleet [flags]   (-h explains)
package main

import (
	"context"
	"errors"
	"flag"
	"math"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"example.com/consumers/frame"
)

func main() { frame.Main("fleet", run) }

func run(ctx context.Context, args []string) error {
	var opts options
	if err := frame.Parse("fleet", args, opts.addTo); err != nil {
		return err
	}
	cfg, err := config.GetConfig()
	if err != nil {
		return err
	}
	return runOperator(ctx, cfg, opts)
}

type options struct {
	frame.Clusters
	kind           schema.GroupVersionKind
	interval       time.Duration
	unhealthyAfter time.Duration
}

func (o *options) addTo(flags *flag.FlagSet) {
	o.AddTo(flags)
	o.kind = schema.GroupVersionKind{Group: "fleet.example.com", Version: "v1", Kind: "Gadget"}
	flags.Func("kind", "work on objects of this `KIND.VERSION.GROUP` (default Gadget.v1.fleet.example.com)", o.setKind)
	flags.DurationVar(
		&o.interval,
		"interval",
		10*time.Minute,
		"ask each cluster this often what it serves; changes are watched beside that",
	)
	flags.DurationVar(
		&o.unhealthyAfter,
		"unhealthy-after",
		2*time.Minute,
		"a cluster that could not be read for so long is unhealthy",
	)
}

func (o *options) setKind(kind string) error {
	gvk, _ := schema.ParseKindArg(kind)
	if gvk == nil || gvk.Group == "" || gvk.Version == "" || gvk.Kind == "" {
		return errors.New("it must be KIND.VERSION.GROUP, such as Gadget.v1.fleet.example.com")
	}
	o.kind = *gvk
	return nil
}

// runOperator works on the clusters whose kubeconfigs are in Secrets with the label of
// the kubeconfig provider.
func runOperator(ctx context.Context, cfg *rest.Config, opts options) error {
	clusters := newClusters(opts)
	mgr, err := opts.NewManager(ctx, cfg, "fleet", clusters.clusterOptions(metadataOf(opts.kind)))
	if err != nil {
		return err
	}
	err = errors.Join(
		mgr.Add(clusters), // before the markers, so that the mapper of a cluster is started first
		mgr.Add(&markers{kind: opts.kind}),
		mgr.AddReadyzCheck("restmappers", clusters.Healthz),
		mgr.AddMetricsServerExtraHandler("/debug/restmappers", clusters.DebugHandler()),
	)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// clusterAnnotation holds the name of the cluster that an object is in.
const clusterAnnotation = "fleet.example.com/cluster"

// markers runs a controller in each cluster. With one controller of multicluster-runtime for all of them, Engage would
// wait until the cluster has listed the kind, and meanwhile no other cluster could be engaged.
type markers struct{ kind schema.GroupVersionKind }

// Start only waits: everything that Engage has started ends with the cluster's context.
func (m *markers) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Engage returns at once, as the manager expects. The controller watches the kind as it would any other: the cluster's
// cache waits for it.
func (m *markers) Engage(ctx context.Context, name multicluster.ClusterName, cl cluster.Cluster) error {
	log := ctrl.Log.WithName("marker").WithValues("cluster", name)
	marker, err := controller.NewUnmanaged("marker", controller.Options{
		Reconciler:         &reconciler{client: cl.GetClient(), kind: m.kind, cluster: name.String()},
		Logger:             log,
		SkipNameValidation: ptr.To(true),  // there is one for each cluster
		CacheSyncTimeout:   math.MaxInt64, // the cluster may not answer for long, and nothing else waits for it
	})
	if err != nil {
		return err
	}
	err = marker.Watch(
		source.Kind(
			cl.GetCache(),
			metadataOf(m.kind),
			&handler.TypedEnqueueRequestForObject[*metav1.PartialObjectMetadata]{},
		),
	)
	if err != nil {
		return err
	}
	go func() {
		if err := marker.Start(ctx); err != nil && ctx.Err() == nil {
			log.Error(err, "The controller of a cluster has failed")
		}
	}()
	return nil
}

func metadataOf(kind schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	return object
}

// reconciler writes the name of the cluster into an object.
type reconciler struct {
	client  client.Client
	kind    schema.GroupVersionKind
	cluster string
}

func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	object := metadataOf(r.kind)
	err := r.client.Get(ctx, req.NamespacedName, object)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) { // the object was removed, or its kind
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	if object.Annotations[clusterAnnotation] == r.cluster {
		return reconcile.Result{}, nil
	}
	before := client.MergeFrom(object.DeepCopy())
	metav1.SetMetaDataAnnotation(&object.ObjectMeta, clusterAnnotation, r.cluster)
	return reconcile.Result{}, r.client.Patch(ctx, object, before)
}
