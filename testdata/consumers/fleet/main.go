// SPDX-License-Identifier: Apache-2.0

// Command fleet writes the name of the cluster into each object of a kind, in every
// cluster for which there is a kubeconfig.
//
//	fleet [flags]   (-h explains)
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
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
	kind           string
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
	return opts, opts.validate()
}

func (o *options) addTo(flags *flag.FlagSet) {
	flags.StringVar(&o.namespace, "namespace", "fleet", "read Secrets with kubeconfigs in this namespace, and hold the leader lease there")
	flags.StringVar(&o.kind, "kind", "Gadget.v1.fleet.example.com", "work on objects of this `KIND.VERSION.GROUP`")
	flags.DurationVar(&o.interval, "interval", 10*time.Minute, "ask each cluster this often what it serves; changes are watched beside that")
	flags.DurationVar(&o.unhealthyAfter, "unhealthy-after", 2*time.Minute, "a cluster that could not be read for so long is unhealthy")
	flags.StringVar(&o.healthAddress, "health-probe-bind-address", ":8081", "serve /readyz and /healthz at this address")
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", "0", "serve metrics and /debug/restmappers at this address, 0 for none")
	flags.StringVar(&o.pprofAddress, "pprof-bind-address", "0", "serve /debug/pprof at this address, 0 for none")
	flags.BoolVar(&o.leaderElection, "leader-elect", false, "run only while holding the leader lease")
}

func (o *options) validate() error {
	if o.namespace == "" {
		return errors.New("-namespace must not be empty")
	}
	if o.interval <= 0 || o.unhealthyAfter <= 0 {
		return errors.New("-interval and -unhealthy-after must be positive")
	}
	if _, err := o.gvk(); err != nil {
		return err
	}
	return nil
}

func (o *options) gvk() (schema.GroupVersionKind, error) {
	gvk, _ := schema.ParseKindArg(o.kind)
	if gvk == nil || gvk.Group == "" || gvk.Version == "" || gvk.Kind == "" {
		return schema.GroupVersionKind{}, fmt.Errorf("-kind must be KIND.VERSION.GROUP, such as Gadget.v1.fleet.example.com, not %q", o.kind)
	}
	return *gvk, nil
}
