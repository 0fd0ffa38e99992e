// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"time"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Health says how the reads of the server have gone. It is immutable.
type Health struct {
	LastAttempt         time.Time // when the last read ended, or zero
	LastSuccess         time.Time // of a read, whether anything had changed or not
	LastError           error     // nil after a success
	ConsecutiveFailures int
	FailingSince        time.Time // the first failure after the last success; zero after a success
}

// after returns the health that follows from a read that ended now with err.
func (h Health) after(now time.Time, err error) Health {
	h.LastAttempt, h.LastError = now, err
	if err == nil {
		h.LastSuccess, h.ConsecutiveFailures, h.FailingSince = now, 0, time.Time{}
		return h
	}
	h.ConsecutiveFailures++
	if h.FailingSince.IsZero() {
		h.FailingSince = now
	}
	return h
}

// Report says what one flight has done.
type Report struct {
	Reason       string // which part of the server was read
	Duration     time.Duration
	Err          error
	From, To     *snapshot.Snapshot // before and after
	Before, Then Health
}

// failure returns why a flight counts as a failure to read the server, or nil. A
// single version that the server answers for, with whatever error, says nothing
// against the server itself.
func (f *flight) failure() error {
	if f.err != nil {
		return f.err
	}
	for _, err := range f.failed {
		if !discovery.Unanswered(err) {
			return nil
		}
	}
	for _, err := range f.failed {
		return err
	}
	return nil
}

func (k kind) String() string {
	return [...]string{
		everything: "everything", bulk: "bulk", fill: "open versions", group: "group",
		listed: "listed versions", list: "group list", version: "version", refresh: "refresh",
	}[k]
}
