// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"time"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Health is how the reads of the server have gone: those of the document, and the live ones. Only the success of a
// read of the same sort ends a failure. It is immutable.
type Health struct {
	LastAttempt time.Time // when the last read ended
	LastSuccess time.Time // when the last read ended that succeeded
	Document    Reads
	Live        Reads
}

// Reads is how the reads of one sort have gone.
type Reads struct {
	Err          error     // of the last read; nil after a success
	Failures     int       // that have followed each other without a success
	FailingSince time.Time // the first of these
	LastFailed   time.Time // the last of these

	succeeded snapshot.Seq // the highest sequence number of a read that has succeeded
}

// after returns what is known of the reads after one that ended now. A failure is out of date if a read that began
// later has succeeded. Two failures further apart than maxGap do not follow each other, because nobody knows what was
// in between.
func (r Reads) after(now time.Time, o snapshot.Outcome, maxGap time.Duration) Reads {
	if o.Err == nil {
		return Reads{succeeded: max(o.Seq, r.succeeded)}
	}
	if o.Seq < r.succeeded {
		return r
	}
	if r.Failures == 0 || now.Sub(r.LastFailed) > maxGap {
		r.Failures = 0
		r.FailingSince = now
	}
	r.Err = o.Err
	r.LastFailed = now
	r.Failures++
	return r
}

// after returns the health after a read of a part of the server that ended now.
func (h Health) after(now time.Time, part snapshot.Part, o snapshot.Outcome, maxGap time.Duration) Health {
	h.LastAttempt = now
	if o.Err == nil {
		h.LastSuccess = now
	}
	switch {
	case errors.Is(o.Err, discovery.ErrNotSent):
		// The program's own rate limiter says nothing about the server.
	case part == snapshot.PartDocument:
		h.Document = h.Document.after(now, o, maxGap)
	default:
		h.Live = h.Live.after(now, o, maxGap)
	}
	return h
}
