// SPDX-License-Identifier: Apache-2.0

package refresh

import (
	"context"
	"errors"
	"io"
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
	// lateEcho is how long after a ring its last echo comes; see echoesFrom.
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
	client   *discovery.WatchClient
	resource schema.GroupVersionResource
	log      func(func(logr.Logger))
	moved    func() // is called when watching may have changed

	watching atomic.Bool // a watch is open

	// Only run uses these.
	version  string      // the resource version to continue from; "": a list must bring one
	begun    bool        // a watch has been open
	opened   time.Time   // when the last watch was
	short    int         // watches in a row that were not steady
	troubled bool        // a failure has been logged
	due      bool        // the last watch stayed open as long as asked
	late     *time.Timer // rings once more
	pauses   wait.Backoff
}

// NewWatchers makes a watcher for each resource in watched. When something goes wrong, the
// watchers give log a function that writes a line. log calls it, now or later; the Logger
// may be slow and may panic. They call moved when they begin, and when a watch opens or
// ends.
func NewWatchers(client *discovery.WatchClient, log func(write func(logr.Logger)), moved func()) []*Watcher {
	var watchers []*Watcher
	for _, resource := range watched() {
		watchers = append(watchers, &Watcher{client: client, resource: resource, log: log, moved: moved, pauses: newPauses()})
	}
	return watchers
}

// Watching reports whether a watch is open now.
func (w *Watcher) Watching() bool { return w.watching.Load() }

// run watches until ctx ends, one watch after the other. It pauses after a watch that
// ended early: a server that goes away ends the watches of all replicas.
func (w *Watcher) run(ctx context.Context, bell *Doorbell) {
	w.late = time.AfterFunc(lateEcho, bell.Ring)
	w.late.Stop()
	defer w.late.Stop()
	w.moved()
	for ctx.Err() == nil {
		w.due = false
		err := w.watch(ctx, bell)
		if err != nil && ctx.Err() == nil {
			w.failed(err)
		}
		if !w.due {
			sleep(ctx, w.pause(), nil)
		}
	}
}

// pause returns how long to wait for the next watch.
func (w *Watcher) pause() time.Duration {
	if w.short >= fewShort && w.version == "" {
		return wait.Jitter(longPause, 1)
	}
	return w.pauses.Step()
}

// watch opens a watch and follows it to its end. It continues where the last watch ended.
// If that place is not known, it lists to learn where to begin, and rings, because it may
// have missed events.
func (w *Watcher) watch(ctx context.Context, bell *Doorbell) error {
	resumed := w.version != ""
	if !resumed {
		version, err := w.client.List(ctx, w.resource)
		if err != nil {
			return err
		}
		w.version = version
	}
	lasting := leastWatch + rand.N(leastWatch)
	stream, err := w.client.Watch(ctx, w.resource, w.version, lasting)
	if err != nil {
		return w.lost(err, resumed)
	}
	defer stream.Close()
	w.opened = time.Now()
	w.setWatching(true)
	defer w.setWatching(false)
	if !resumed {
		w.ringOpened(bell)
	}
	err = w.lost(w.follow(stream, bell), resumed)
	lasted := time.Since(w.opened)
	w.due = err == nil && lasted >= lasting-early
	return w.closed(lasted, err)
}

func (w *Watcher) setWatching(open bool) {
	w.watching.Store(open)
	w.moved()
}

// ringOpened rings for events that may have happened while no watch was open.
func (w *Watcher) ringOpened(bell *Doorbell) {
	if w.begun {
		w.ring(bell)
		return
	}
	w.begun = true
	bell.Ring()
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

// follow rings for each change until the stream ends. The error is nil if the next
// stream can begin there.
func (w *Watcher) follow(stream *discovery.EventStream, bell *Doorbell) error {
	for {
		event, err := stream.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if event.ResourceVersion != "" {
			w.version = event.ResourceVersion
		}
		if event.Changed {
			w.ring(bell)
		}
	}
}

// lost forgets where to continue if there is an error. It returns nil if the error only
// means that the server no longer has the events since that place.
func (w *Watcher) lost(err error, resumed bool) error {
	if err == nil {
		return nil
	}
	w.version = ""
	if resumed && codeOf(err) == http.StatusGone {
		return nil
	}
	return err
}

// closed counts a watch that has ended after lasted. It returns err, or an error if
// watches do not stay open.
func (w *Watcher) closed(lasted time.Duration, err error) error {
	if lasted >= steady {
		w.short, w.troubled, w.pauses = 0, false, newPauses()
		return err
	}
	if w.short++; err == nil && w.short >= fewShort {
		return errors.New("the server ends each watch soon after it has begun")
	}
	return err
}

// failed logs what you have to do, once until the watch works again.
func (w *Watcher) failed(err error) {
	if w.troubled {
		return
	}
	w.troubled = true
	w.log(func(log logr.Logger) {
		write(log.WithValues("group", w.resource.Group, "resource", w.resource.Resource), err)
	})
}

func write(log logr.Logger, err error) {
	switch codeOf(err) {
	case http.StatusForbidden, http.StatusUnauthorized:
		log.Error(err, "cannot watch for API changes: a ClusterRole must allow the verbs list and watch on this resource; "+
			"until then the mapper is refreshed only by RefreshInterval, MaxAge and misses")
	case http.StatusNotFound:
		log.Error(err, "cannot watch for API changes: the server does not serve this resource; "+
			"the mapper is refreshed only by RefreshInterval, MaxAge and misses")
	default:
		log.Error(err, "cannot watch for API changes now, trying again")
	}
}

func codeOf(err error) int {
	var failure *discovery.WatchError
	if errors.As(err, &failure) {
		return failure.Code
	}
	return 0
}
