// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
)

var errRepairing = errors.New("a repair is running already")

// view is the source of what the program knows of the API server. There are two
// implementations: the RESTMapper of the fork; and, for comparison, with the build tag
// stock, a ping beside a mapper that reports nothing about itself.
type view interface {
	// Health returns how reads have gone. It sends no request: the view reads the server
	// by itself.
	Health() health
	// Repair reads the server again, and returns nil if that succeeds.
	Repair(ctx context.Context) error
}

// health is how reads of the server have gone. The zero value means that there has been
// no read yet.
type health struct {
	LastSuccess  time.Time
	FailingSince time.Time // zero while reads succeed
	Reason       error     // nil while they do
}

// watchdog watches a view. All repairs run in the goroutine of start, one at a time.
// repairing reports whether a repair runs or is about to run; only the caller that sets
// it may ask for a repair.
type watchdog struct {
	view      view
	opts      options
	log       logr.Logger
	repairing atomic.Bool
	asked     chan struct{} // one slot: while repairing is set, nobody asks again

	mu     sync.Mutex
	status status
}

func newWatchdog(v view, opts options, log logr.Logger) *watchdog {
	s, err := load(opts.status)
	if err != nil {
		log.Error(err, "beginning with a new status")
	}
	return &watchdog{view: v, opts: opts, log: log, asked: make(chan struct{}, 1), status: s}
}

// start blocks until ctx ends.
func (w *watchdog) start(ctx context.Context) error {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-w.asked:
			w.repair(ctx)
		case <-time.After(w.opts.check):
		}
		now := w.look()
		// After giving up, wait for a restart, for a request to repair, or for the server.
		if now.State == unhealthy && w.askRepair() == nil {
			w.log.Info("unhealthy, repairing", "since", now.Since, "reason", now.Reason)
		}
	}
	return nil
}

// askRepair asks for a repair and returns at once. It returns errRepairing if one runs
// already.
func (w *watchdog) askRepair() error {
	if !w.repairing.CompareAndSwap(false, true) {
		return errRepairing
	}
	w.asked <- struct{}{}
	return nil
}

// repair tries until it succeeds, or until its deadline or the end of ctx.
func (w *watchdog) repair(ctx context.Context) {
	defer w.repairing.Store(false)
	limited, cancel := context.WithTimeout(ctx, w.opts.deadline)
	defer cancel()
	backoff := wait.Backoff{Duration: w.opts.backoff, Factor: 2, Jitter: 0.1, Steps: 30, Cap: w.opts.most}
	for limited.Err() == nil {
		err := w.attempt(limited)
		if err == nil {
			w.log.Info("repaired")
			return
		}
		w.log.Error(err, "repair failed")
		pause(limited, backoff.Step())
	}
	if ctx.Err() == nil {
		w.log.Info("gave up", "deadline", w.opts.deadline.String())
		w.update(func(s status) status { s.State = gaveUp; return s })
	}
}

func (w *watchdog) attempt(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.opts.attempt)
	defer cancel()
	err := w.view.Repair(ctx)
	w.update(func(s status) status { return s.attempted(err, time.Now()) })
	w.look()
	return err
}

// look updates the status with the health of the view.
func (w *watchdog) look() status {
	h := w.view.Health()
	return w.update(func(s status) status { return s.observed(h, w.opts.tolerate, time.Now()) })
}

// update changes the status, and saves it if that made a difference. Only the goroutine
// of start calls it, so files are written in order.
func (w *watchdog) update(change func(status) status) status {
	before := w.now()
	after := change(before)
	if after == before {
		return after
	}
	w.mu.Lock()
	w.status = after
	w.mu.Unlock()
	if err := save(w.opts.status, after); err != nil {
		w.log.Error(err, "the status will not survive a restart")
	}
	return after
}

func (w *watchdog) now() status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// ready is a healthz.Checker. It fails while the program cannot rely on the view.
func (w *watchdog) ready(*http.Request) error {
	if s := w.now(); s.bad() || s.State == unknown {
		return fmt.Errorf("%s since %s: %s", s.State, s.Since.UTC().Format(time.RFC3339), s.Reason)
	}
	return nil
}

// alive is a healthz.Checker. It fails when only a restart may help.
func (w *watchdog) alive(*http.Request) error {
	if s := w.now(); s.State == gaveUp {
		return fmt.Errorf("gave up after %d attempts, unhealthy since %s: %s", s.Attempts, s.Since.UTC().Format(time.RFC3339), s.Reason)
	}
	return nil
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// state is the state of the view.
type state string

const (
	unknown   state = "Unknown"   // the server has not been read yet
	healthy   state = "Healthy"   // the last read succeeded
	failing   state = "Failing"   // reads fail, but not for long enough to count
	unhealthy state = "Unhealthy" // reads have failed for longer than is tolerated
	gaveUp    state = "GaveUp"    // the same, and a repair did not succeed before its deadline
)

// status is kept in a file, because it must be there when the server is not.
type status struct {
	State  state     `json:"state"`
	Since  time.Time `json:"since"` // when the state began; a failure may have begun in an earlier process
	Reason string    `json:"reason,omitempty"`

	Attempts    int       `json:"attempts"` // to repair, ever
	LastAttempt time.Time `json:"lastAttempt,omitzero"`
	LastSuccess time.Time `json:"lastSuccess,omitzero"` // of an attempt that succeeded
	LastError   string    `json:"lastError,omitempty"`  // of the last attempt, if that failed
}

func (s status) bad() bool { return s.State == unhealthy || s.State == gaveUp }

// observed returns s as it is after a look at the view.
func (s status) observed(h health, tolerate time.Duration, now time.Time) status {
	switch {
	case h.LastSuccess.IsZero() && h.FailingSince.IsZero():
		return s // nothing new: the status from the file stands
	case h.FailingSince.IsZero():
		if s.State != healthy {
			s.State, s.Since, s.Reason = healthy, now, ""
		}
		return s
	}
	s.Reason = h.Reason.Error()
	if s.bad() {
		return s // Since is known already
	}
	s.State, s.Since = failing, h.FailingSince
	if now.Sub(h.FailingSince) > tolerate {
		s.State = unhealthy
	}
	return s
}

// attempted returns s as it is after an attempt to repair.
func (s status) attempted(err error, now time.Time) status {
	s.Attempts++
	s.LastAttempt, s.LastError = now, ""
	if err == nil {
		s.LastSuccess = now
		return s
	}
	s.LastError = err.Error()
	return s
}

// load reads a status. If it can't read one, it returns a new status, and an error
// unless there is no file.
func load(file string) (status, error) {
	anew := status{State: unknown, Since: time.Now()}
	written, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return anew, nil
	}
	if err != nil {
		return anew, err
	}
	var s status
	if err := json.Unmarshal(written, &s); err != nil {
		return anew, fmt.Errorf("%s is not a status: %w", file, err)
	}
	switch s.State {
	case gaveUp:
		s.State = unhealthy // a new process tries again
	case unhealthy:
	default:
		s.State, s.Since, s.Reason = unknown, anew.Since, ""
	}
	return s, nil
}

// save writes a status. A reader finds the old one or the new one, even after a crash.
func save(file string, s status) (err error) {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(append(text, '\n'))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}
