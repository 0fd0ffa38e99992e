// SPDX-License-Identifier: Apache-2.0

//go:build !stock

package main

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil/fleet"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil/served"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// clusters holds the RESTMappers of all clusters. It is a runnable of a multi-cluster
// manager.
type clusters struct{ *fleet.Fleet }

func newFleet(opts options) clusters {
	return clusters{fleet.New(apiutil.DynamicRESTMapperOptions{
		WatchAPIs:       true,
		RefreshInterval: opts.interval, // for a cluster that does not let us watch
		UnhealthyAfter:  opts.unhealthyAfter,
		Logger:          ctrl.Log.WithName("restmapper"),
	})}
}

func (f clusters) clusterOptions(opts *cluster.Options) { opts.MapperProvider = f.Provider("") }

// Engage is called for each cluster that comes, with a context that ends when the cluster
// goes.
func (f clusters) Engage(ctx context.Context, name multicluster.ClusterName, cl cluster.Cluster) error {
	return f.Fleet.Engage(ctx, name.String(), cl.GetRESTMapper())
}

// whileServed runs run while the cluster serves the kind, again and again until ctx ends.
func (f clusters) whileServed(ctx context.Context, name string, cl cluster.Cluster, kind schema.GroupVersionKind, run func(context.Context) error) error {
	mapper, ok := cl.GetRESTMapper().(*apiutil.DynamicRESTMapper)
	if !ok {
		return fmt.Errorf("the RESTMapper of cluster %q is a %T", name, cl.GetRESTMapper())
	}
	return served.RunWhile(ctx, mapper, run, kind)
}
