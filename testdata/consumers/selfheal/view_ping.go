// SPDX-License-Identifier: Apache-2.0

//go:build stock

package main

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// pingView is the view on stock controller-runtime: it pings the server. It does not use
// the mapper, which has no health and cannot be reset.
type pingView struct {
	client            *discovery.DiscoveryClient
	mapper            meta.RESTMapper
	interval, timeout time.Duration

	mu     sync.Mutex
	health health
}

func withView(opts ctrl.Options, _, _ time.Duration) ctrl.Options { return opts }

func viewOf(mgr ctrl.Manager, interval, timeout time.Duration) (view, error) {
	client, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	v := &pingView{client: client, mapper: mgr.GetRESTMapper(), interval: interval, timeout: timeout}
	return v, mgr.Add(manager.RunnableFunc(v.start))
}

func (v *pingView) start(ctx context.Context) error {
	for ctx.Err() == nil {
		_ = v.ping(ctx) // Health has the error
		pause(ctx, v.interval)
	}
	return nil
}

func (v *pingView) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	begun := time.Now()
	err := v.client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()

	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case err == nil:
		v.health = health{LastSuccess: time.Now()}
	case v.health.FailingSince.IsZero():
		v.health.FailingSince, v.health.Reason = begun, err
	default:
		v.health.Reason = err
	}
	return err
}

func (v *pingView) Health() health {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.health
}

func (v *pingView) Repair(ctx context.Context) error {
	meta.MaybeResetRESTMapper(v.mapper) // does nothing on stock
	return v.ping(ctx)
}
