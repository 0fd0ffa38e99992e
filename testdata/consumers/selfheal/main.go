// SPDX-License-Identifier: Apache-2.0

// Command selfheal watches its own view of the API server. It tells a short failure from
// an outage, repairs the view with backoff, and gives up after a deadline. It keeps a
// record of all that in a file, which survives a restart.
//
//	selfheal [flags]   (-h explains)
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"example.com/consumers/frame"
)

func main() { frame.Main("selfheal", run) }

func run(ctx context.Context, args []string) error {
	var opts options
	if err := frame.Parse("selfheal", args, opts.addTo); err != nil {
		return err
	}
	if opts.status == "" {
		return errors.New("-status must name a file")
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
	kinds    []schema.GroupKind
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
	flags.Func("kinds", "report how these `kinds` are served, such as ConfigMap,Widget.example.com", o.setKinds)
	flags.StringVar(&o.address, "bind-address", ":8081", "serve /readyz, /healthz, /status, /kinds and /repair here")
}

// setKinds takes kinds as kubectl prints them: KIND.GROUP, or KIND of the core group.
func (o *options) setKinds(list string) error {
	o.kinds = nil
	for name := range strings.SplitSeq(list, ",") {
		kind := schema.ParseGroupKind(strings.TrimSpace(name))
		if !strings.ContainsFunc(kind.Kind, unicode.IsUpper) {
			return fmt.Errorf("%q is no kind, want KIND.GROUP such as ConfigMap or Deployment.apps", name)
		}
		o.kinds = append(o.kinds, kind)
	}
	return nil
}

// runManager can start without a server: a program that is restarted during an outage
// must be able to report the outage.
func runManager(ctx context.Context, cfg *rest.Config, opts options) error {
	mgr, err := ctrl.NewManager(cfg, withView(ctrl.Options{
		Metrics: metrics.Options{BindAddress: "0"}, // the one server below is enough for an example
	}, opts.check, opts.attempt))
	if err != nil {
		return err
	}
	v, err := viewOf(mgr, opts.check, opts.attempt)
	if err != nil {
		return err
	}
	w := newWatchdog(v, opts, mgr.GetLogger().WithName("watchdog"))
	err = errors.Join(mgr.Add(manager.RunnableFunc(w.start)), mgr.Add(frame.Server(opts.address, pages(opts, w, mgr.GetRESTMapper()))))
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// pages are what the program says of itself.
func pages(opts options, w *watchdog, mapper meta.RESTMapper) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/healthz", healthz.CheckHandler{Checker: w.alive})
	mux.HandleFunc("/readyz", func(rw http.ResponseWriter, req *http.Request) {
		// Unlike healthz.CheckHandler, this tells the reason.
		if err := w.ready(req); err != nil {
			http.Error(rw, err.Error(), http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("GET /status", func(rw http.ResponseWriter, _ *http.Request) {
		answer(rw, struct {
			status
			Repairing bool `json:"repairing"`
		}{w.now(), w.repairing.Load()})
	})
	mux.HandleFunc("GET /kinds", func(rw http.ResponseWriter, _ *http.Request) {
		answer(rw, served(opts.kinds, mapper))
	})
	mux.HandleFunc("POST /repair", func(rw http.ResponseWriter, _ *http.Request) {
		if err := w.askRepair(); err != nil {
			http.Error(rw, err.Error(), http.StatusConflict)
			return
		}
		rw.WriteHeader(http.StatusAccepted)
	})
	return mux
}

func answer(rw http.ResponseWriter, with any) {
	rw.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(rw).Encode(with) // an error means that the reader has gone
}

// served returns how the kinds are served, as far as the mapper knows.
func served(kinds []schema.GroupKind, mapper meta.RESTMapper) map[string]string {
	served := map[string]string{}
	for _, kind := range kinds {
		mapping, err := mapper.RESTMapping(kind)
		switch {
		case meta.IsNoMatchError(err):
			served[kind.String()] = "not served"
		case err != nil:
			served[kind.String()] = "unknown: " + err.Error()
		default:
			served[kind.String()] = mapping.GroupVersionKind.GroupVersion().String() + ", " + string(mapping.Scope.Name())
		}
	}
	return served
}
