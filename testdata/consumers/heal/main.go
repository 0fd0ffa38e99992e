// SPDX-License-Identifier: Apache-2.0

// Command heal works with kinds that you name at run time, in the version that the API
// server prefers. The kinds need not be served yet.
//
//	heal manager [flags]   runs a controller for annotated ConfigMaps
//	heal report [flags]    looks up the kinds that it reads from standard input
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const usage = "usage: heal manager|report [flags] (-h after either explains)"

func main() {
	ctrl.SetLogger(zap.New())
	err := run(os.Args[1:])
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "heal:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	command, flags := args[0], flag.NewFlagSet("heal "+args[0], flag.ContinueOnError)
	var opts options
	switch command {
	case "manager":
		opts.addTo(flags)
	case "report":
	default:
		return fmt.Errorf("unknown command %q; %s", command, usage)
	}
	config.RegisterFlags(flags) // -kubeconfig
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case command == "manager" && opts.retry <= 0:
		return fmt.Errorf("-retry must be positive, not %s", opts.retry)
	}
	cfg, err := config.GetConfig()
	if err != nil {
		return err
	}
	requests := &discoveryRequests{}
	cfg.Wrap(requests.count)
	if command == "report" {
		return runReport(cfg, requests)
	}
	return runManager(ctrl.SetupSignalHandler(), cfg, requests, opts)
}

type options struct {
	namespace      string
	retry          time.Duration
	metricsAddress string
	leaderElection bool
}

func (o *options) addTo(flags *flag.FlagSet) {
	flags.StringVar(&o.namespace, "namespace", "", "watch ConfigMaps in this namespace (default all)")
	flags.DurationVar(&o.retry, "retry", time.Second, "look again for a kind that is not served after this time")
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", "0", "serve metrics at this address, 0 for none")
	flags.BoolVar(&o.leaderElection, "leader-elect", false, "run only while holding the leader lease")
}

func runManager(ctx context.Context, cfg *rest.Config, requests *discoveryRequests, opts options) error {
	watched := cache.Options{}
	if opts.namespace != "" {
		watched.DefaultNamespaces = map[string]cache.Config{opts.namespace: {}}
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Cache:            watched,
		Metrics:          server.Options{BindAddress: opts.metricsAddress},
		LeaderElection:   opts.leaderElection,
		LeaderElectionID: "heal.example.com",
	})
	if err != nil {
		return err
	}
	r := &reconciler{client: mgr.GetClient(), mapper: mgr.GetRESTMapper(), requests: requests, retry: opts.retry}
	if err := r.setup(mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
