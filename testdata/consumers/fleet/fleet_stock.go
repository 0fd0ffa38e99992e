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

// fleet is for controller-runtime as it is. There, a cluster whose cache has options for a kind that is not installed
// cannot be created, so there are none. The source of the controller asks every ten seconds until the kind is installed,
// and never notices that the kind was removed.
type fleet struct{}

func newFleet(options) fleet { return fleet{} }

func (fleet) clusterOptions(client.Object) cluster.Option { return func(*cluster.Options) {} }

func (fleet) Engage(context.Context, multicluster.ClusterName, cluster.Cluster) error { return nil }

func (fleet) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (fleet) Healthz(req *http.Request) error { return healthz.Ping(req) }

func (fleet) DebugHandler() http.Handler { return http.NotFoundHandler() }
