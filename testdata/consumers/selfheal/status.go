// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

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
