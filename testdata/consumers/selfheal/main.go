// SPDX-License-Identifier: Apache-2.0

// Command selfheal watches its own view of the API server. It tells a short failure from
// an outage, repairs the view with backoff, and gives up after a deadline. It keeps a
// record of all that in a file, which survives a restart.
//
//	selfheal [flags]   (-h explains)
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
		fmt.Fprintln(os.Stderr, "selfheal:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("selfheal", flag.ContinueOnError)
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
	check    time.Duration
	tolerate time.Duration
	attempt  time.Duration
	backoff  time.Duration
	most     time.Duration
	deadline time.Duration
	status   string
	kinds    kindList
	address  string
}

func (o *options) addTo(flags *flag.FlagSet) {
	flags.DurationVar(&o.check, "check-interval", 10*time.Second, "read the server, and look at the view, this often")
	flags.DurationVar(&o.tolerate, "tolerate", time.Minute, "failures that last no longer than this are none")
	flags.DurationVar(&o.attempt, "attempt-timeout", 10*time.Second, "one attempt to repair may take so long")
	flags.DurationVar(&o.backoff, "backoff", time.Second, "wait so long after the first attempt, and twice as long after each other")
	flags.DurationVar(&o.most, "backoff-max", 30*time.Second, "but never longer than this")
	flags.DurationVar(&o.deadline, "repair-deadline", 5*time.Minute, "give up after this time, and fail /healthz, so that the program is restarted")
	flags.StringVar(&o.status, "status", "selfheal-status.json", "keep the status in this file")
	flags.Var(&o.kinds, "kinds", "report how these kinds are served, such as ConfigMap,Widget.example.com")
	flags.StringVar(&o.address, "bind-address", ":8081", "serve /readyz, /healthz, /status, /kinds and /repair here")
}

func (o *options) validate() error {
	for name, d := range map[string]time.Duration{
		"check-interval": o.check, "tolerate": o.tolerate, "attempt-timeout": o.attempt,
		"backoff": o.backoff, "backoff-max": o.most, "repair-deadline": o.deadline,
	} {
		if d <= 0 {
			return fmt.Errorf("-%s must be positive, not %s", name, d)
		}
	}
	if o.status == "" {
		return errors.New("-status must name a file")
	}
	return nil
}
