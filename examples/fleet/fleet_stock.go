// SPDX-License-Identifier: Apache-2.0

//go:build stock

package main

import (
	"context"
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// clusters is for controller-runtime as it is. There, a cluster whose cache has options for a kind that is not
// installed cannot be created, so there are none. The source of the controller asks every ten seconds until the kind
// is installed, and never notices that the kind was removed.
type clusters struct{}

func newClusters(options) clusters { return clusters{} }

func (clusters) clusterOptions(client.Object) cluster.Option { return func(*cluster.Options) {} }

func (clusters) Engage(context.Context, multicluster.ClusterName, cluster.Cluster) error { return nil }

func (clusters) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (clusters) Healthz(req *http.Request) error { return healthz.Ping(req) }

func (clusters) DebugHandler() http.Handler { return http.NotFoundHandler() }
