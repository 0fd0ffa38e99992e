// SPDX-License-Identifier: Apache-2.0

// Command heal works with kinds that you name at run time, in the version that the API
// server prefers. The kinds need not be served yet.
//
//	heal manager [flags]   runs a controller for annotated ConfigMaps
//	heal report [flags]    looks up the kinds that it reads from standard input
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
	switch args[0] {
	case "manager":
		return managerCommand(args[1:])
	case "report":
		return reportCommand(args[1:])
	default:
		return fmt.Errorf("unknown command %q; %s", args[0], usage)
	}
}

func managerCommand(args []string) error {
	var opts managerOptions
	flags := flag.NewFlagSet("heal manager", flag.ContinueOnError)
	opts.addTo(flags)
	if err := parse(flags, args); err != nil {
		return err
	}
	if err := opts.validate(); err != nil {
		return err
	}
	cfg, err := config.GetConfig()
	if err != nil {
		return err
	}
	return runManager(ctrl.SetupSignalHandler(), cfg, opts)
}

func reportCommand(args []string) error {
	if err := parse(flag.NewFlagSet("heal report", flag.ContinueOnError), args); err != nil {
		return err
	}
	cfg, err := config.GetConfig()
	if err != nil {
		return err
	}
	r, err := newReporter(cfg)
	if err != nil {
		return err
	}
	return r.run(os.Stdin, os.Stdout)
}

// parse parses the flags of a command, to which it adds -kubeconfig.
func parse(flags *flag.FlagSet, args []string) error {
	config.RegisterFlags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return nil
}
