// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"errors"
	"time"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/refresh"
	"github.com/freshmapper/freshmapper/internal/reload"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// health is how the reads of the server have gone: those of the document, and the live
// ones. Only the success of a read of the same sort ends a failure. It is immutable.
type health struct {
	lastAttempt, lastSuccess time.Time // when the last read ended, and the last one that succeeded
	document, live           reads
}

// reads is how the reads of one sort have gone.
type reads struct {
	err                      error     // of the last read; nil after a success
	failures                 int       // in a row
	failingSince, lastFailed time.Time // the first and the last failure of that row

	succeeded snapshot.Tick // the greatest tick of a read that succeeded
}

// after returns the health after a read that ended now. A failure is out of date if a
// read that began later has succeeded. Two failures that are further apart than rowFor are
// not of one row: nobody knows what was in between.
func (h reads) after(now time.Time, o snapshot.Outcome, rowFor time.Duration) reads {
	switch {
	case o.Err == nil:
		return reads{succeeded: max(o.Tick, h.succeeded)}
	case o.Tick < h.succeeded:
		return h
	}
	if h.failures == 0 || now.Sub(h.lastFailed) > rowFor {
		h.failures, h.failingSince = 0, now
	}
	h.err, h.lastFailed = o.Err, now
	h.failures++
	return h
}

func (h health) after(now time.Time, part snapshot.Part, o snapshot.Outcome, rowFor time.Duration) health {
	h.lastAttempt = now
	if o.Err == nil {
		h.lastSuccess = now
	}
	switch {
	case errors.Is(o.Err, discovery.ErrNotSent): // the program's own rate limiter
	case part == snapshot.PartDocument:
		h.document = h.document.after(now, o, rowFor)
	default:
		h.live = h.live.after(now, o, rowFor)
	}
	return h
}

// rowFor returns UnhealthyAfter, or what is longer than any pause of the mapper's own between two
// refreshes that fail, with the requests of one.
func (m *DynamicRESTMapper) rowFor() time.Duration {
	pause := 2 * m.options.MaxAge // as in the reloader's age
	if m.options.RefreshInterval > 0 || m.options.WatchAPIs {
		pause = max(pause, refresh.MostBackoff)
	}
	return max(m.options.UnhealthyAfter, pause+2*m.options.RequestTimeout)
}

// report is one read, and what it means for the health.
type report struct {
	reload.Report
	before, then health
}

// record keeps how a read has ended, and reports it. Several reads may end at once.
func (m *DynamicRESTMapper) record(r reload.Report) {
	for {
		before := m.health.Load()
		then := before.after(time.Now(), r.Read.Part, r.Outcome, m.rowFor())
		if !m.health.CompareAndSwap(before, &then) {
			continue
		}
		r.Read.Group, r.Read.Version = shortName(r.Read.Group), shortName(r.Read.Version)
		if m.reports.Waiting() >= mostSnapshots {
			r.After = nil
		}
		m.reports.Add(func() { m.report(report{r, *before, then}) })
		return
	}
}

// mostSnapshots is about how many of the reports that wait hold a snapshot. A slow receiver
// gets the changes of the others merged.
const mostSnapshots = 8
