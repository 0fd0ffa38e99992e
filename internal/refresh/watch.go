// SPDX-License-Identifier: Apache-2.0

package refresh

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/freshmapper/freshmapper/internal/discovery"
)

// watchedResources lists the resources whose objects change with the served API.
func watchedResources() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{
		{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
		{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"},
	}
}

const (
	// minTimeout is the shortest time for which the server is asked to keep a watch open. The longest is twice that;
	// the time is chosen at random. It bounds how long a dead connection remains unnoticed.
	minTimeout = 5 * time.Minute
	// steadyAfter is how long a watch must have been open to count as working.
	steadyAfter = 30 * time.Second
	// tolerance is how much shorter than asked a watch may be, by rounding and latency.
	tolerance = 2 * time.Second
	// maxShort is how many watches in a row may end before they are steady, until that is logged, and the mapper saves
	// requests.
	maxShort = 5
)

// newPauses returns the pauses between one watch and the next. They grow from half a second to 8 seconds, and each is
// lengthened at random, up to four times. The jitter is large because all replicas ask a server that is up again, and a
// watch that has lost its place costs a list, a watch and a refresh.
func newPauses() wait.Backoff {
	return wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 3, Steps: 30, Cap: 8 * time.Second}
}

// Watcher fires the trigger whenever an object of one resource is created, changed or deleted. It keeps no part of the
// objects.
type Watcher struct {
	client          *discovery.Client
	resource        schema.GroupVersionResource
	log             func(func(logr.Logger))
	watchingChanged func() // is called when watching may have changed

	watching atomic.Bool // a watch is open
}

// NewWatchers makes a watcher for each of the resources whose objects change with the served API. When something goes
// wrong, the watchers give log a function that writes a line. log calls it, now or later; the Logger may be slow and
// may panic. They call watchingChanged when they begin, and when a watch opens or ends.
func NewWatchers(client *discovery.Client, log func(write func(logr.Logger)), watchingChanged func()) []*Watcher {
	var watchers []*Watcher
	for _, resource := range watchedResources() {
		w := &Watcher{client: client, resource: resource, log: log, watchingChanged: watchingChanged}
		watchers = append(watchers, w)
	}
	return watchers
}

// Watching reports whether a watch is open now.
func (w *Watcher) Watching() bool { return w.watching.Load() }

func (w *Watcher) setWatching(open bool) {
	w.watching.Store(open)
	w.watchingChanged()
}

// run watches until ctx ends, one watch after the other. Each begins where the last one ended. There is a pause between
// them unless the watch ended when it was asked to: a server that is shut down ends the watches of all replicas.
func (w *Watcher) run(ctx context.Context, t *trigger) {
	w.watchingChanged()
	recheck := time.AfterFunc(lastRecheck, t.fire)
	recheck.Stop()
	defer recheck.Stop()
	s := &series{Watcher: w, trigger: t, recheck: recheck, pauses: newPauses()}
	for ctx.Err() == nil {
		onTime := s.watch(ctx)
		if !onTime {
			discovery.Sleep(ctx, s.pauses.Step())
		}
	}
}

// series is the watches of a watcher that follow each other.
type series struct {
	*Watcher
	trigger *trigger
	recheck *time.Timer // fires the trigger once, later; stopped unless watches do not stay open

	resourceVersion string       // at which the next watch begins; "": with a list
	pauses          wait.Backoff // until the next watch
	hadOne          bool         // a watch was open before
	short           int          // watches in a row that were not steady
	logged          bool         // that something is wrong
}

// watch makes one watch, and reports whether it ended when it was asked to.
func (s *series) watch(ctx context.Context) (onTime bool) {
	timeout := minTimeout + rand.N(minTimeout)
	resumed := s.resourceVersion != ""
	var opened time.Time
	err := s.client.Watch(ctx, s.resource, &s.resourceVersion, timeout, func() {
		opened = time.Now()
		s.setWatching(true)
		if !resumed {
			s.fireAtStart()
		}
	}, s.trigger.fireForEvent)
	if s.Watching() {
		s.setWatching(false)
		lasted := time.Since(opened)
		onTime = err == nil && lasted >= timeout-tolerance
		s.noteEnd(lasted)
	}
	if err == nil && s.short >= maxShort {
		err = errShortWatches
	}
	if err != nil && ctx.Err() == nil {
		s.logOnce(err)
	}
	return onTime
}

var errShortWatches = errors.New("the server ends each watch soon after it has begun")

// fireAtStart fires the trigger when a watch opens that began with a list.
func (s *series) fireAtStart() {
	switch {
	case s.short >= maxShort:
		// Events may have been missed, but rechecks for each watch would cost more than a refresh: one is for all.
		s.trigger.fire()
		s.recheck.Reset(lastRecheck)
	case s.hadOne:
		s.trigger.fireForEvent() // the place of the last watch is lost, so events may have been missed
	default:
		s.trigger.fire()
	}
}

// noteEnd notes that a watch has ended.
func (s *series) noteEnd(lasted time.Duration) {
	s.hadOne = true
	s.short++
	if lasted >= steadyAfter {
		s.short = 0
		s.pauses = newPauses()
		s.logged = false
	}
}

// logOnce logs what is wrong, and what you have to do, unless it is logged already.
func (s *series) logOnce(err error) {
	if s.logged {
		return
	}
	s.logged = true
	code := 0
	var failed *discovery.Error
	if errors.As(err, &failed) {
		code = failed.Code
	}
	message := "cannot watch for API changes" + advice(code)
	s.log(func(log logr.Logger) {
		log.Error(err, message, "group", s.resource.Group, "resource", s.resource.Resource)
	})
}

// advice returns what follows from the status of a watch that has failed.
func advice(code int) string {
	switch code {
	case http.StatusUnauthorized:
		return ": the server does not accept the credentials, a token may have expired; trying again"
	case http.StatusForbidden:
		return ": a ClusterRole must allow the verbs list and watch on this resource; " +
			"until then the mapper is refreshed only by RefreshInterval, MaxAge and misses"
	case http.StatusNotFound:
		return ": the server does not serve this resource; " +
			"the mapper is refreshed only by RefreshInterval, MaxAge and misses"
	}
	return " now, trying again"
}
