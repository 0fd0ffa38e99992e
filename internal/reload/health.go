// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"errors"
	"net"
	"time"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Health is how the reads of the server have gone: those of the document, and the live
// ones. Only the success of a read of the same sort ends a failure. It is immutable.
type Health struct {
	LastAttempt, LastSuccess time.Time // when the last read ended, and the last one that succeeded
	Document, Live           Reads
}

// Reads is how the reads of one sort have gone.
type Reads struct {
	Err                      error     // of the last read; nil after a success
	Failures                 int       // in a row
	FailingSince, LastFailed time.Time // the first and the last failure of that row; LastFailed is also kept after a success

	succeeded snapshot.Tick // the greatest tick of a read that succeeded
}

// after returns the health after a read that ended now. A failure is out of date if a
// read that began later has succeeded. Two failures that are further apart than rowFor are
// not of one row: nobody knows what was in between.
func (h Reads) after(now time.Time, o snapshot.Outcome, rowFor time.Duration) Reads {
	switch {
	case o.Err == nil:
		return Reads{LastFailed: h.LastFailed, succeeded: max(o.Tick, h.succeeded)}
	case o.Tick < h.succeeded:
		return h
	}
	if h.Failures == 0 || now.Sub(h.LastFailed) > rowFor {
		h.Failures, h.FailingSince = 0, now
	}
	h.Err, h.LastFailed = o.Err, now
	h.Failures++
	return h
}

func (h Health) after(now time.Time, part snapshot.Part, o snapshot.Outcome, rowFor time.Duration) Health {
	h.LastAttempt = now
	if o.Err == nil {
		h.LastSuccess = now
	}
	switch {
	case errors.Is(o.Err, discovery.ErrNotSent): // the program's own rate limiter
	case part == snapshot.PartDocument:
		h.Document = h.Document.after(now, o, rowFor)
	default:
		h.Live = h.Live.after(now, o, rowFor)
		if unreachable(o.Err) { // whatever is read: the server itself is away
			h.Document.LastFailed = now
		}
	}
	return h
}

// rowFor returns what is longer than any pause between two refreshes that fail.
func (r *Reloader) rowFor() time.Duration { return max(10*time.Minute, 3*r.options.MaxAge) }

// unreachable reports whether err means that there is no connection to the server.
func unreachable(err error) bool {
	var failed *net.OpError
	return errors.As(err, &failed) && failed.Op == "dial"
}

// record keeps how a flight has ended, and reports it.
func (r *Reloader) record(f *flight, took time.Duration) {
	for {
		before := r.health.Load()
		then := before.after(time.Now(), f.read.Part, f.outcome, r.rowFor())
		if !r.health.CompareAndSwap(before, &then) {
			continue
		}
		if r.options.Report != nil {
			report := Report{Read: f.read, Duration: took, Err: f.outcome.Err, Before: *before, Then: then}
			if r.reports.Waiting() < mostSnapshots {
				report.To = r.Snapshot()
			}
			r.reports.Add(func() { r.options.Report(report) })
		}
		return
	}
}

// Report describes one read.
type Report struct {
	Read         snapshot.Read
	Duration     time.Duration
	Err          error
	To           *snapshot.Snapshot // after the read; nil if many reports waited
	Before, Then Health
}

// mostSnapshots is about how many of the reports that wait hold a snapshot. A slow receiver
// gets the changes of the others merged.
const mostSnapshots = 8
