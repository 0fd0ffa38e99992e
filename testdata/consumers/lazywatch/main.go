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
	"fmt"
	"os"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

func main() {
	ctrl.SetLogger(zap.New())
	err := run(ctrl.SetupSignalHandler(), os.Args[1:])
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "lazywatch:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("lazywatch", flag.ContinueOnError)
	var opts options
	opts.addTo(flags)
	config.RegisterFlags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if err := opts.validate(); err != nil {
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
	rescan        time.Duration
	probeInterval time.Duration
	syncTimeout   time.Duration
	address       string
}

func (o *options) addTo(flags *flag.FlagSet) {
	o.kinds.exclude = kindSet{
		{Kind: "Event"}:                         true, // many, short-lived, and nobody's to copy
		{Group: "events.k8s.io", Kind: "Event"}: true,
	}
	flags.Var(&o.kinds.include, "include", "mirror these kinds only, such as ConfigMap,Widget.example.com (default all)")
	flags.Var(&o.kinds.exclude, "exclude", "do not mirror these kinds")
	flags.IntVar(&o.maxTargets, "max-targets", 20, "mirror one object into so many namespaces at most")
	flags.DurationVar(&o.rescan, "rescan", 30*time.Second, "ask what is served this often; where kinds are watched, to be safe only")
	flags.DurationVar(&o.probeInterval, "probe-interval", 10*time.Second, "ask this often whether a kind without a marked object has one now")
	flags.DurationVar(&o.syncTimeout, "sync-timeout", 30*time.Second, "a kind that cannot be listed within this time has failed, and is tried again")
	flags.StringVar(&o.address, "bind-address", ":8081", "serve /readyz, /healthz and /kinds here")
}

func (o *options) validate() error {
	for name, d := range map[string]time.Duration{
		"rescan": o.rescan, "probe-interval": o.probeInterval, "sync-timeout": o.syncTimeout,
	} {
		if d <= 0 {
			return fmt.Errorf("-%s must be positive, not %s", name, d)
		}
	}
	if o.maxTargets <= 0 {
		return fmt.Errorf("-max-targets must be positive, not %d", o.maxTargets)
	}
	return nil
}
