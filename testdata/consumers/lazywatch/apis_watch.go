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
)

// freshMapper is the RESTMapper of a controller-runtime with freshmapper inside.
// RunWhileServed is a method of it.
type freshMapper struct{ *apiutil.DynamicRESTMapper }

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

// Served passes on the kinds that come. RunWhileServed notices those that go.
func (m freshMapper) Served(ctx context.Context, found func([]schema.GroupKind)) {
	for changes := range m.Subscribe(ctx) {
		kinds := make([]schema.GroupKind, 0, len(changes))
		for _, change := range changes {
			if change.Type == apiutil.APIAdded {
				kinds = append(kinds, change.Mapping.GroupVersionKind.GroupKind())
			}
		}
		found(kinds)
	}
}

func (m freshMapper) Mapping(kind schema.GroupKind) (*meta.RESTMapping, error) {
	return m.RESTMapping(kind)
}
