// SPDX-License-Identifier: Apache-2.0

//go:build !stock

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// mapperView is the RESTMapper of a controller-runtime with freshmapper inside.
type mapperView struct {
	mapper *apiutil.DynamicRESTMapper
	client *http.Client
}

// withView gives the manager a mapper that reads the server from time to time. If nothing
// has changed, that costs two answers without a body.
func withView(opts ctrl.Options, interval, timeout time.Duration) ctrl.Options {
	opts.MapperProvider = apiutil.DynamicRESTMapperProvider(apiutil.DynamicRESTMapperOptions{
		RefreshInterval: interval,
		RequestTimeout:  timeout,
		Logger:          ctrl.Log.WithName("restmapper"),
	})
	return opts
}

func viewOf(mgr ctrl.Manager, _, _ time.Duration) (view, error) {
	mapper, ok := mgr.GetRESTMapper().(*apiutil.DynamicRESTMapper)
	if !ok {
		return nil, fmt.Errorf("the manager's RESTMapper is a %T, which has no status", mgr.GetRESTMapper())
	}
	return &mapperView{mapper: mapper, client: mgr.GetHTTPClient()}, mgr.Add(mapper)
}

func (v *mapperView) Health() health {
	status := v.mapper.Status()
	return health{LastSuccess: status.LastSuccess, FailingSince: status.UnhealthySince, Reason: status.LastError}
}

// Repair resets the mapper, so that the lookup after it reads everything. A lookup that
// succeeds proves nothing: known kinds are served during an outage as well.
func (v *mapperView) Repair(ctx context.Context) error {
	begun := time.Now()
	v.client.CloseIdleConnections() // the server at their end may be dead, or another one
	v.mapper.Reset()
	_, err := v.mapper.RESTMappingWithContext(ctx, corev1.SchemeGroupVersion.WithKind("Namespace").GroupKind())
	status := v.mapper.Status()
	if status.LastSuccess.After(begun) && status.LastError == nil {
		return nil
	}
	return errors.Join(err, status.LastError, ctx.Err())
}
