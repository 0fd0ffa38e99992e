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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
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
