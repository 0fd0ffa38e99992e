// SPDX-License-Identifier: Apache-2.0

//go:build stock

package main

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// clusters is for stock controller-runtime, where nothing watches what a cluster serves. So
// whileServed asks until the kind is there, and never notices that the kind has gone.
type clusters struct{}

const askEvery = 10 * time.Second

func newFleet(options) clusters { return clusters{} }

func (clusters) clusterOptions(*cluster.Options) {}

func (clusters) Engage(context.Context, multicluster.ClusterName, cluster.Cluster) error { return nil }

func (clusters) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (clusters) Healthz(req *http.Request) error { return healthz.Ping(req) }

func (clusters) DebugHandler() http.Handler { return http.NotFoundHandler() }

func (clusters) whileServed(ctx context.Context, _ string, cl cluster.Cluster, kind schema.GroupVersionKind, run func(context.Context) error) error {
	for ctx.Err() == nil {
		if _, err := cl.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version); err == nil {
			return run(ctx)
		}
		select {
		case <-ctx.Done():
		case <-time.After(askEvery):
		}
	}
	return nil
}
