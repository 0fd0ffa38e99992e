// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Health says how the reads of the server have gone. It is immutable.
type Health struct {
	LastAttempt         time.Time // when the last read ended, or zero
	LastSuccess         time.Time // of a read, whether anything had changed or not
	LastError           error     // of the last read; nil after a success
	ConsecutiveFailures int       // since the last success
	FailingSince        time.Time // the first of them, if it is the server that fails; else zero
	Clock               uint64    // the number of the last reset when the last read began

	firstFailure time.Time // the first of them, whatever fails
	asked        time.Time // when the server was last asked whether it is what fails
}

// succeeded returns the health that follows from a read that ended now.
func (h Health) succeeded(now time.Time) Health {
	return Health{LastAttempt: now, LastSuccess: now, asked: h.asked}
}

// failed returns the health that follows from a read that ended now with err.
func (h Health) failed(now time.Time, err error) Health {
	h.LastAttempt, h.LastError = now, err
	h.ConsecutiveFailures++
	if h.firstFailure.IsZero() {
		h.firstFailure = now
	}
	return h
}

// failing returns the health that follows if it was the server that failed.
func (h Health) failing() Health {
	if h.FailingSince.IsZero() {
		h.FailingSince = h.firstFailure
	}
	return h
}

// heardOf says when the server was last known to answer, or was asked whether it does.
func (h Health) heardOf() time.Time {
	if h.asked.After(h.LastSuccess) {
		return h.asked
	}
	return h.LastSuccess
}

// healthAfter returns the health after a flight that ended with err.
//
// A flight that got nothing out of single versions may have failed because of what
// serves them, an APIService that is down say, while the server is fine. Where the
// error does not tell, the server itself is asked, but not more often than
// patience: until then the failure counts, and nobody is called unhealthy for it.
func (r *Reloader) healthAfter(f *flight, before Health, err error) Health {
	now := time.Now()
	if err == nil {
		return before.succeeded(now)
	}
	then := before.failed(now, err)
	if f.err != nil || certain(err) {
		return then.failing()
	}
	if now.Sub(before.heardOf()) < r.patience {
		return then
	}
	then.asked = now
	if r.client.Ping(f.ctx) == nil {
		return then.succeeded(time.Now())
	}
	return then.failing()
}

// Report says what one flight has done.
type Report struct {
	Reason       string // which part of the server was read
	Duration     time.Duration
	Err          error
	From, To     *snapshot.Snapshot // before and after
	Before, Then Health
}

// failure returns why a flight counts as a failure, or nil. One that has read
// anything does not.
func (f *flight) failure() error {
	if f.err != nil {
		return f.err
	}
	if f.scope.subject().kind == bulk && !certain(f.silent) {
		return nil // the lists were read
	}
	return f.silent
}

// certain says that err is the server's, whatever was asked for: it cannot be
// reached, or does not know who asks.
func certain(err error) bool {
	var failed *discovery.Error
	if errors.As(err, &failed) && failed.Code == http.StatusUnauthorized {
		return true
	}
	var unreachable *net.OpError
	return errors.As(err, &unreachable) && unreachable.Op == "dial"
}

func (k kind) String() string {
	return [...]string{
		everything: "everything", bulk: "bulk", fill: "open versions", group: "group",
		listed: "listed versions", list: "group list", version: "version", refresh: "refresh",
	}[k]
}
