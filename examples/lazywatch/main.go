// SPDX-License-Identifier: Apache-2.0

// Command lazywatch mirrors annotated objects between namespaces, whatever their
// kind, and watches only the kinds that are served and used.
//
//	lazywatch [flags]   (-h explains)
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"example.com/consumers/frame"
)

func main() { frame.Main("lazywatch", run) }

func run(ctx context.Context, args []string) error {
	var opts options
	if err := frame.Parse("lazywatch", args, opts.addTo); err != nil {
		return err
	}
	cfg, err := config.GetConfig()
	if err != nil {
		return err
	}
	return runManager(ctx, cfg, opts)
}

type options struct {
	kinds         filter
	maxTargets    int
	manyObjects   int
	maxFailures   int
	rest          time.Duration
	rescan        time.Duration
	probeInterval time.Duration
	syncTimeout   time.Duration
	address       string
}

func (o *options) addTo(flags *flag.FlagSet) {
	o.kinds.exclude = patterns{"Event", "Event.events.k8s.io"} // many, short-lived, and nobody's to copy
	flags.Var(
		&o.kinds.include,
		"include",
		"mirror these kinds only, such as ConfigMap,Widget.v1.example.com,*.example.org (default all)",
	)
	flags.Var(&o.kinds.exclude, "exclude", "do not mirror these kinds, such as Secret,*.v1beta1.example.com")
	flags.IntVar(&o.maxTargets, "max-targets", 20, "mirror one object into so many namespaces at most")
	flags.IntVar(
		&o.manyObjects,
		"many-objects",
		10_000,
		"warn before a kind is watched that has more objects than this, marked or not",
	)
	flags.IntVar(&o.maxFailures, "max-failures", 10, "leave a kind alone that has failed so often in a row")
	flags.DurationVar(&o.rest, "rest", 30*time.Minute, "try a kind that is left alone once after so long")
	flags.DurationVar(
		&o.rescan,
		"rescan",
		30*time.Second,
		"ask what is served this often; where kinds are watched, to be safe only",
	)
	flags.DurationVar(
		&o.probeInterval,
		"probe-interval",
		10*time.Second,
		"ask this often whether a kind without a marked object has one now",
	)
	flags.DurationVar(
		&o.syncTimeout,
		"sync-timeout",
		30*time.Second,
		"a kind that cannot be listed within this time has failed, and is tried again",
	)
	flags.StringVar(&o.address, "bind-address", ":8081", "serve /readyz, /healthz and /kinds here")
}

func runManager(ctx context.Context, cfg *rest.Config, opts options) error {
	cfg.WarningHandler = rest.NoWarnings{} // the program asks for every kind, deprecated ones included
	mgr, err := ctrl.NewManager(cfg, withAPIs(ctrl.Options{
		Metrics: metrics.Options{BindAddress: "0"}, // the one server below is enough for an example
	}, opts.rescan))
	if err != nil {
		return err
	}
	apis, err := apisOf(mgr, opts.rescan)
	if err != nil {
		return err
	}
	board := newBoard(mgr.GetLogger().WithName("board"), opts.syncTimeout)
	source := &source{mgr: mgr, board: board, opts: opts}
	sources := &sources{
		apis:        apis,
		kinds:       opts.kinds,
		board:       board,
		maxFailures: opts.maxFailures,
		rest:        opts.rest,
		run:         source.run,
	}
	err = errors.Join(
		mgr.Add(manager.RunnableFunc(sources.start)),
		mgr.Add(frame.Server(opts.address, board.handler())),
	)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

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
