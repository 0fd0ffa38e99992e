// SPDX-License-Identifier: Apache-2.0

// Command multicluster runs on a hosting cluster and pushes an object of one kind, Peer,
// into every tenant cluster that a ClusterMesh names. It uses the version of Peer that
// the tenant prefers.
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
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	ctrl.SetLogger(zap.New())
	err := run(os.Args[1:])
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "multicluster:", err)
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

func parse(args []string) (options, error) {
	var opts options
	flags := flag.NewFlagSet("multicluster", flag.ContinueOnError)
	config.RegisterFlags(flags) // -kubeconfig
	opts.addTo(flags)
	if err := flags.Parse(args); err != nil {
		return opts, err
	}
	if flags.NArg() > 0 {
		return opts, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return opts, opts.validate()
}

type options struct {
	namespace      string
	peer           string
	interval       time.Duration
	retry          time.Duration
	timeout        time.Duration
	workers        int
	resetOnNoMatch bool
	metricsAddress string
	leaderElection bool
}

func (o *options) addTo(flags *flag.FlagSet) {
	flags.StringVar(&o.namespace, "namespace", "", "watch ClusterMeshes in this namespace, and hold the leader lease there (default all, and that of the pod)")
	flags.StringVar(&o.peer, "peer", "Peer.mesh.example.com", "push objects of this `KIND.GROUP`, in the version that each tenant prefers")
	flags.DurationVar(&o.interval, "interval", time.Minute, "push into a tenant again after this time")
	flags.DurationVar(&o.retry, "retry", 5*time.Second, "try a tenant that cannot have its Peer yet again after this time")
	flags.DurationVar(&o.timeout, "timeout", 5*time.Second, "give up a call to a tenant after this time")
	flags.IntVar(&o.workers, "workers", 50, "serve this many tenants at a time; more than may hang at once")
	flags.BoolVar(&o.resetOnNoMatch, "reset-on-no-match", false, "call meta.MaybeResetRESTMapper when a tenant does not serve the kind")
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", "0", "serve metrics at this address, 0 for none")
	flags.BoolVar(&o.leaderElection, "leader-elect", false, "run only while holding the leader lease")
}

func (o *options) validate() error {
	for name, d := range map[string]time.Duration{"interval": o.interval, "retry": o.retry, "timeout": o.timeout} {
		if d <= 0 {
			return fmt.Errorf("-%s must be positive, not %s", name, d)
		}
	}
	if o.workers <= 0 {
		return fmt.Errorf("-workers must be positive, not %d", o.workers)
	}
	if gk := schema.ParseGroupKind(o.peer); gk.Kind == "" || gk.Group == "" {
		return fmt.Errorf("-peer must be a kind with its group, such as Peer.mesh.example.com, not %q", o.peer)
	}
	return nil
}

func runOperator(ctx context.Context, cfg *rest.Config, opts options) error {
	watched := cache.Options{}
	if opts.namespace != "" {
		watched.DefaultNamespaces = map[string]cache.Config{opts.namespace: {}}
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Cache: watched,
		// Secrets are read one by one: so the program needs no right to list them, and keeps none.
		Client:                  client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
		Metrics:                 server.Options{BindAddress: opts.metricsAddress},
		LeaderElection:          opts.leaderElection,
		LeaderElectionID:        "multicluster.example.com",
		LeaderElectionNamespace: opts.namespace,
	})
	if err != nil {
		return err
	}
	r := &reconciler{
		client:         mgr.GetClient(),
		live:           mgr.GetAPIReader(),
		tenants:        newTenants(opts.timeout),
		peer:           schema.ParseGroupKind(opts.peer),
		interval:       opts.interval,
		retry:          opts.retry,
		resetOnNoMatch: opts.resetOnNoMatch,
	}
	if err := r.setup(mgr, opts.workers); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
