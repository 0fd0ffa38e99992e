// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// runManager can start without a server: a program that is restarted during an outage
// must be able to report the outage.
func runManager(ctx context.Context, cfg *rest.Config, opts options) error {
	asked := &requests{}
	cfg.Wrap(asked.count)
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
	if err := mgr.Add(manager.RunnableFunc(w.start)); err != nil {
		return err
	}
	if err := mgr.Add(httpServer(opts, w, mgr.GetRESTMapper(), asked)); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func httpServer(opts options, w *watchdog, mapper meta.RESTMapper, asked *requests) *manager.Server {
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
		}{w.now(), w.repairing.Load(), asked.n.Load()})
	})
	mux.HandleFunc("GET /kinds", func(rw http.ResponseWriter, _ *http.Request) {
		answer(rw, opts.kinds.served(mapper))
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
