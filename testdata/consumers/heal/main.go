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
	"time"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"example.com/consumers/frame"
)

const usage = "usage: heal manager|report [flags] (-h after either explains)"

func main() { frame.Main("heal", run) }

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	var opts options
	addTo, ok := map[string]func(*flag.FlagSet){"manager": opts.addTo, "report": func(*flag.FlagSet) {}}[args[0]]
	if !ok {
		return fmt.Errorf("unknown command %q; %s", args[0], usage)
	}
	if err := frame.Parse("heal "+args[0], args[1:], addTo); err != nil {
		return err
	}
	cfg, err := config.GetConfig()
	if err != nil {
		return err
	}
	requests := &frame.Requests{Counts: isDiscovery}
	cfg.Wrap(requests.Count)
	if args[0] == "report" {
		return runReport(ctx, cfg, requests)
	}
	return runManager(ctx, cfg, requests, opts)
}

type options struct {
	frame.Manager
	retry time.Duration
}

func (o *options) addTo(flags *flag.FlagSet) {
	o.AddTo(flags)
	flags.StringVar(&o.Namespace, "namespace", "", "watch ConfigMaps in this namespace (default all)")
	flags.DurationVar(&o.retry, "retry", time.Second, "look again for a kind that is not served after this time")
}

func runManager(ctx context.Context, cfg *rest.Config, requests *frame.Requests, opts options) error {
	mgr, err := ctrl.NewManager(cfg, opts.Options("heal"))
	if err != nil {
		return err
	}
	r := &reconciler{client: mgr.GetClient(), mapper: mgr.GetRESTMapper(), requests: requests, retry: opts.retry}
	if err := r.setup(mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
