// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"time"

	"github.com/freshmapper/freshmapper/apiutil"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
)

var provider = apiutil.DynamicRESTMapperProvider(apiutil.DynamicRESTMapperOptions{
	RefreshInterval: 10 * time.Minute,
	WatchAPIs:       true,
	Logger:          ctrl.Log.WithName("restmapper"),
})

// more uses what only this mapper has, started and stopped by the manager.
func more(mgr ctrl.Manager) error {
	mapper, ok := mgr.GetRESTMapper().(*apiutil.DynamicRESTMapper)
	if !ok {
		return errors.New("the manager has another mapper")
	}
	if err := errors.Join(mgr.Add(mapper), mgr.AddHealthzCheck("restmapper", mapper.Healthz)); err != nil {
		return err
	}
	meta.MaybeResetRESTMapper(mapper)
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	return mgr.Start(ctx)
}
