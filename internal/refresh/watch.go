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

// watched lists the resources whose objects change with the served API.
func watched() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{
		{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
		{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"},
	}
}

const (
	// leastWatch is the shortest time for which the server is asked to keep a watch open.
	// The longest is twice that; the time is chosen at random. It bounds how long a dead
	// connection remains unnoticed.
	leastWatch = 5 * time.Minute
	// steady is how long a watch must have been open to count as working.
	steady = 30 * time.Second
	// early is how much shorter than asked a watch may be, by rounding and latency.
	early = 2 * time.Second
	// fewShort is how many watches in a row may end before they are steady until that is
	// logged, and the mapper saves requests.
	fewShort = 5
	// lateEcho is how long after a ring its last echo comes; see echoes.
	lateEcho = 70 * time.Second
)

// newPauses returns the pauses between one watch and the next. They grow from half a
// second to 8 seconds, and each is lengthened at random, up to four times. The jitter is
// large because all replicas ask a server that comes back, and a watch that has lost its
// place costs a list, a watch and a refresh.
func newPauses() wait.Backoff {
	return wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 3, Steps: 30, Cap: 8 * time.Second}
}

// Watcher rings the doorbell whenever an object of one resource comes, changes or goes.
// It keeps no part of the objects.
type Watcher struct {
	client   *discovery.Client
	resource schema.GroupVersionResource
	log      func(func(logr.Logger))
	moved    func() // is called when watching may have changed

	watching atomic.Bool // a watch is open
}

// NewWatchers makes a watcher for each resource in watched. When something goes wrong, the
// watchers give log a function that writes a line. log calls it, now or later; the Logger
// may be slow and may panic. They call moved when they begin, and when a watch opens or
// ends.
func NewWatchers(client *discovery.Client, log func(write func(logr.Logger)), moved func()) []*Watcher {
	var watchers []*Watcher
	for _, resource := range watched() {
		watchers = append(watchers, &Watcher{client: client, resource: resource, log: log, moved: moved})
	}
	return watchers
}

// Watching reports whether a watch is open now.
func (w *Watcher) Watching() bool { return w.watching.Load() }

func (w *Watcher) setWatching(open bool) {
	w.watching.Store(open)
	w.moved()
}

// run watches until ctx ends, one watch after the other. Each begins where the last one
// ended. If that place is lost, events may have been missed, and it rings when it opens: for
// an event, unless watches do not stay open, because echoes cost more than a refresh. Then
// all that ring have a single late echo. There is a pause unless the watch ended when it was
// asked to: a server that goes away ends the watches of all replicas.
func (w *Watcher) run(ctx context.Context, bell *Doorbell) {
	w.moved()
	late := time.AfterFunc(lateEcho, bell.Ring)
	late.Stop()
	defer late.Stop()
	place, ring := "", bell.Ring
	pauses, short, logged := newPauses(), 0, false
	for ctx.Err() == nil {
		var opened time.Time
		resumed, lasting := place != "", leastWatch+rand.N(leastWatch)
		err := w.client.Watch(ctx, w.resource, &place, lasting, func() {
			opened = time.Now()
			w.setWatching(true)
			if !resumed {
				ring()
			}
		}, bell.RingEvent)
		due := false
		if w.Watching() {
			w.setWatching(false)
			lasted := time.Since(opened)
			due = err == nil && lasted >= lasting-early
			short++
			if lasted >= steady {
				pauses, short, logged = newPauses(), 0, false
			}
			ring = bell.RingEvent
			if short >= fewShort {
				ring = func() { bell.Ring(); late.Reset(lateEcho) }
			}
		}
		if err == nil && short >= fewShort {
			err = errors.New("the server ends each watch soon after it has begun")
		}
		if err != nil && !logged && ctx.Err() == nil {
			logged = true
			w.failed(err)
		}
		if !due {
			sleep(ctx, pauses.Step(), nil)
		}
	}
}

// failed logs what you have to do.
func (w *Watcher) failed(err error) {
	var failed *discovery.Error
	code := 0
	if errors.As(err, &failed) {
		code = failed.Code
	}
	w.log(func(log logr.Logger) {
		log.Error(err, "cannot watch for API changes"+advice(code), "group", w.resource.Group, "resource", w.resource.Resource)
	})
}

func advice(code int) string {
	switch code {
	case http.StatusUnauthorized:
		return ": the server does not accept the credentials, a token may have expired; trying again"
	case http.StatusForbidden:
		return ": a ClusterRole must allow the verbs list and watch on this resource; " +
			"until then the mapper is refreshed only by RefreshInterval, MaxAge and misses"
	case http.StatusNotFound:
		return ": the server does not serve this resource; the mapper is refreshed only by RefreshInterval, MaxAge and misses"
	}
	return " now, trying again"
}
