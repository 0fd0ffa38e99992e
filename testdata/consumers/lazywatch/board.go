// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
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
	tripped       state = "Tripped"       // it has failed again and again, and is left alone for a while
)

// entry is what the board shows of a kind.
type entry struct {
	State   state     `json:"state"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since"`
}

// board shows the state of every kind. Sources write to it, and HTTP handlers read.
type board struct {
	log         logr.Logger
	syncTimeout time.Duration

	mu      sync.Mutex
	entries map[string]entry // by kind, or by pattern while it selects none
	listed  time.Time        // when the program first knew what is served
}

func newBoard(log logr.Logger, syncTimeout time.Duration) *board {
	return &board{log: log, syncTimeout: syncTimeout, entries: map[string]entry{}}
}

// set also logs what is worth a line. A kind that is not used is not. It returns the state
// before.
func (b *board) set(kind string, s state, message string) state {
	b.mu.Lock()
	was := b.entries[kind]
	if was.State != s || was.Message != message {
		b.entries[kind] = entry{State: s, Message: message, Since: time.Now()}
	}
	b.mu.Unlock()
	if s == running || s == failed || s == tripped || was.State == running {
		b.log.Info("kind "+string(s), "kind", kind, "message", message)
	}
	return was.State
}

// found takes patterns off the board, because a kind of theirs is there.
func (b *board) found(patterns patterns) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, pattern := range patterns {
		delete(b.entries, pattern)
	}
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
	return maps.Clone(b.entries)
}

// handler answers from the board alone. It asks no cache, so it never waits for one.
func (b *board) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/healthz", healthz.CheckHandler{Checker: healthz.Ping})
	mux.HandleFunc("/readyz", b.serveReady)
	mux.HandleFunc("/kinds", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"kinds": b.list()}) // the reader has gone: nobody to tell
	})
	return mux
}

// serveReady answers a readiness probe, and lists the kinds that are left alone.
func (b *board) serveReady(w http.ResponseWriter, _ *http.Request) {
	if err := b.ready(); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	entries := b.list()
	_, _ = fmt.Fprintln(w, "ok") // if the reader has gone: nobody to tell
	for _, kind := range slices.Sorted(maps.Keys(entries)) {
		if e := entries[kind]; e.State == tripped {
			_, _ = fmt.Fprintf(w, "%s %s: %s\n", kind, e.State, e.Message)
		}
	}
}

// ready fails until the program has looked at every kind that was served at start, but no
// longer than syncTimeout: a kind that fails, that has gone or that came later does not make
// the program unready.
func (b *board) ready() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listed.IsZero() {
		return errors.New("not known yet what is served")
	}
	if time.Since(b.listed) > b.syncTimeout {
		return nil
	}
	for kind, e := range b.entries {
		if e.State == starting && !e.Since.After(b.listed) {
			return fmt.Errorf("%s is starting", kind)
		}
	}
	return nil
}
