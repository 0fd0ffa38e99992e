// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"context"
	"errors"
	"time"

	"github.com/freshmapper/freshmapper/internal/refresh"
)

// Start refreshes the mapper by RefreshInterval and WatchAPIs until ctx ends. With
// neither option it only waits. It blocks until then. A read of a version that hangs may go
// on for up to RequestTimeout, and a transport that ignores the context of its requests for
// longer. Start has the shape of controller-runtime's manager.Runnable: mgr.Add(mapper). It
// returns an error if it was called before.
func (m *DynamicRESTMapper) Start(ctx context.Context) error {
	if m.started.Swap(true) {
		return errors.New("the RESTMapper was started before: Start may be called once")
	}
	m.run(ctx)
	return nil
}

// run refreshes until ctx ends. It may be called again once it has returned.
func (m *DynamicRESTMapper) run(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	until := ctx
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // a deadline cancels no read, and this does
	defer cancel()
	defer context.AfterFunc(until, cancel)()
	refresh.Run(ctx, refresh.Options{Interval: m.options.RefreshInterval, Watchers: m.watchers}, m.reloader.Refresh)
}

// NeedLeaderElection returns false: Start runs on every replica, because each has its
// own mapper.
func (m *DynamicRESTMapper) NeedLeaderElection() bool { return false }

// startGrace is how long a mapper may remain without Start. A manager calls Start only when
// the manager itself is started.
const startGrace = time.Minute

// warnUnstarted logs one line if options need Start and nobody has called it in time. Reports
// call it: such a mapper has no goroutine that could notice that.
func (m *DynamicRESTMapper) warnUnstarted() {
	if m.firstRead.IsZero() {
		m.firstRead = time.Now()
	}
	needed := m.options.RefreshInterval > 0 || m.options.WatchAPIs
	if !needed || m.started.Load() || m.warned || time.Since(m.firstRead) < startGrace {
		return
	}
	m.warned = true
	m.logger().Info("RefreshInterval and WatchAPIs have no effect, because Start was not called: add the mapper to the manager, mgr.Add(mapper), or engage its cluster in a Fleet",
		"refreshInterval", m.options.RefreshInterval, "watchAPIs", m.options.WatchAPIs)
}
