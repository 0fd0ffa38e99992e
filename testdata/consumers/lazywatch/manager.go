// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func runManager(ctx context.Context, cfg *rest.Config, opts options) error {
	requests := &discoveryRequests{}
	cfg.Wrap(requests.count)
	cfg.WarningHandler = rest.NoWarnings{} // the program asks for every kind, deprecated ones included
	mgr, err := ctrl.NewManager(cfg, withAPIs(ctrl.Options{
		Metrics: metrics.Options{BindAddress: "0"}, // the one server below is enough for an example
	}, opts.rescan))
	if err != nil {
		return err
	}
	apis, err := apisOf(mgr, opts.rescan)
	if err != nil {
		return err
	}
	board := newBoard(mgr.GetLogger().WithName("board"), opts.syncTimeout)
	sources := &sources{apis: apis, kinds: opts.kinds, board: board, maxFailures: opts.maxFailures, rest: opts.rest,
		run: newSource(mgr, board, opts).run}
	if err := mgr.Add(manager.RunnableFunc(sources.start)); err != nil {
		return err
	}
	if err := mgr.Add(httpServer(opts.address, board, requests)); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// httpServer answers from the board alone. It asks no cache, so it never waits for one.
func httpServer(address string, board *board, requests *discoveryRequests) *manager.Server {
	mux := http.NewServeMux()
	mux.Handle("/healthz", healthz.CheckHandler{Checker: healthz.Ping})
	mux.HandleFunc("/readyz", board.serveReady)
	mux.HandleFunc("/kinds", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{ // the reader has gone: nobody to tell
			"kinds": board.list(), "discoveryRequests": requests.made(),
		})
	})
	return &manager.Server{
		Name:            "status",
		Server:          &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 10 * time.Second},
		ShutdownTimeout: ptr.To(5 * time.Second),
	}
}
