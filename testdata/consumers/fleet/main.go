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
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/providers/kubeconfig"
)

func main() {
	ctrl.SetLogger(zap.New())
	err := run(os.Args[1:])
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	opts, err := parse(args)
	if err != nil {
		return err
	}
	cfg, err := config.GetConfig()
	if err != nil {
		return err
	}
	return runOperator(ctrl.SetupSignalHandler(), cfg, opts)
}

type options struct {
	namespace      string
	kind           schema.GroupVersionKind
	interval       time.Duration
	unhealthyAfter time.Duration
	healthAddress  string
	metricsAddress string
	pprofAddress   string
	leaderElection bool
}

func parse(args []string) (options, error) {
	var opts options
	flags := flag.NewFlagSet("fleet", flag.ContinueOnError)
	config.RegisterFlags(flags) // -kubeconfig
	opts.addTo(flags)
	if err := flags.Parse(args); err != nil {
		return opts, err
	}
	if flags.NArg() > 0 {
		return opts, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if opts.namespace == "" {
		return opts, errors.New("-namespace must not be empty")
	}
	if opts.interval <= 0 || opts.unhealthyAfter <= 0 {
		return opts, errors.New("-interval and -unhealthy-after must be positive")
	}
	return opts, nil
}

func (o *options) addTo(flags *flag.FlagSet) {
	flags.StringVar(&o.namespace, "namespace", "fleet", "read Secrets with kubeconfigs in this namespace, and hold the leader lease there")
	o.kind = schema.GroupVersionKind{Group: "fleet.example.com", Version: "v1", Kind: "Gadget"}
	flags.Func("kind", "work on objects of this `KIND.VERSION.GROUP` (default Gadget.v1.fleet.example.com)", o.setKind)
	flags.DurationVar(&o.interval, "interval", 10*time.Minute, "ask each cluster this often what it serves; changes are watched beside that")
	flags.DurationVar(&o.unhealthyAfter, "unhealthy-after", 2*time.Minute, "a cluster that could not be read for so long is unhealthy")
	flags.StringVar(&o.healthAddress, "health-probe-bind-address", ":8081", "serve /readyz and /healthz at this address")
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", "0", "serve metrics and /debug/restmappers at this address, 0 for none")
	flags.StringVar(&o.pprofAddress, "pprof-bind-address", "0", "serve /debug/pprof at this address, 0 for none")
	flags.BoolVar(&o.leaderElection, "leader-elect", false, "run only while holding the leader lease")
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
	secrets := map[client.Object]cache.ByObject{&corev1.Secret{}: {Namespaces: map[string]cache.Config{opts.namespace: {}}}}
	provider := kubeconfig.New(kubeconfig.Options{
		Namespace:      opts.namespace,
		ClusterOptions: []cluster.Option{fleet.clusterOptions},
		RESTOptions:    []func(*rest.Config) error{selfContained},
	})
	mgr, err := mcmanager.New(cfg, provider, ctrl.Options{
		Cache:                   cache.Options{ByObject: secrets},
		HealthProbeBindAddress:  opts.healthAddress,
		Metrics:                 server.Options{BindAddress: opts.metricsAddress},
		PprofBindAddress:        opts.pprofAddress,
		LeaderElection:          opts.leaderElection,
		LeaderElectionID:        "fleet.example.com",
		LeaderElectionNamespace: opts.namespace,
	})
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

// selfContained refuses a kubeconfig that would run programs or read files here: the
// right to write a Secret must not give the operator's own rights.
func selfContained(cfg *rest.Config) error {
	files := cfg.BearerTokenFile + cfg.CAFile + cfg.CertFile + cfg.KeyFile
	if cfg.ExecProvider != nil || cfg.AuthProvider != nil || files != "" {
		return errors.New("the kubeconfig must hold its credentials itself, not name a program or a file")
	}
	return nil
}
