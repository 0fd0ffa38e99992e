// SPDX-License-Identifier: Apache-2.0

//go:build !stock

package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil/served"
)

// freshMapper is the RESTMapper of a controller-runtime with freshmapper inside.
type freshMapper struct{ *apiutil.DynamicRESTMapper }

func (m freshMapper) RunWhileServed(
	ctx context.Context,
	run func(context.Context) error,
	kinds ...schema.GroupVersionKind,
) error {
	return served.RunWhile(ctx, m.DynamicRESTMapper, run, kinds...)
}

// withAPIs gives the manager a mapper that watches what is served.
func withAPIs(opts ctrl.Options, rescan time.Duration) ctrl.Options {
	opts.MapperProvider = apiutil.DynamicRESTMapperProvider(apiutil.DynamicRESTMapperOptions{
		WatchAPIs:       true,
		RefreshInterval: rescan, // for a server that does not let us watch
		Logger:          ctrl.Log.WithName("restmapper"),
	})
	return opts
}

// apisOf makes the manager start its mapper, because the mapper watches only while it is
// started.
func apisOf(mgr ctrl.Manager, _ time.Duration) (apis, error) {
	mapper, ok := mgr.GetRESTMapper().(*apiutil.DynamicRESTMapper)
	if !ok {
		return nil, fmt.Errorf("the manager's RESTMapper is a %T, which cannot watch", mgr.GetRESTMapper())
	}
	return freshMapper{mapper}, mgr.Add(mapper)
}

// Watch passes on what a subscriber is told, verbs included.
func (m freshMapper) Watch(ctx context.Context, changed func([]change)) {
	for batch := range m.Subscribe(ctx) {
		changes := make([]change, 0, len(batch))
		for _, c := range batch {
			namespaced := c.Mapping.Scope.Name() == meta.RESTScopeNameNamespace
			changes = append(changes, change{
				resource: newResource(c.Mapping.GroupVersionKind, c.Mapping.Resource.Resource, namespaced, c.Verbs),
				served:   c.Type != apiutil.APIRemoved,
			})
		}
		changed(changes)
	}
}
