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
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	"sigs.k8s.io/multicluster-runtime/providers/kubeconfig"

	"example.com/consumers/frame"
)

func main() { frame.Main("fleet", run) }

func run(ctx context.Context, args []string) error {
	opts, err := parse(args)
	if err != nil {
		return err
	}
	cfg, err := config.GetConfig()
	if err != nil {
		return err
	}
	return runOperator(ctx, cfg, opts)
}

type options struct {
	frame.Manager
	secrets        string // the namespace of the kubeconfigs
	kind           schema.GroupVersionKind
	interval       time.Duration
	unhealthyAfter time.Duration
	healthAddress  string
}

func parse(args []string) (options, error) {
	var opts options
	if err := frame.Parse("fleet", args, opts.addTo); err != nil {
		return opts, err
	}
	if opts.secrets == "" {
		return opts, errors.New("-namespace must not be empty")
	}
	return opts, nil
}

func (o *options) addTo(flags *flag.FlagSet) {
	o.AddTo(flags)
	flags.StringVar(&o.secrets, "namespace", "fleet", "read Secrets with kubeconfigs in this namespace, and hold the leader lease there")
	o.kind = schema.GroupVersionKind{Group: "fleet.example.com", Version: "v1", Kind: "Gadget"}
	flags.Func("kind", "work on objects of this `KIND.VERSION.GROUP` (default Gadget.v1.fleet.example.com)", o.setKind)
	flags.DurationVar(&o.interval, "interval", 10*time.Minute, "ask each cluster this often what it serves; changes are watched beside that")
	flags.DurationVar(&o.unhealthyAfter, "unhealthy-after", 2*time.Minute, "a cluster that could not be read for so long is unhealthy")
	flags.StringVar(&o.healthAddress, "health-probe-bind-address", ":8081", "serve /readyz and /healthz at this address")
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
	fleet := newFleet(opts)
	secrets := map[client.Object]cache.ByObject{&corev1.Secret{}: {Namespaces: map[string]cache.Config{opts.secrets: {}}}}
	provider := kubeconfig.New(kubeconfig.Options{
		Namespace:      opts.secrets,
		ClusterOptions: []cluster.Option{fleet.clusterOptions},
		RESTOptions:    []func(*rest.Config) error{frame.SelfContained},
	})
	managed := opts.Options("fleet")
	managed.Cache.ByObject = secrets
	managed.HealthProbeBindAddress = opts.healthAddress
	managed.LeaderElectionNamespace = opts.secrets
	mgr, err := mcmanager.New(cfg, provider, managed)
	if err != nil {
		return err
	}
	err = errors.Join(
		provider.SetupWithManager(ctx, mgr),
		mgr.Add(fleet), // first: the markers ask it for the cluster's mapper
		mgr.Add(&markers{fleet: fleet, kind: opts.kind}),
		mgr.AddReadyzCheck("restmappers", fleet.Healthz),
		mgr.AddMetricsServerExtraHandler("/debug/restmappers", fleet.DebugHandler()),
	)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// clusterAnnotation holds the name of the cluster that an object is in.
const clusterAnnotation = "fleet.example.com/cluster"

// retry is how long the program waits after an error before it runs a marker again.
const retry = 10 * time.Second

// markers runs a marker in each cluster that serves the kind. A controller of
// multicluster-runtime can't do that: it refuses a cluster that does not serve what it
// watches, and then all controllers lose the cluster.
type markers struct {
	fleet clusters
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
