// SPDX-License-Identifier: Apache-2.0

// Command lazywatch mirrors annotated objects between namespaces, whatever their
// kind, and watches only the kinds that are served and used.
//
//	lazywatch [flags]   (-h explains)
package main

import (
	"context"
	"errors"
	"flag"
	"time"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"example.com/consumers/frame"
)

func main() { frame.Main("lazywatch", run) }

func run(ctx context.Context, args []string) error {
	var opts options
	if err := frame.Parse("lazywatch", args, opts.addTo); err != nil {
		return err
	}
	cfg, err := config.GetConfig()
	if err != nil {
		return err
	}
	return runManager(ctx, cfg, opts)
}

type options struct {
	kinds         filter
	maxTargets    int
	manyObjects   int
	maxFailures   int
	rest          time.Duration
	rescan        time.Duration
	probeInterval time.Duration
	syncTimeout   time.Duration
	address       string
}

func (o *options) addTo(flags *flag.FlagSet) {
	o.kinds.exclude = patterns{"Event", "Event.events.k8s.io"} // many, short-lived, and nobody's to copy
	flags.Var(&o.kinds.include, "include", "mirror these kinds only, such as ConfigMap,Widget.v1.example.com,*.example.org (default all)")
	flags.Var(&o.kinds.exclude, "exclude", "do not mirror these kinds, such as Secret,*.v1beta1.example.com")
	flags.IntVar(&o.maxTargets, "max-targets", 20, "mirror one object into so many namespaces at most")
	flags.IntVar(&o.manyObjects, "many-objects", 10_000, "warn before a kind is watched that has more objects than this, marked or not")
	flags.IntVar(&o.maxFailures, "max-failures", 10, "leave a kind alone that has failed so often in a row")
	flags.DurationVar(&o.rest, "rest", 30*time.Minute, "try a kind that is left alone once after so long")
	flags.DurationVar(&o.rescan, "rescan", 30*time.Second, "ask what is served this often; where kinds are watched, to be safe only")
	flags.DurationVar(&o.probeInterval, "probe-interval", 10*time.Second, "ask this often whether a kind without a marked object has one now")
	flags.DurationVar(&o.syncTimeout, "sync-timeout", 30*time.Second, "a kind that cannot be listed within this time has failed, and is tried again")
	flags.StringVar(&o.address, "bind-address", ":8081", "serve /readyz, /healthz and /kinds here")
}

func runManager(ctx context.Context, cfg *rest.Config, opts options) error {
	cfg.WarningHandler = rest.NoWarnings{} // the program asks for every kind, deprecated ones included
	mgr, err := ctrl.NewManager(cfg, withAPIs(ctrl.Options{
		Metrics: metrics.Options{BindAddress: "0"}, // the one server below is enough for an example
	}, opts.rescan))
	if err != nil {
		return err
	}
	apis, err := apisOf(mgr, opts.rescan)
	if err != nil {
		return err
	}
	board := newBoard(mgr.GetLogger().WithName("board"), opts.syncTimeout)
	source := &source{mgr: mgr, board: board, opts: opts}
	sources := &sources{apis: apis, kinds: opts.kinds, board: board, maxFailures: opts.maxFailures, rest: opts.rest, run: source.run}
	err = errors.Join(mgr.Add(manager.RunnableFunc(sources.start)), mgr.Add(frame.Server(opts.address, board.handler())))
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}
