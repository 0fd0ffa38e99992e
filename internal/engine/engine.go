// SPDX-License-Identifier: Apache-2.0

// Package engine is a RESTMapper without its public face, which is apiutil.DynamicRESTMapper. Packages that build on a
// mapper, such as those below apiutil, get its engine by Of: so the mapper exports nothing for them.
//
//	lookup.go        a lookup that memory does not answer
//	everything.go    all that the server serves
//	follow.go        what clients and caches ask that keep a mapping
//	      ↓
//	engine.go        the parts of a mapper, and how they are joined
//	      ↓
//	polls.go         what callers that wait for kinds share
//	absences.go      lookups that found nothing, for NegativeTTL
//	limits.go        how often clients and caches may read a version
//	errors.go        what is in the tree of an error
package engine

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/follow"
	"github.com/freshmapper/freshmapper/internal/refresh"
	"github.com/freshmapper/freshmapper/internal/reload"
	"github.com/freshmapper/freshmapper/internal/report"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Of returns the engine of a mapper of ours, and nil for any other mapper.
func Of(mapper meta.RESTMapper) *Engine {
	followed := follow.FollowedOf(mapper)
	if followed == nil {
		return nil
	}
	engine, _ := followed.Source.(*Engine)
	return engine
}

// Options are apiutil's DynamicRESTMapperOptions with the defaults filled in.
type Options struct {
	RefreshInterval  time.Duration
	WatchAPIs        bool
	MaxAge           time.Duration
	NegativeTTL      time.Duration
	RequestTimeout   time.Duration
	MaxResponseBytes int64
	UnhealthyAfter   time.Duration
	Logger           logr.Logger
	Metrics          report.Metrics // nil: none

	// DiscoveryFailed returns apiutil's ErrResourceDiscoveryFailed for versions that could not be read.
	DiscoveryFailed func(map[schema.GroupVersion]error) error
}

// Engine has the parts of a mapper. All methods may be called from any goroutine.
type Engine struct {
	Options  Options
	Reloader *reload.Reloader
	Reports  *report.Reporter
	Polls    Polls

	// Followed is what clients and caches know the mapper by.
	Followed *follow.Followed

	// Owner is what the fleet that made the mapper keeps of it, or nil. The fleet sets it before anybody
	// else has the mapper.
	Owner any

	watchers []*refresh.Watcher // none unless WatchAPIs
	absences *absences          // nil without a NegativeTTL
	confirms confirmLimits
	started  atomic.Bool // Start was called, or a fleet runs the mapper
	used     atomic.Bool // there was a use since TakeUse was called
}

// New makes the engine of a mapper for the API server of cfg, which sends its requests through httpClient. It sends no
// request and starts no goroutine.
func New(cfg *rest.Config, httpClient *http.Client, opts Options) (*Engine, error) {
	e := &Engine{Options: opts}
	e.Followed = &follow.Followed{Source: e}
	e.Reports = report.New(report.Options{
		Logger:          opts.Logger,
		Metrics:         opts.Metrics,
		FailureGap:      failureGap(opts),
		RefreshInterval: opts.RefreshInterval,
		WatchAPIs:       opts.WatchAPIs,
		Started:         e.Started,
		Watching:        e.Watching,
		Snapshot:        func() *snapshot.Snapshot { return e.Reloader.Snapshot() },
	})
	e.Followed.ReportSwitch = e.Reports.Followed
	e.Followed.ReportWaiting = e.Reports.WaitingKinds
	e.absences = newAbsences(opts.NegativeTTL)
	client, err := discovery.NewClient(cfg, httpClient, discovery.Options{
		RequestTimeout:   opts.RequestTimeout,
		MaxResponseBytes: opts.MaxResponseBytes,
		Requested:        e.Reports.Requested,
		Failed:           func() { e.Reloader.NoteFailure() },
	})
	if err != nil {
		return nil, fmt.Errorf("no RESTMapper for this rest.Config: %w", err)
	}
	e.Reloader = reload.New(client, reload.Options{MaxAge: opts.MaxAge, Reports: e.Reports})
	if opts.WatchAPIs {
		watches, err := client.WatchClient(cfg, httpClient)
		if err != nil {
			return nil, fmt.Errorf("no watch of API changes for this rest.Config: %w", err)
		}
		e.watchers = refresh.NewWatchers(watches, e.Reports.Log, e.Reports.Watched)
	}
	return e, nil
}

// failureGap returns how far apart two failures may be that count as following each other: UnhealthyAfter, or what is
// longer than any pause of the mapper's own between two refreshes that fail, with the requests of one.
func failureGap(opts Options) time.Duration {
	pause := max(0, 2*opts.MaxAge) // after a refresh by MaxAge that has failed
	if opts.RefreshInterval > 0 || opts.WatchAPIs {
		pause = max(pause, refresh.MaxBackoff)
	}
	return max(opts.UnhealthyAfter, pause+2*opts.RequestTimeout)
}

// NoteUse is called by every lookup. It starts a refresh if one is due by MaxAge, and does not wait for it.
func (e *Engine) NoteUse() {
	if !e.used.Load() { // so that only the first use since TakeUse costs a write
		e.used.Store(true)
	}
	if e.Reloader.Due() {
		e.Reloader.RefreshIfDue()
	}
}

// TakeUse reports whether the mapper was used since it was called last.
func (e *Engine) TakeUse() bool { return e.used.Swap(false) }

// Watching reports whether all watches for API changes are open.
func (e *Engine) Watching() bool {
	isClosed := func(w *refresh.Watcher) bool { return !w.Watching() }
	return len(e.watchers) > 0 && !slices.ContainsFunc(e.watchers, isClosed)
}

// Started reports whether somebody runs the mapper, or has run it.
func (e *Engine) Started() bool { return e.started.Load() }

// SetStarted notes that somebody runs the mapper, and reports whether somebody did before.
func (e *Engine) SetStarted() (before bool) { return e.started.Swap(true) }

// Run refreshes by RefreshInterval and WatchAPIs until ctx ends. It may be called again once it has returned.
func (e *Engine) Run(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	// A deadline would cancel no read. So the refreshes have a context that is canceled when ctx ends, however it does.
	canceled, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	options := refresh.Options{Interval: e.Options.RefreshInterval, Watchers: e.watchers}
	refresh.Run(canceled, options, e.Reloader.Refresh)
}

// NextPoll returns when a caller that waits, and has asked the server at a time, asks again: after a pause of
// PollBackoff. If that is as long as it gets, and all watches for API changes are open, it is after twice that.
func (e *Engine) NextPoll(pause time.Duration, asked time.Time) <-chan time.Time {
	if pause >= MaxPollPause && e.Watching() {
		pause *= 2
	}
	return time.After(pause - time.Since(asked))
}
