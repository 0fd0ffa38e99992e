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
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"example.com/consumers/frame"
)

func main() { frame.Main("unmanaged", run) }

type options struct {
	kind, class string
	gets        int
	over        time.Duration
}

func (o *options) addTo(flags *flag.FlagSet) {
	flags.StringVar(&o.kind, "kind", "", "serve this kind: Kind.version.group")
	flags.StringVar(&o.class, "class", "", "mark the objects whose spec.class is this")
	flags.IntVar(&o.gets, "gets", 10000, "get so many objects that do not exist")
	flags.DurationVar(&o.over, "over", time.Minute, "take so long for them")
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("usage: unmanaged serve|miss [flags]")
	}
	var opts options
	if err := frame.Parse("unmanaged "+args[0], args[1:], opts.addTo); err != nil {
		return err
	}
	switch args[0] {
	case "serve":
		return serve(ctx, opts.kind, opts.class)
	case "miss":
		return miss(ctx, opts.gets, opts.over)
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
