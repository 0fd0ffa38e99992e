// SPDX-License-Identifier: Apache-2.0

//go:build !stock

package main

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/go-logr/logr"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil/fleet"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// watchdog looks at all clusters again and again, and repairs those that are unhealthy. It is a runnable of a
// multi-cluster manager, which engages the clusters.
type watchdog struct {
	mappers *fleet.Fleet
	opts    options
	log     logr.Logger
	begun   time.Time

	mu       sync.Mutex         // guards the rest
	clusters map[string]watched // that are engaged
	records  map[string]record  // also of clusters that are not engaged yet. Only Start's goroutine changes it
}

// watched is a cluster that is engaged.
type watched struct {
	cluster cluster.Cluster
	mapper  *apiutil.DynamicRESTMapper
}

func newWatchdog(mappers *fleet.Fleet, opts options, log logr.Logger) *watchdog {
	records, err := load(opts.file)
	if err != nil {
		log.Error(err, "Nothing is known from before the program was started")
	}
	return &watchdog{
		mappers:  mappers,
		opts:     opts,
		log:      log,
		begun:    time.Now(),
		clusters: map[string]watched{},
		records:  records,
	}
}

// Engage is called for each cluster that is added, with a context that ends when the cluster is removed. It sends no
// request, so a cluster that is down when the program starts is engaged, too.
func (w *watchdog) Engage(ctx context.Context, name multicluster.ClusterName, cl cluster.Cluster) error {
	mapper, ok := cl.GetRESTMapper().(*apiutil.DynamicRESTMapper)
	if !ok {
		return fmt.Errorf("the RESTMapper of cluster %q is a %T", name, cl.GetRESTMapper())
	}
	if err := w.mappers.Engage(ctx, name.String(), mapper); err != nil {
		return err
	}
	added := watched{cl, mapper}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clusters[name.String()] = added
	context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.clusters[name.String()] == added { // else it was engaged again, with another kubeconfig
			delete(w.clusters, name.String())
		}
	})
	return nil
}

// lookEvery is how often the watchdog looks at what the mappers know, which costs no request.
const lookEvery = time.Second

// Start blocks until ctx ends and all mappers have stopped. All repairs run here, so there is one at a time.
func (w *watchdog) Start(ctx context.Context) error {
	for ctx.Err() == nil {
		due := w.look(ctx)
		if due != "" {
			w.repair(ctx, due)
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(lookEvery):
		}
	}
	return w.mappers.Start(ctx)
}

// look updates the records of all clusters. It returns the cluster that waits longest for a repair that is due, if any.
func (w *watchdog) look(ctx context.Context) (due string) {
	clusters, records := w.copies()
	if ctx.Err() != nil {
		return "" // the clusters were not removed: they end with the program
	}
	now := time.Now()
	for name := range records {
		_, engaged := clusters[name]
		if !engaged && now.Sub(w.begun) > w.opts.tolerate { // before that, it may not be engaged yet
			delete(records, name)
		}
	}
	for name, c := range clusters {
		before := records[name]
		after := before.observed(c.mapper.Status(), c.mapper.Healthz(nil), now)
		records[name] = after
		if after.State != before.State {
			w.log.Info("A cluster has another state", "cluster", name, "state", after.State, "before", before.State,
				"reason", after.Reason, "repairs", before.Repairs)
		}
		if !after.due(now) {
			continue
		}
		if due == "" || after.NextRepair.Before(records[due].NextRepair) {
			due = name
		}
	}
	w.set(records)
	return due
}

// repair drops the connections that are not in use, because the server at their end may be gone, and reads the server.
// The mapper does so by itself, but later, and over the old connections. If it succeeds, the next look finds the
// cluster healthy.
func (w *watchdog) repair(ctx context.Context, name string) {
	clusters, records := w.copies()
	c, engaged := clusters[name]
	if !engaged {
		return
	}
	w.log.Info("Repairing a cluster", "cluster", name, "since", records[name].Since, "reason", records[name].Reason)
	limited, cancel := context.WithTimeout(ctx, w.opts.timeout)
	defer cancel()
	utilnet.CloseIdleConnectionsFor(c.cluster.GetHTTPClient().Transport)
	err := c.mapper.Refresh(limited)
	if ctx.Err() != nil {
		return // the program ends: this was no attempt
	}
	after := records[name].repaired(time.Now(), w.opts.backoff, w.opts.backoffMax)
	records[name] = after
	w.set(records)
	if err != nil {
		w.log.Error(err, "A repair has failed", "cluster", name, "repairs", after.Repairs, "next", after.NextRepair)
	}
}

// copies returns what is known of all clusters. The maps belong to the caller.
func (w *watchdog) copies() (map[string]watched, map[string]record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.clusters), maps.Clone(w.records)
}

// set replaces the records, and saves them if they have changed. Only Start's goroutine calls it, so the file is
// written in order.
func (w *watchdog) set(records map[string]record) {
	w.mu.Lock()
	changed := !maps.Equal(w.records, records)
	w.records = records
	w.mu.Unlock()
	if !changed {
		return
	}
	if err := save(w.opts.file, records); err != nil {
		w.log.Error(err, "What is known of the clusters will not survive a restart")
	}
}
