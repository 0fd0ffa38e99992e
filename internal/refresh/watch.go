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
	// longPause is the shortest pause between watches that save requests; the longest is
	// twice that. It is what client-go's Reflector waits in the end if a server is not
	// healthy (tools/cache/reflector.go, NewReflectorWithOptions).
	longPause = 30 * time.Second
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

	// Only run uses these.
	version  string      // the resource version to continue from; "": a list must bring one
	opened   time.Time   // when the last watch was
	short    int         // watches in a row that were not steady
	troubled bool        // a failure has been logged
	late     *time.Timer // rings once more
	pauses   wait.Backoff
}

// NewWatchers makes a watcher for each resource in watched. When something goes wrong, the
// watchers give log a function that writes a line. log calls it, now or later; the Logger
// may be slow and may panic. They call moved when they begin, and when a watch opens or
// ends.
func NewWatchers(client *discovery.Client, log func(write func(logr.Logger)), moved func()) []*Watcher {
	var watchers []*Watcher
	for _, resource := range watched() {
		watchers = append(watchers, &Watcher{client: client, resource: resource, log: log, moved: moved, pauses: newPauses()})
	}
	return watchers
}

// Watching reports whether a watch is open now.
func (w *Watcher) Watching() bool { return w.watching.Load() }

func (w *Watcher) setWatching(open bool) {
	w.watching.Store(open)
	w.moved()
}

// run watches until ctx ends, one watch after the other. It pauses unless the server ended
// the watch when it was asked to: one that goes away ends the watches of all replicas.
func (w *Watcher) run(ctx context.Context, bell *Doorbell) {
	w.late = time.AfterFunc(lateEcho, bell.Ring)
	w.late.Stop()
	defer w.late.Stop()
	w.version = ""
	w.moved()
	for ctx.Err() == nil {
		due, err := w.watch(ctx, bell)
		if err != nil && ctx.Err() == nil {
			w.failed(err)
		}
		switch {
		case due:
		case w.short >= fewShort && w.version == "":
			sleep(ctx, wait.Jitter(longPause, 1), nil)
		default:
			sleep(ctx, w.pauses.Step(), nil)
		}
	}
}

// watch opens a watch and follows it to its end. It begins where the last watch ended. If
// that place is lost, it lists to learn where to begin, and rings, because it may have
// missed events. It reports whether the watch ended when it was asked to. The error is nil
// if the server only no longer has the events since that place.
func (w *Watcher) watch(ctx context.Context, bell *Doorbell) (due bool, err error) {
	resumed, first := w.version != "", w.opened.IsZero()
	if !resumed {
		if w.version, err = w.client.ListVersion(ctx, w.resource); err != nil {
			return false, err
		}
	}
	lasting := leastWatch + rand.N(leastWatch)
	err = w.client.Watch(ctx, w.resource, w.version, lasting, func() {
		w.opened = time.Now()
		w.setWatching(true)
		if first {
			bell.Ring()
		} else if !resumed {
			w.ring(bell)
		}
	}, func(version string, changed bool) {
		w.version = version
		if changed {
			w.ring(bell)
		}
	})
	if w.Watching() {
		w.ended()
		due = err == nil && time.Since(w.opened) >= lasting-early
	}
	switch {
	case err != nil:
		w.version = ""
		if resumed && codeOf(err) == http.StatusGone {
			err = nil
		}
	case w.short >= fewShort:
		err = errors.New("the server ends each watch soon after it has begun")
	}
	return due, err
}

// ended counts a watch that was open.
func (w *Watcher) ended() {
	w.setWatching(false)
	w.short++
	if time.Since(w.opened) >= steady {
		w.short, w.troubled, w.pauses = 0, false, newPauses()
	}
}

// ring rings for an event. If watches do not stay open, the next one most likely rings
// soon, too, for the events between them. Then all of these have a single late echo.
func (w *Watcher) ring(bell *Doorbell) {
	if w.short < fewShort || time.Since(w.opened) >= steady {
		bell.RingEvent()
		return
	}
	bell.Ring()
	w.late.Reset(lateEcho)
}

// failed logs what you have to do, once until the watch works again.
func (w *Watcher) failed(err error) {
	if w.troubled {
		return
	}
	w.troubled = true
	w.log(func(log logr.Logger) {
		log.Error(err, "cannot watch for API changes"+advice(codeOf(err)), "group", w.resource.Group, "resource", w.resource.Resource)
	})
}

func advice(code int) string {
	switch code {
	case http.StatusForbidden, http.StatusUnauthorized:
		return ": a ClusterRole must allow the verbs list and watch on this resource; " +
			"until then the mapper is refreshed only by RefreshInterval, MaxAge and misses"
	case http.StatusNotFound:
		return ": the server does not serve this resource; the mapper is refreshed only by RefreshInterval, MaxAge and misses"
	}
	return " now, trying again"
}

// codeOf returns the code of the answer, or of the event, that an error is about.
func codeOf(err error) int {
	var failed *discovery.Error
	if errors.As(err, &failed) {
		return failed.Code
	}
	return 0
}
