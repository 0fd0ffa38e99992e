// SPDX-License-Identifier: Apache-2.0

// Command unmanaged works with kinds through its own mapper, and without a manager that
// would start anything.
//
//	unmanaged serve -kind Widget.v1.example.com -class NAME   marks objects, with a dynamic client
//	unmanaged miss -gets N -over D                            gets objects that do not exist
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

func main() {
	ctrl.SetLogger(zap.New())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "unmanaged:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("usage: unmanaged serve|miss [flags]")
	}
	flags := flag.NewFlagSet("unmanaged "+args[0], flag.ContinueOnError)
	kind := flags.String("kind", "", "serve this kind: Kind.version.group")
	class := flags.String("class", "", "mark the objects whose spec.class is this")
	gets := flags.Int("gets", 10000, "get so many objects that do not exist")
	over := flags.Duration("over", time.Minute, "take so long for them")
	config.RegisterFlags(flags) // -kubeconfig
	if err := flags.Parse(args[1:]); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	switch args[0] {
	case "serve":
		return serve(ctx, *kind, *class)
	case "miss":
		return miss(ctx, *gets, *over)
	}
	return fmt.Errorf("unknown command %q", args[0])
}

// connect returns what both commands need.
func connect() (*rest.Config, *http.Client, meta.RESTMapper, error) {
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return nil, nil, nil, err
	}
	cfg.QPS = -1
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, nil, nil, err
	}
	mapper, err := apiutil.NewDynamicRESTMapper(cfg, httpClient)
	return cfg, httpClient, mapper, err
}
