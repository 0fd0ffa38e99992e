// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

type managerOptions struct {
	namespace      string
	retry          time.Duration
	metricsAddress string
	leaderElection bool
}

func (o *managerOptions) addTo(flags *flag.FlagSet) {
	flags.StringVar(&o.namespace, "namespace", "", "watch ConfigMaps in this namespace (default all)")
	flags.DurationVar(&o.retry, "retry", time.Second, "look again for a kind that is not served after this time")
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", "0", "serve metrics at this address, 0 for none")
	flags.BoolVar(&o.leaderElection, "leader-elect", false, "run only while holding the leader lease")
}

func (o *managerOptions) validate() error {
	if o.retry <= 0 {
		return fmt.Errorf("-retry must be positive, not %s", o.retry)
	}
	return nil
}

func runManager(ctx context.Context, cfg *rest.Config, opts managerOptions) error {
	requests := &discoveryRequests{}
	cfg.Wrap(requests.count)
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Cache:            cacheOptions(opts.namespace),
		Metrics:          server.Options{BindAddress: opts.metricsAddress},
		LeaderElection:   opts.leaderElection,
		LeaderElectionID: "heal.example.com",
	})
	if err != nil {
		return err
	}
	r := &reconciler{
		client:   mgr.GetClient(),
		mapper:   mgr.GetRESTMapper(),
		requests: requests,
		retry:    opts.retry,
	}
	if err := r.setup(mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func cacheOptions(namespace string) cache.Options {
	if namespace == "" {
		return cache.Options{}
	}
	return cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}}
}
