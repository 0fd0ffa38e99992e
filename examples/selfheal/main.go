// SPDX-License-Identifier: Apache-2.0

//go:build !stock

// Command selfheal is a watchdog over many clusters. It tolerates short failures of a cluster's API server, repairs
// what fails for longer, with backoff and one cluster at a time, and keeps what it knows in a file, which survives a
// restart.
//
//	selfheal [flags]   (-h explains)
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil/fleet"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"example.com/consumers/frame"
)

func main() { frame.Main("selfheal", run) }

func run(ctx context.Context, args []string) error {
	var opts options
	if err := frame.Parse("selfheal", args, opts.addTo); err != nil {
		return err
	}
	cfg, err := config.GetConfig()
	if err != nil {
		return err
	}
	return runWatchdog(ctx, cfg, opts)
}

type options struct {
	frame.Clusters
	file       string
	interval   time.Duration
	tolerate   time.Duration
	timeout    time.Duration
	backoff    time.Duration
	backoffMax time.Duration
}

func (o *options) addTo(flags *flag.FlagSet) {
	o.AddTo(flags)
	flags.StringVar(&o.file, "state", "selfheal.json", "keep the state of all clusters in this `file`")
	flags.DurationVar(
		&o.interval,
		"interval",
		30*time.Second,
		"read each cluster this often; a failed read is repeated sooner",
	)
	flags.DurationVar(
		&o.tolerate,
		"tolerate",
		time.Minute,
		"repair a cluster whose reads have failed for longer than this",
	)
	flags.DurationVar(&o.timeout, "repair-timeout", 10*time.Second, "a repair may take so long")
	flags.DurationVar(
		&o.backoff,
		"backoff",
		5*time.Second,
		"wait so long after the first repair that fails, and twice as long after each other",
	)
	flags.DurationVar(&o.backoffMax, "backoff-max", 5*time.Minute, "but never longer than this")
}

// runWatchdog watches the clusters whose kubeconfigs are in Secrets with the label of the kubeconfig provider.
func runWatchdog(ctx context.Context, cfg *rest.Config, opts options) error {
	mappers := fleet.New(apiutil.DynamicRESTMapperOptions{
		RefreshInterval: opts.interval,
		UnhealthyAfter:  opts.tolerate,
		Logger:          ctrl.Log.WithName("restmapper"),
	})
	watchdog := newWatchdog(mappers, opts, ctrl.Log.WithName("watchdog"))
	mgr, err := opts.NewManager(
		ctx,
		cfg,
		"selfheal",
		func(o *cluster.Options) { o.MapperProvider = mappers.Provider("") },
	)
	if err != nil {
		return err
	}
	err = errors.Join(
		mgr.Add(watchdog),
		mgr.AddReadyzCheck("clusters", mappers.Healthz), // fails only when all clusters are unhealthy
		mgr.AddMetricsServerExtraHandler("/clusters", http.HandlerFunc(watchdog.serveRecords)),
		mgr.AddMetricsServerExtraHandler("/debug/restmappers", mappers.DebugHandler()),
	)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// serveRecords answers with what is known of each cluster.
func (w *watchdog) serveRecords(rw http.ResponseWriter, _ *http.Request) {
	_, records := w.copies()
	rw.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(rw).Encode(records) // an error means that the client is gone
}
