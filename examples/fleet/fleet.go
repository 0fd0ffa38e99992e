// SPDX-License-Identifier: Apache-2.0

//go:build !stock

package main

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil/fleet"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// clusters holds the RESTMappers of all clusters. It is a runnable of a multi-cluster
// manager.
type clusters struct{ *fleet.Fleet }

func newClusters(opts options) clusters {
	return clusters{fleet.New(apiutil.DynamicRESTMapperOptions{
		WatchAPIs:       true,
		RefreshInterval: opts.interval, // for a cluster that does not let us watch
		UnhealthyAfter:  opts.unhealthyAfter,
		Logger:          ctrl.Log.WithName("restmapper"),
	})}
}

// clusterOptions returns the options of each cluster. Its cache waits for the kind, which may be installed later, or
// never.
func (c clusters) clusterOptions(optional client.Object) cluster.Option {
	return func(opts *cluster.Options) {
		opts.MapperProvider = c.Provider("")
		opts.Cache.ByObject = map[client.Object]cache.ByObject{optional: {}}
	}
}

// Engage is called for each cluster that is added, with a context that ends when the cluster
// is removed.
func (c clusters) Engage(ctx context.Context, name multicluster.ClusterName, cl cluster.Cluster) error {
	return c.Fleet.Engage(ctx, name.String(), cl.GetRESTMapper())
}
