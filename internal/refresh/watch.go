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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	watchtools "k8s.io/client-go/tools/watch"

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

	open atomic.Pointer[discovery.Watch] // the last watch that was opened in this session

	// Only run uses these, and the goroutines of a session, one after the other.
	begun    bool          // a watch has been open
	opened   time.Time     // when the last watch was
	lasting  time.Duration // for which it was asked to stay open
	short    int           // watches in a row that were not steady
	troubled bool          // a failure has been logged
	late     *time.Timer   // rings once more
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
func (w *Watcher) Watching() bool {
	open := w.open.Load()
	if open == nil {
		return false
	}
	select {
	case <-open.Ended():
		return false
	default:
		return true
	}
}

// run watches until ctx ends, one session after the other.
func (w *Watcher) run(ctx context.Context, bell *Doorbell) {
	w.late = time.AfterFunc(lateEcho, bell.Ring)
	w.late.Stop()
	defer w.late.Stop()
	w.moved()
	for ctx.Err() == nil {
		if err := w.follow(ctx, bell); err != nil && ctx.Err() == nil {
			w.failed(err)
		}
		pause := w.pauses.Step()
		if w.short >= fewShort {
			pause = wait.Jitter(longPause, 1)
		}
		sleep(ctx, pause, nil)
	}
}

// session is what follows one list: watches, each of which begins where the one before
// ended. It ends when that place is lost.
type session struct {
	*Watcher
	ctx     context.Context
	end     context.CancelCauseFunc
	bell    *Doorbell
	watches int
}

// follow runs a session. It returns nil if the error only means that the server no longer has the events
// since the last one.
func (w *Watcher) follow(ctx context.Context, bell *Doorbell) error {
	version, err := w.client.List(ctx, w.resource)
	if err != nil {
		return err
	}
	s := &session{Watcher: w, bell: bell}
	s.ctx, s.end = context.WithCancelCause(ctx)
	defer s.end(nil)
	retry, err := watchtools.NewRetryWatcher(version, s)
	if err != nil {
		return err
	}
	defer context.AfterFunc(s.ctx, retry.Stop)()
	for range retry.ResultChan() { // event has seen them
	}
	<-retry.Done()
	err = context.Cause(s.ctx)
	if w.open.Swap(nil) != nil {
		w.moved()
		err = w.closed(err)
	}
	if s.watches > 1 && codeOf(err) == http.StatusGone {
		return nil
	}
	return err
}

// Watch implements cache.Watcher: it opens the next watch. It pauses after one that ended
// early, because a server that goes away ends the watches of all replicas.
func (s *session) Watch(options metav1.ListOptions) (watch.Interface, error) {
	if s.open.Swap(nil) != nil {
		s.moved()
		due := time.Since(s.opened) >= s.lasting-early
		if err := s.closed(nil); err != nil {
			s.failed(err)
		}
		if !due {
			sleep(s.ctx, s.pauses.Step(), nil)
		}
	}
	if s.ctx.Err() != nil {
		return nil, io.EOF // the RetryWatcher is being stopped
	}
	s.lasting = leastWatch + rand.N(leastWatch)
	opened, err := s.client.Watch(s.ctx, s.resource, options.ResourceVersion, s.lasting, s.event)
	if err != nil {
		s.watches++
		s.end(err)
		return nil, io.EOF
	}
	s.opened = time.Now()
	s.open.Store(opened)
	s.moved()
	if s.watches++; s.watches == 1 {
		s.ringOpened()
	}
	return opened, nil
}

// ringOpened rings for events that may have happened while no watch was open.
func (s *session) ringOpened() {
	if s.begun {
		s.event(nil)
		return
	}
	s.begun = true
	s.bell.Ring()
}

// event rings for an event. If watches do not stay open, the next one most likely rings
// soon, too, for the events between them. Then all of these have a single late echo.
func (s *session) event(err error) {
	switch {
	case err != nil:
		s.end(err)
	case s.short < fewShort || time.Since(s.opened) >= steady:
		s.bell.RingEvent()
	default:
		s.bell.Ring()
		s.late.Reset(lateEcho)
	}
}

// closed counts a watch that has ended. It returns err, or an error if watches do not stay
// open.
func (w *Watcher) closed(err error) error {
	if time.Since(w.opened) >= steady {
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

func codeOf(err error) int32 {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Code
	}
	return 0
}
