// SPDX-License-Identifier: Apache-2.0

// Command multicluster runs on a hosting cluster and pushes an object of one kind, Peer,
// into every tenant cluster that a ClusterMesh names. It uses the version of Peer that
// the tenant prefers.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
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
