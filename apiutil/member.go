// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
)

// member is what a fleet keeps in a mapper that it made. The fleet's mu guards what is not
// atomic.
type member struct {
	fleet *Fleet
	name  atomic.Pointer[string] // the key that the log names; nil before there is one
	used  atomic.Bool            // there was a lookup since the fleet last looked
	last  time.Time              // when it was used
	turn  uint64                 // orders what was used at the same time

	keys    map[string]*engagement // that have this mapper, nil: not engaged; it refreshes while there is one
	stop    context.CancelFunc     // ends the run; nil: there is none
	stopped chan struct{}          // closed when the latest run has ended
}

// engagement lasts until its context ends.
type engagement struct{ forget func() bool }

// use notes a lookup. Only the first since the fleet last looked costs a write.
func (mb *member) use() {
	if mb != nil && !mb.used.Load() {
		mb.used.Store(true)
	}
}

// logger returns the Logger of the options. In a fleet it names the cluster.
func (m *DynamicRESTMapper) logger() logr.Logger { return m.named(m.options.Logger) }

func (m *DynamicRESTMapper) named(logger logr.Logger) logr.Logger {
	if m.member == nil || m.member.name.Load() == nil {
		return logger
	}
	return logger.WithValues("cluster", *m.member.name.Load())
}
