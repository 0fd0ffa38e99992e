// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// state is what the program does with a kind.
type state string

const (
	notServed     state = "NotServed"     // the server has no such kind; the program waits for it
	starting      state = "Starting"      // it is served, and the program looks at it
	notMirrorable state = "NotMirrorable" // it cannot be copied between namespaces
	unused        state = "Unused"        // no object of it is marked, so none is watched
	running       state = "Running"       // it is watched, and its objects are mirrored
	failed        state = "Failed"        // it is tried again with backoff
)

// entry is what the board shows of a kind.
type entry struct {
	State   state     `json:"state"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since"`
}

// board shows the state of every kind. Sources write to it, and HTTP handlers read.
type board struct {
	log      logr.Logger
	patience time.Duration

	mu      sync.Mutex
	entries map[schema.GroupKind]entry
	listed  time.Time // when the program first knew what is served
}

func newBoard(log logr.Logger, patience time.Duration) *board {
	return &board{log: log, patience: patience, entries: map[schema.GroupKind]entry{}}
}

// set also logs what is worth a line. A kind that is not used is not.
func (b *board) set(kind schema.GroupKind, s state, message string) {
	was := b.swap(kind, entry{State: s, Message: message, Since: time.Now()})
	if s == running || s == failed || was.State == running {
		b.log.Info("kind "+string(s), "kind", kind.String(), "message", message)
	}
}

// swap replaces an entry, unless it is the same already, and returns the old one.
func (b *board) swap(kind schema.GroupKind, e entry) (was entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was = b.entries[kind]
	if was.State != e.State || was.Message != e.Message {
		b.entries[kind] = e
	}
	return was
}

// setListed notes that every kind that is served at start is on the board.
func (b *board) setListed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listed.IsZero() {
		b.listed = time.Now()
	}
}

// list returns a copy.
func (b *board) list() map[string]entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	entries := make(map[string]entry, len(b.entries))
	for kind, e := range b.entries {
		entries[kind.String()] = e
	}
	return entries
}

// ready is a healthz.Checker. It fails until the program has looked at every kind that
// was served at start, but no longer than patience: a kind that fails, that has gone or
// that came later does not make the program unready.
func (b *board) ready(*http.Request) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listed.IsZero() {
		return errors.New("not known yet what is served")
	}
	if time.Since(b.listed) > b.patience {
		return nil
	}
	for kind, e := range b.entries {
		if e.State == starting && !e.Since.After(b.listed) {
			return fmt.Errorf("%s is starting", kind)
		}
	}
	return nil
}
