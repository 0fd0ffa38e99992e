// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
)

// Fleet is a set of mappers by a key that you choose, all with the same options: for
// programs that work with many clusters, or make a client for each piece of work. For
// makes the mapper of a key when it is first used, and sends no request the next time: it
// resets a mapper that was neither confirmed nor read for MaxAge. A mapper refreshes, if the
// options say so, while the fleet has it. The zero Fleet is ready to use, with default options.
//
// A key is your word for "the same server and the same credentials". If two callers use it
// for different ones, both get the mapper of the first: the second is told what the first
// may see at the first's server, and its own config is not used. So put all that may
// differ into the key, such as the UID and the resourceVersion of the object with the
// credentials. Keys appear in logs, in errors and on the debug page: put no secret there.
type Fleet struct {
	// These bound the mappers that are not engaged. Set them before the first use.
	IdleTimeout time.Duration // how long a mapper stays after its last use, by For or a lookup. Defaults to 10 minutes
	MaxMappers  int           // how many stay; the least recently used goes first. Defaults to 1,000

	options DynamicRESTMapperOptions
	runs    sync.WaitGroup // mappers that refresh; added to under mu while ended is false
	mu      sync.Mutex     // guards the rest, and members; nobody waits for anything while holding it
	mappers map[string]*DynamicRESTMapper
	turn    uint64
	timed   bool // there is a timer for trim
	ended   bool // Start's context has ended
}

// member is what a fleet keeps in a mapper that it made. The fleet's mu guards what is not
// atomic.
type member struct {
	fleet *Fleet
	name  atomic.Pointer[string] // the key that the log names; nil before there is one
	used  atomic.Bool            // there was a lookup since the fleet last looked
	last  time.Time              // when it was used
	turn  uint64                 // orders what was used at the same time
	reset time.Time              // when For has reset it

	keys map[string]*engagement // that have this mapper, nil: not engaged; it refreshes while there is one
	stop context.CancelFunc     // ends the run; nil: there is none
	run  chan struct{}          // of size 1: full while a run goes on
}

// engagement lasts until its context ends.
type engagement struct{ forget func() bool }

// use notes a lookup. Only the first since the fleet last looked costs a write.
func (mb *member) use() {
	if mb != nil && !mb.used.Load() {
		mb.used.Store(true)
	}
}

// NewFleet returns a fleet of mappers with these options. For returns their errors.
func NewFleet(opts DynamicRESTMapperOptions) *Fleet { return &Fleet{options: opts} }

// For returns the mapper of a key. If there is none, For makes one for the API server of
// cfg, which sends its requests through httpClient. The key "" stands for no key: each
// call makes a mapper, which the fleet keeps only while it is engaged.
func (f *Fleet) For(key string, cfg *rest.Config, httpClient *http.Client) (*DynamicRESTMapper, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.mappers[key]
	if m == nil || key == "" {
		var err error
		if m, err = NewDynamicRESTMapperWithOptions(cfg, httpClient, f.options); err != nil {
			return nil, err
		}
		m.followed.Apart = true
		m.member = &member{fleet: f, keys: map[string]*engagement{}, run: make(chan struct{}, 1)}
		if key == "" || f.ended {
			return m, nil
		}
		f.put(key, m, nil)
		if !f.timed || len(f.mappers) > cmp.Or(f.MaxMappers, 1000) {
			defer f.trim()
		}
	} else if m.outdated() {
		m.member.reset = time.Now()
		m.Reset() // whoever begins with it now begins with what is served now
	}
	f.turn++
	m.member.last, m.member.turn = time.Now(), f.turn
	return m, nil
}

// outdated reports whether nothing was confirmed or read for MaxAge, nor reset by For since then:
// while a reset is pending, each lookup tries to read. The caller holds the fleet's mu.
func (m *DynamicRESTMapper) outdated() bool {
	read := m.health.Load().lastSuccess
	return m.reloader.Stale() && time.Since(read) >= m.options.MaxAge && !read.Before(m.member.reset)
}

// Provider is For as a MapperProvider, an option of controller-runtime's cluster and
// manager. If one MapperProvider is for many clusters, use Provider(""), and Engage.
func (f *Fleet) Provider(key string) func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	return func(cfg *rest.Config, httpClient *http.Client) (meta.RESTMapper, error) {
		return asRESTMapper(f.For(key, cfg, httpClient))
	}
}

// Remove takes a key out of the fleet: the next For makes another mapper. Who has the old
// one may go on using it.
func (f *Fleet) Remove(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remove(key)
}

// Engage keeps a mapper of this fleet under a key until ctx ends, and then removes the key.
// It replaces the mapper that the key had, and does not block. A mapper may have several
// keys. Engage returns an error, and changes nothing, if the fleet did not make the mapper,
// if somebody else started it, or if ctx or Start has ended.
func (f *Fleet) Engage(ctx context.Context, key string, mapper meta.RESTMapper) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, _ := mapper.(*DynamicRESTMapper)
	err := context.Cause(ctx) // a cluster that is gone must not replace one that came later
	switch {
	case m == nil || m.member == nil || m.member.fleet != f:
		err = fmt.Errorf("its RESTMapper, a %T, was not made by the fleet, set MapperProvider in its options to Provider of the fleet", mapper)
	case err != nil:
	case f.ended:
		err = errors.New("Start of the fleet has ended")
	case m.member.name.Load() == nil && m.started.Load():
		err = errors.New("its RESTMapper was started before, but only the fleet may start it")
	default:
		e := &engagement{}
		e.forget = context.AfterFunc(ctx, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			if m.member.keys[key] == e {
				f.remove(key)
			}
		})
		f.put(key, m, e)
		return nil
	}
	return fmt.Errorf("cluster %q does not join the fleet: %w", key, err)
}

// put gives a key to m, and makes m refresh. The caller holds mu.
func (f *Fleet) put(key string, m *DynamicRESTMapper, e *engagement) {
	mb := m.member
	if old := mb.keys[key]; old != nil {
		old.forget()
	} else if f.mappers[key] != m {
		f.remove(key)
	}
	if f.mappers == nil {
		f.mappers = map[string]*DynamicRESTMapper{}
	}
	f.mappers[key], mb.keys[key] = m, e
	mb.name.Store(&key)
	if mb.stop != nil || f.options.RefreshInterval == 0 && !f.options.WatchAPIs {
		return
	}
	m.started.Store(true)
	ctx, stop := context.WithCancel(context.Background())
	mb.stop = stop
	f.runs.Add(1)
	go func() {
		defer f.runs.Done()
		mb.run <- struct{}{} // the run before may take seconds to stop
		m.run(ctx)
		<-mb.run
	}()
}

// remove takes a key from the mapper that has it. The caller holds mu.
func (f *Fleet) remove(key string) {
	m := f.mappers[key]
	if m == nil {
		return
	}
	mb := m.member
	if e := mb.keys[key]; e != nil {
		e.forget()
	}
	delete(f.mappers, key)
	delete(mb.keys, key)
	if len(mb.keys) > 0 {
		left := slices.Min(slices.Collect(maps.Keys(mb.keys))) // the log must not name a cluster that has gone
		mb.name.Store(&left)
	} else if mb.stop != nil {
		mb.stop()
		mb.stop = nil
	}
}

// trim removes what was not used for IdleTimeout and, if there is one more than
// MaxMappers, what was used least recently. The caller holds mu.
func (f *Fleet) trim() {
	now, timeout := time.Now(), cmp.Or(f.IdleTimeout, 10*time.Minute)
	idle, oldest, first := 0, "", (*member)(nil)
	for key, m := range f.mappers {
		mb := m.member
		if mb.used.Swap(false) {
			mb.last = now
		}
		switch {
		case mb.keys[key] != nil: // engaged
		case now.Sub(mb.last) >= timeout:
			f.remove(key)
		default:
			if idle++; first == nil || cmp.Or(mb.last.Compare(first.last), cmp.Compare(mb.turn, first.turn)) < 0 {
				oldest, first = key, mb
			}
		}
	}
	if idle > cmp.Or(f.MaxMappers, 1000) {
		f.remove(oldest)
	}
	if idle > 0 && !f.timed {
		f.timed = true
		time.AfterFunc(max(timeout/20, time.Second), func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.timed = false
			f.trim()
		})
	}
}

// Start waits until ctx ends. Then it empties the fleet, and returns when no mapper
// refreshes any more. It has the shape of controller-runtime's manager.Runnable. You may
// use the fleet before Start, and without it; after it, For keeps no mapper.
func (f *Fleet) Start(ctx context.Context) error {
	<-ctx.Done()
	f.mu.Lock()
	f.ended = true
	for key := range f.mappers {
		f.remove(key)
	}
	f.mu.Unlock()
	f.runs.Wait()
	return nil
}

// NeedLeaderElection returns false: Start runs on every replica.
func (f *Fleet) NeedLeaderElection() bool { return false }

func (f *Fleet) all() map[string]*DynamicRESTMapper {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.mappers)
}

// ResetOnNoMatch is the function of that name for all mappers, because an error does not
// say whose it is. It logs a line for each mapper that it resets.
func (f *Fleet) ResetOnNoMatch(err error) (reset bool) {
	for key, m := range f.all() {
		if ResetOnNoMatch(err, m) {
			reset = true
			m.options.Logger.Info("the RESTMapper is reset, because discovery is stale", "cluster", key)
		}
	}
	return reset
}

// Status returns the status of each mapper. It sends no request.
func (f *Fleet) Status() map[string]DynamicRESTMapperStatus {
	all := map[string]DynamicRESTMapperStatus{}
	for key, m := range f.all() {
		all[key] = m.Status()
	}
	return all
}

// Healthz has the shape of controller-runtime's healthz.Checker. It fails if there are
// mappers and all are unhealthy, and names each: one cluster that is down is no reason to
// restart a program that works with the others.
func (f *Fleet) Healthz(*http.Request) error {
	all, errs := f.all(), []error(nil)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		err := all[key].Healthz(nil)
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("cluster %q: %w", key, err))
	}
	return errors.Join(errs...)
}

// DebugHandler serves the status of all mappers and, with ?cluster=KEY, the page of one of
// them, as DynamicRESTMapper.DebugHandler does.
func (f *Fleet) DebugHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		m := f.all()[req.URL.Query().Get("cluster")]
		switch {
		case !req.URL.Query().Has("cluster"):
			debugHandler(func(bool) any { return map[string]any{"clusters": f.Status()} }).ServeHTTP(w, req)
		case m == nil:
			http.Error(w, "the fleet has no such cluster", http.StatusNotFound)
		default:
			m.DebugHandler().ServeHTTP(w, req)
		}
	})
}
