// SPDX-License-Identifier: Apache-2.0

// Package fleet keeps one RESTMapper for each of many clusters, or for each identity with which a program
// asks a cluster. Use it if your program works with several API servers, or makes a client for each piece of
// work: with a mapper of its own each client would read the whole discovery document again.
//
// A Fleet makes the mapper of a key when it is first used, gives the same one to everybody who asks for the key,
// lets it refresh while the fleet has it, and drops it when it has not been used for a while.
package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/engine"
	"github.com/freshmapper/freshmapper/internal/report"
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

	options apiutil.DynamicRESTMapperOptions
	runs    sync.WaitGroup     // mappers that refresh; added to under mu while ended is false
	mu      sync.Mutex         // guards the rest, and members; nobody waits for anything while holding it
	members map[string]*member // by key
	turn    uint64
	timed   bool // there is a timer for trim
	ended   bool // Start's context has ended
}

// member is a mapper that a fleet has made. The fleet's mu guards what may change.
type member struct {
	fleet  *Fleet
	mapper *apiutil.DynamicRESTMapper
	engine *engine.Engine

	named bool      // it had a key
	last  time.Time // when it was used
	turn  uint64    // orders what was used at the same time
	reset time.Time // when For has reset it

	keys map[string]*engagement // that have this mapper, nil: not engaged; it refreshes while there is one
	stop context.CancelFunc     // ends the run; nil: there is none
	run  chan struct{}          // of size 1: full while a run goes on
}

// engagement lasts until its context ends.
type engagement struct{ forget func() bool }

// New returns a fleet of mappers with these options. For returns their errors.
func New(opts apiutil.DynamicRESTMapperOptions) *Fleet { return &Fleet{options: opts} }

// For returns the mapper of a key. If there is none, For makes one for the API server of
// cfg, which sends its requests through httpClient. The key "" stands for no key: each
// call makes a mapper, which the fleet keeps only while it is engaged.
func (f *Fleet) For(key string, cfg *rest.Config, httpClient *http.Client) (*apiutil.DynamicRESTMapper, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	mb := f.members[key]
	if mb == nil || key == "" {
		var err error
		if mb, err = f.newMember(cfg, httpClient); err != nil {
			return nil, err
		}
		if key == "" || f.ended {
			return mb.mapper, nil
		}
		f.put(key, mb, nil)
		if !f.timed || len(f.members) > cmp.Or(f.MaxMappers, 1000) {
			defer f.trim()
		}
	} else if mb.outdated() {
		mb.reset = time.Now()
		mb.mapper.Reset() // whoever begins with it now begins with what is served now
	}
	f.turn++
	mb.last, mb.turn = time.Now(), f.turn
	return mb.mapper, nil
}

func (f *Fleet) newMember(cfg *rest.Config, httpClient *http.Client) (*member, error) {
	m, err := apiutil.NewDynamicRESTMapperWithOptions(cfg, httpClient, f.options)
	if err != nil {
		return nil, err
	}
	mb := &member{
		fleet:  f,
		mapper: m,
		engine: engine.Of(m),
		keys:   map[string]*engagement{},
		run:    make(chan struct{}, 1),
	}
	mb.engine.Followed.Apart = true
	mb.engine.Owner = mb
	return mb, nil
}

// outdated reports whether nothing was confirmed or read for MaxAge, nor reset by For since then:
// while a reset is pending, each lookup tries to read. The caller holds the fleet's mu.
func (mb *member) outdated() bool {
	read := mb.engine.Reports.Health().LastSuccess
	return mb.engine.Reloader.Stale() && time.Since(read) >= mb.engine.Options.MaxAge && !read.Before(mb.reset)
}

// Provider is For as a MapperProvider, an option of controller-runtime's cluster and
// manager. If one MapperProvider is for many clusters, use Provider(""), and Engage.
func (f *Fleet) Provider(key string) func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	return func(cfg *rest.Config, httpClient *http.Client) (meta.RESTMapper, error) {
		m, err := f.For(key, cfg, httpClient)
		if err != nil {
			return nil, err // a nil m in a meta.RESTMapper would not be nil
		}
		return m, nil
	}
}

// Remove takes a key out of the fleet: the next For makes another mapper. A caller that has the
// old one may go on using it.
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
	mb := f.memberOf(mapper)
	err := context.Cause(ctx) // a cluster that is gone must not replace one that was added later
	switch {
	case mb == nil:
		err = fmt.Errorf("its RESTMapper, a %T, was not made by the fleet, set MapperProvider in its options to Provider of the fleet", mapper)
	case err != nil:
	case f.ended:
		err = errors.New("Start of the fleet has ended")
	case !mb.named && mb.engine.Started():
		err = errors.New("its RESTMapper was started before, but only the fleet may start it")
	default:
		e := &engagement{}
		e.forget = context.AfterFunc(ctx, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			if mb.keys[key] == e {
				f.remove(key)
			}
		})
		f.put(key, mb, e)
		return nil
	}
	return fmt.Errorf("cluster %q does not join the fleet: %w", key, err)
}

// memberOf returns the member whose mapper that is, or nil if the fleet has not made it.
func (f *Fleet) memberOf(mapper meta.RESTMapper) *member {
	e := engine.Of(mapper)
	if e == nil {
		return nil
	}
	mb, _ := e.Owner.(*member)
	if mb == nil || mb.fleet != f {
		return nil
	}
	return mb
}

// put gives a key to mb, and makes its mapper refresh. The caller holds mu.
func (f *Fleet) put(key string, mb *member, e *engagement) {
	if old := mb.keys[key]; old != nil {
		old.forget()
	} else if f.members[key] != mb {
		f.remove(key)
	}
	if f.members == nil {
		f.members = map[string]*member{}
	}
	f.members[key], mb.keys[key] = mb, e
	mb.name(key)
	if mb.stop != nil || f.options.RefreshInterval == 0 && !f.options.WatchAPIs {
		return
	}
	mb.engine.SetStarted()
	ctx, stop := context.WithCancel(context.Background())
	mb.stop = stop
	f.runs.Add(1)
	go func() {
		defer f.runs.Done()
		mb.run <- struct{}{} // the run before may take seconds to stop
		mb.engine.Run(ctx)
		<-mb.run
	}()
}

// name sets the key that the log names.
func (mb *member) name(key string) {
	mb.named = true
	mb.engine.Reports.SetCluster(key)
}

// remove takes a key from the mapper that has it. The caller holds mu.
func (f *Fleet) remove(key string) {
	mb := f.members[key]
	if mb == nil {
		return
	}
	if e := mb.keys[key]; e != nil {
		e.forget()
	}
	delete(f.members, key)
	delete(mb.keys, key)
	if len(mb.keys) > 0 {
		mb.name(slices.Min(slices.Collect(maps.Keys(mb.keys)))) // the log must not name a cluster that was removed
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
	for key, mb := range f.members {
		if mb.engine.TakeUse() {
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
	for key := range f.members {
		f.remove(key)
	}
	f.mu.Unlock()
	f.runs.Wait()
	return nil
}

// NeedLeaderElection returns false: Start runs on every replica.
func (f *Fleet) NeedLeaderElection() bool { return false }

func (f *Fleet) all() map[string]*apiutil.DynamicRESTMapper {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make(map[string]*apiutil.DynamicRESTMapper, len(f.members))
	for key, mb := range f.members {
		all[key] = mb.mapper
	}
	return all
}

// ResetOnNoMatch is apiutil.ResetOnNoMatch for all mappers, because an error does not
// say whose it is. It logs a line for each mapper that it resets.
func (f *Fleet) ResetOnNoMatch(err error) (reset bool) {
	for key, m := range f.all() {
		if apiutil.ResetOnNoMatch(err, m) {
			reset = true
			engine.Of(m).Options.Logger.Info("the RESTMapper is reset, because discovery is stale", "cluster", key)
		}
	}
	return reset
}

// Status returns the status of each mapper. It sends no request.
func (f *Fleet) Status() map[string]apiutil.DynamicRESTMapperStatus {
	all := map[string]apiutil.DynamicRESTMapperStatus{}
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
			report.Page(func(bool) any { return map[string]any{"clusters": f.Status()} }).ServeHTTP(w, req)
		case m == nil:
			http.Error(w, "the fleet has no such cluster", http.StatusNotFound)
		default:
			m.DebugHandler().ServeHTTP(w, req)
		}
	})
}
