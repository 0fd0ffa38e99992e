// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"sync/atomic"
	"time"
)

// startGrace is how long after its first read a mapper may remain without Start. A
// manager calls Start only when the manager itself is started.
const startGrace = time.Minute

// unstarted notices that nobody has called Start of a mapper whose options need it. It
// has no goroutine: the mapper checks after each read.
type unstarted struct {
	first  atomic.Pointer[time.Time] // when the first read ended
	warned atomic.Bool
}

// due reports whether the time for Start is over. It returns true only once.
func (u *unstarted) due(now time.Time) bool {
	if u.first.CompareAndSwap(nil, &now) || u.warned.Load() {
		return false
	}
	return now.Sub(*u.first.Load()) >= startGrace && !u.warned.Swap(true)
}

// warnUnstarted logs one line if options need Start and nobody has called it in time.
func (m *DynamicRESTMapper) warnUnstarted() {
	if (m.options.RefreshInterval == 0 && !m.options.WatchAPIs) || m.started.Load() || !m.unstarted.due(time.Now()) {
		return
	}
	m.logger().Info("RefreshInterval and WatchAPIs have no effect, because Start was not called: add the mapper to the manager, mgr.Add(mapper), or engage its cluster in a Fleet",
		"refreshInterval", m.options.RefreshInterval, "watchAPIs", m.options.WatchAPIs)
}
