// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"sync/atomic"
	"time"
)

// startGrace is how long after its first read a mapper should have been started.
// A manager starts what was added to it once it is itself started.
const startGrace = time.Minute

// unstarted notices that nobody calls Start of a mapper which was asked to refresh
// in the background. It has no goroutine for that: it looks after each read.
type unstarted struct {
	first  atomic.Pointer[time.Time] // when the first read ended
	warned atomic.Bool
}

// due reports, once, that the time for Start is over.
func (u *unstarted) due(now time.Time) bool {
	if u.first.CompareAndSwap(nil, &now) || u.warned.Load() {
		return false
	}
	return now.Sub(*u.first.Load()) >= startGrace && !u.warned.Swap(true)
}

// warnUnstarted logs one line if options were given that only Start makes work.
func (m *DynamicRESTMapper) warnUnstarted() {
	if (m.options.RefreshInterval == 0 && !m.options.WatchAPIs) || m.started.Load() || !m.unstarted.due(time.Now()) {
		return
	}
	m.logger().Info("RefreshInterval and WatchAPIs have no effect, because Start was not called: add the mapper to the manager, mgr.Add(mapper), or engage its cluster in a Fleet",
		"refreshInterval", m.options.RefreshInterval, "watchAPIs", m.options.WatchAPIs)
}
