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
	"os"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
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

// runManager can start without a server: a program that is restarted during an outage
// must be able to report the outage.
func runManager(ctx context.Context, cfg *rest.Config, opts options) error {
	var asked atomic.Int64
	cfg.Wrap(counted(&asked))
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
	err = errors.Join(mgr.Add(manager.RunnableFunc(w.start)), mgr.Add(httpServer(opts, w, mgr.GetRESTMapper(), &asked)))
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func httpServer(opts options, w *watchdog, mapper meta.RESTMapper, asked *atomic.Int64) *manager.Server {
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
			Repairing bool  `json:"repairing"`
			Requests  int64 `json:"requests"` // of this process
		}{w.now(), w.repairing.Load(), asked.Load()})
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
	return &manager.Server{
		Name:            "status",
		Server:          &http.Server{Addr: opts.address, Handler: mux, ReadHeaderTimeout: 10 * time.Second},
		ShutdownTimeout: ptr.To(5 * time.Second),
	}
}

func answer(rw http.ResponseWriter, with any) {
	rw.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(rw).Encode(with) // an error means that the reader has gone
}

// counted counts the requests of the program to the API server.
func counted(n *atomic.Int64) transport.WrapperFunc {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			n.Add(1)
			return next.RoundTrip(req)
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

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
