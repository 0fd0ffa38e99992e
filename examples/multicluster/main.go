// SPDX-License-Identifier: Apache-2.0

// Command multicluster runs on a hosting cluster and pushes an object of one kind, Peer,
// into every tenant cluster that a ClusterMesh names. It uses the version of Peer that
// the tenant prefers.
package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"example.com/consumers/frame"
)

func main() { frame.Main("multicluster", run) }

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

func parse(args []string) (options, error) {
	var opts options
	if err := frame.Parse("multicluster", args, opts.addTo); err != nil {
		return opts, err
	}
	if gk := schema.ParseGroupKind(opts.peer); gk.Kind == "" || gk.Group == "" {
		return opts, fmt.Errorf("-peer must be a kind with its group, such as Peer.mesh.example.com, not %q", opts.peer)
	}
	return opts, nil
}

type options struct {
	frame.Manager
	peer     string
	interval time.Duration
	retry    time.Duration
	timeout  time.Duration
	workers  int
}

func (o *options) addTo(flags *flag.FlagSet) {
	o.AddTo(flags)
	flags.StringVar(
		&o.Namespace,
		"namespace",
		"",
		"watch ClusterMeshes in this namespace, and hold the leader lease there (default all, and that of the pod)",
	)
	flags.StringVar(
		&o.peer,
		"peer",
		"Peer.mesh.example.com",
		"push objects of this `KIND.GROUP`, in the version that each tenant prefers",
	)
	flags.DurationVar(&o.interval, "interval", time.Minute, "push into a tenant again after this time")
	flags.DurationVar(
		&o.retry,
		"retry",
		5*time.Second,
		"try a tenant that cannot have its Peer yet again after this time",
	)
	flags.DurationVar(&o.timeout, "timeout", 5*time.Second, "give up a call to a tenant after this time")
	flags.IntVar(&o.workers, "workers", 50, "serve this many tenants at a time; more than may hang at once")
}

func runOperator(ctx context.Context, cfg *rest.Config, opts options) error {
	managed := opts.Options("multicluster")
	managed.LeaderElectionNamespace = opts.Namespace
	// Secrets are read one by one: so the program needs no right to list them, and keeps none.
	managed.Client.Cache = &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}
	mgr, err := ctrl.NewManager(cfg, managed)
	if err != nil {
		return err
	}
	r := &reconciler{
		client:   mgr.GetClient(),
		live:     mgr.GetAPIReader(),
		tenants:  newTenants(opts.timeout),
		peer:     schema.ParseGroupKind(opts.peer),
		interval: opts.interval,
		retry:    opts.retry,
	}
	if err := r.setup(mgr, opts.workers); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
