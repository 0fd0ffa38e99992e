// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"errors"
	"net"
	"time"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Health is how the reads of the server have gone. It is immutable.
type Health struct {
	LastAttempt         time.Time // when the last read ended, or zero
	LastSuccess         time.Time // when the last successful read ended, whether it brought changes or not
	LastError           error     // of the last read; nil after a success
	ConsecutiveFailures int       // since the last success

	// FailingSince is the time of the server's first failure after it last answered
	// anything. FailedLast is the time of its last failure, and FailedWith the error. The
	// failure of a group, with whatever error, is no failure of the server.
	FailingSince, FailedLast time.Time
	FailedWith               error

	failed    snapshot.Tick // of the read in which the server last failed
	succeeded snapshot.Tick // the greatest tick of a read that succeeded
}

// after returns the health after a read that ended now. A failure is out of date if a
// read that began later has succeeded.
func (h Health) after(now time.Time, r snapshot.Read, o snapshot.Outcome) Health {
	if o.Err == nil {
		return Health{LastAttempt: now, LastSuccess: now, succeeded: max(o.Tick, h.succeeded)}
	}
	if o.Tick < h.succeeded {
		h.LastAttempt = now
		return h
	}
	h.LastAttempt, h.LastError = now, o.Err
	h.ConsecutiveFailures++
	if ofServer(r, o.Err) {
		h.FailedLast, h.FailedWith, h.failed = now, o.Err, o.Tick
		if h.FailingSince.IsZero() {
			h.FailingSince = now
		}
	}
	return h
}

// ofServer reports whether the error means that the server itself has failed, and not
// only a group.
func ofServer(r snapshot.Read, err error) bool { return r.Part.Document() || unreachable(err) }

// unreachable reports whether err means that there is no connection to the server.
func unreachable(err error) bool {
	var failed *net.OpError
	return errors.As(err, &failed) && failed.Op == "dial"
}

// doubtful reports whether reads fail, and for at least patience no read has shown
// whether the server itself works or fails: then it may be the server that fails, or only
// a group.
func (h Health) doubtful(now time.Time, patience time.Duration) bool {
	heard := h.LastSuccess
	if h.FailedLast.After(heard) {
		heard = h.FailedLast
	}
	return h.LastError != nil && now.After(heard) && now.Sub(heard) >= patience
}

// record keeps how a flight has ended. If the server itself may fail, it starts a read of
// /api and does not wait for it.
func (r *Reloader) record(f *flight, from *snapshot.Snapshot, took time.Duration) {
	now := time.Now()
	r.doubts.note(now, f.read, served(from, f.read), f.outcome.Err)
	for {
		before := r.health.Load()
		then := before.after(now, f.read, f.outcome)
		if !r.health.CompareAndSwap(before, &then) {
			continue
		}
		if r.options.Report != nil {
			report := Report{
				Read: f.read, Reason: f.read.Part.String(), Duration: took, Err: f.outcome.Err,
				From: from, To: f.published, Before: *before, Then: then,
			}
			r.reports.Add(func() { r.options.Report(report) })
		}
		if from.Read() && then.doubtful(now, r.options.UnhealthyAfter/4) {
			r.flights.join(snapshot.Read{Part: snapshot.PartCore})
		}
		return
	}
}

// recordRefresh keeps that a refresh has succeeded, even if it could not read single
// versions.
func (r *Reloader) recordRefresh() {
	for {
		before := r.health.Load()
		then := before.after(time.Now(), snapshot.Read{}, snapshot.Outcome{})
		if r.health.CompareAndSwap(before, &then) {
			return
		}
	}
}

// Report describes one read.
type Report struct {
	Read         snapshot.Read
	Reason       string // which part of the server was read
	Duration     time.Duration
	Err          error
	From, To     *snapshot.Snapshot // before and after
	Before, Then Health
}
