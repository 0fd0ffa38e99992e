// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
)

// member is what a fleet keeps in a mapper that it made.
type member struct {
	cluster atomic.Pointer[string] // the cluster that the log names; nil before the first

	mu      *sync.Mutex        // the fleet's own; guards what follows
	engaged int                // clusters that have this mapper now
	stop    context.CancelFunc // ends the latest run
	stopped chan struct{}      // closed when the latest run has ended; nil before the first
}

// logger returns the Logger of the options. In a fleet it names the cluster, once that
// is known.
func (m *DynamicRESTMapper) logger() logr.Logger { return m.named(m.options.Logger) }

func (m *DynamicRESTMapper) named(logger logr.Logger) logr.Logger {
	if m.member == nil || m.member.cluster.Load() == nil {
		return logger
	}
	return logger.WithValues("cluster", *m.member.cluster.Load())
}
