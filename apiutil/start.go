// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"context"
	"errors"

	"github.com/freshmapper/freshmapper/internal/refresh"
)

// Start refreshes the mapper in the background, as RefreshInterval and WatchAPIs
// say, until ctx ends. It blocks; nothing that it started is left when it
// returns. It has the shape of controller-runtime's manager.Runnable:
// mgr.Add(mapper). With neither option it only waits. It returns an error if it
// was called before.
func (m *DynamicRESTMapper) Start(ctx context.Context) error {
	if m.started.Swap(true) {
		return errors.New("the RESTMapper was started before: Start may be called once")
	}
	m.run(ctx)
	return nil
}

// run refreshes until ctx ends. It may be called again once it has returned.
func (m *DynamicRESTMapper) run(ctx context.Context) {
	options := refresh.Options{Interval: m.options.RefreshInterval, Watchers: m.watchers}
	m.running.Store(options.Interval > 0 || len(options.Watchers) > 0)
	defer m.running.Store(false)
	refresh.Run(ctx, options, m.reloader.Refresh)
}

// NeedLeaderElection returns false: Start runs on every replica, each has a mapper of its own.
func (m *DynamicRESTMapper) NeedLeaderElection() bool { return false }

// refreshes reports whether Start keeps the mapper up to date now, at least as often as
// who waits for kinds would ask. A watch that is not open does not.
func (m *DynamicRESTMapper) refreshes() bool {
	interval := m.options.RefreshInterval
	return m.running.Load() && (interval > 0 && interval <= mostPoll || watching(m.watchers))
}
