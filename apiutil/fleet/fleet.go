// SPDX-License-Identifier: Apache-2.0

// Package fleet keeps one RESTMapper for each of many clusters, or for each identity with which a program asks a
// cluster. Use it if your program works with several API servers, or makes a client for each piece of work: with a
// mapper of its own, each client would read the whole discovery document again.
//
//	mappers := fleet.New(apiutil.DynamicRESTMapperOptions{})
//	mapper, err := mappers.For("uid/resourceVersion of the Secret with the kubeconfig", cfg, httpClient)
//
// With clusters of controller-runtime, set MapperProvider in the options of each to Provider of the fleet. If a
// multi-cluster manager makes the clusters, call Engage when one joins: the fleet then keeps its mapper until the
// cluster's context ends.
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

// Fleet has mappers by a key that you choose, all with the same options. It makes the mapper of a key when the key is
// first used, gives the same one to everybody who asks for the key, and lets it refresh by RefreshInterval and
// WatchAPIs while the fleet has it. It drops mappers that were not used for a while, unless they are engaged. The
// zero Fleet is ready to use, with default options.
//
// A key is your name for "the same server and the same credentials". If two callers use one key for different ones,
// both get the mapper of the first: the second sees what the first may see at the first's server, and its own config
// is not used. So put all that may differ into the key, such as the UID and the resourceVersion of the object with the
// credentials. Keys appear in logs, in errors and on the debug page: put no secret there.
type Fleet struct {
	// IdleTimeout is how long a mapper that is not engaged (see Engage) stays after it was last used, by For or by a
	// lookup. Set it before the first use. Defaults to 10 minutes.
	IdleTimeout time.Duration
	// MaxMappers is how many mappers stay that are not engaged (see Engage). The least recently used one is dropped
	// first. Set it before the first use. Defaults to 1,000.
	MaxMappers int

	options apiutil.DynamicRESTMapperOptions
	runs    sync.WaitGroup // mappers that refresh; added to under mu while stopped is false

	mu        sync.Mutex // guards the rest, and members; nobody waits for anything while holding it
	members   map[string]*member
	lastUse   uint64 // counts uses, so that those of one moment have an order
	trimTimer bool   // a timer will call trim
	stopped   bool   // Start's context has ended
}

const (
	defaultIdleTimeout = 10 * time.Minute
	defaultMaxMappers  = 1000
)

func (f *Fleet) idleTimeout() time.Duration { return cmp.Or(f.IdleTimeout, defaultIdleTimeout) }

func (f *Fleet) maxMappers() int { return cmp.Or(f.MaxMappers, defaultMaxMappers) }

// member is a mapper that a fleet has made. The fleet's mu guards what may change.
type member struct {
	fleet  *Fleet
	mapper *apiutil.DynamicRESTMapper
	engine *engine.Engine

	named   bool      // it has had a key
	used    time.Time // when it was last used
	lastUse uint64    // the fleet's count then
	reset   time.Time // when For last reset it

	// keys are those that have this mapper, each with the engagement that keeps it, or nil: For made it. The mapper
	// refreshes while there is a key.
	keys    map[string]*engagement
	stop    context.CancelFunc // stops the mapper's refreshes; nil: it does not refresh
	running chan struct{}      // of size 1: full while it refreshes, and until the last refresh has ended
}

// engagement lasts until its context ends.
type engagement struct{ unregister func() bool }

// New returns a fleet of mappers with these options. If an option is invalid, For returns the error.
func New(opts apiutil.DynamicRESTMapperOptions) *Fleet { return &Fleet{options: opts} }

// For returns the mapper of a key. If there is none, For makes one for the API server of cfg, which sends its
// requests through httpClient; otherwise it ignores both, and sends no request. It resets a mapper that was neither
// confirmed nor read for MaxAge, so that the caller's first lookup is answered by what is served now.
//
// The key "" stands for no key: each call makes a mapper, which the fleet keeps only while it is engaged.
func (f *Fleet) For(key string, cfg *rest.Config, httpClient *http.Client) (*apiutil.DynamicRESTMapper, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[key]
	if m == nil || key == "" {
		var err error
		m, err = f.newMember(cfg, httpClient)
		if err != nil {
			return nil, err
		}
		if key == "" || f.stopped {
			return m.mapper, nil
		}
		f.put(key, m, nil)
		if !f.trimTimer || len(f.members) > f.maxMappers() {
			defer f.trim()
		}
	} else if m.outdated() {
		m.reset = time.Now()
		m.mapper.Reset()
	}
	f.lastUse++
	m.used, m.lastUse = time.Now(), f.lastUse
	return m.mapper, nil
}

func (f *Fleet) newMember(cfg *rest.Config, httpClient *http.Client) (*member, error) {
	mapper, err := apiutil.NewDynamicRESTMapperWithOptions(cfg, httpClient, f.options)
	if err != nil {
		return nil, err
	}
	m := &member{
		fleet:   f,
		mapper:  mapper,
		engine:  engine.Of(mapper),
		keys:    map[string]*engagement{},
		running: make(chan struct{}, 1),
	}
	m.engine.Followed.Separate = true
	m.engine.Owner = m
	return m, nil
}

// outdated reports whether nothing was confirmed or read for MaxAge, nor reset by For since then: while a reset is
// pending, each lookup tries to read. The caller holds the fleet's mu.
func (m *member) outdated() bool {
	if !m.engine.Reloader.Stale() {
		return false
	}
	read := m.engine.Reports.Health().LastSuccess
	return time.Since(read) >= m.engine.Options.MaxAge && !read.Before(m.reset)
}

// Provider returns For as a MapperProvider, an option of controller-runtime's cluster and manager. If one
// MapperProvider is for many clusters, use Provider(""), and Engage.
func (f *Fleet) Provider(key string) func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	return func(cfg *rest.Config, httpClient *http.Client) (meta.RESTMapper, error) {
		mapper, err := f.For(key, cfg, httpClient)
		if err != nil {
			return nil, err // a nil mapper in a meta.RESTMapper would not be nil
		}
		return mapper, nil
	}
}

// Remove takes a key out of the fleet: the next For makes another mapper. A caller that has the old one may go on using
// it.
func (f *Fleet) Remove(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remove(key)
}

// Engage keeps a mapper of this fleet under a key until ctx ends, and then removes the key. It does not block. If the
// key had another mapper, it has this one now. A mapper may have several keys. Engage returns an error, and changes
// nothing, if the fleet did not make the mapper, if somebody else started it, or if ctx or that of Start has ended.
//
// In a multi-cluster manager, call it where a cluster joins, with the context and the name of the cluster.
func (f *Fleet) Engage(ctx context.Context, key string, mapper meta.RESTMapper) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, err := f.canEngage(ctx, mapper)
	if err != nil {
		return fmt.Errorf("cluster %q does not join the fleet: %w", key, err)
	}
	e := &engagement{}
	e.unregister = context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if m.keys[key] == e {
			f.remove(key)
		}
	})
	f.put(key, m, e)
	return nil
}

// canEngage returns the member that has a mapper, or an error if that cannot be engaged. The caller holds mu.
func (f *Fleet) canEngage(ctx context.Context, mapper meta.RESTMapper) (*member, error) {
	m := f.memberOf(mapper)
	if m == nil {
		return nil, fmt.Errorf("its RESTMapper, a %T, was not made by the fleet, "+
			"set MapperProvider in its options to Provider of the fleet", mapper)
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err // a cluster that is gone must not replace one that was added later
	}
	if f.stopped {
		return nil, errors.New("Start of the fleet has ended")
	}
	if !m.named && m.engine.Started() {
		return nil, errors.New("its RESTMapper was started before, but only the fleet may start it")
	}
	return m, nil
}

// memberOf returns the member that has a mapper, or nil if the fleet has not made that.
func (f *Fleet) memberOf(mapper meta.RESTMapper) *member {
	e := engine.Of(mapper)
	if e == nil {
		return nil
	}
	m, _ := e.Owner.(*member)
	if m == nil || m.fleet != f {
		return nil
	}
	return m
}

// put gives a key to a member, and makes its mapper refresh. The caller holds mu.
func (f *Fleet) put(key string, m *member, e *engagement) {
	if old := m.keys[key]; old != nil {
		old.unregister()
	} else if f.members[key] != m {
		f.remove(key)
	}
	if f.members == nil {
		f.members = map[string]*member{}
	}
	f.members[key] = m
	m.keys[key] = e
	m.setName(key)
	m.start()
}

// start makes the mapper refresh, if it does not yet and its options say so. The caller holds the fleet's mu.
func (m *member) start() {
	refreshes := m.fleet.options.RefreshInterval > 0 || m.fleet.options.WatchAPIs
	if m.stop != nil || !refreshes {
		return
	}
	m.engine.SetStarted()
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	m.fleet.runs.Add(1)
	go func() {
		defer m.fleet.runs.Done()
		m.running <- struct{}{} // the refreshes before may take seconds to stop
		m.engine.Run(ctx)
		<-m.running
	}()
}

// setName sets the key that the log names.
func (m *member) setName(key string) {
	m.named = true
	m.engine.Reports.SetCluster(key)
}

// remove takes a key from the member that has it. The caller holds mu.
func (f *Fleet) remove(key string) {
	m := f.members[key]
	if m == nil {
		return
	}
	if e := m.keys[key]; e != nil {
		e.unregister()
	}
	delete(f.members, key)
	delete(m.keys, key)
	if len(m.keys) > 0 {
		m.setName(slices.Min(slices.Collect(maps.Keys(m.keys)))) // the log must not name a cluster that was removed
		return
	}
	if m.stop != nil {
		m.stop()
		m.stop = nil
	}
}

// trim removes what was not used for IdleTimeout and, if there is one more than MaxMappers, what was used least
// recently. The caller holds mu.
func (f *Fleet) trim() {
	now := time.Now()
	idle := 0
	oldestKey, oldest := "", (*member)(nil)
	for key, m := range f.members {
		if m.engine.TakeUse() {
			m.used = now
		}
		if m.keys[key] != nil {
			continue // it is engaged
		}
		if now.Sub(m.used) >= f.idleTimeout() {
			f.remove(key)
			continue
		}
		idle++
		if oldest == nil || m.usedBefore(oldest) {
			oldestKey, oldest = key, m
		}
	}
	if idle > f.maxMappers() {
		f.remove(oldestKey)
	}
	if idle > 0 && !f.trimTimer {
		f.trimTimer = true
		time.AfterFunc(max(f.idleTimeout()/20, time.Second), func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.trimTimer = false
			f.trim()
		})
	}
}

// usedBefore reports whether m was used less recently than other.
func (m *member) usedBefore(other *member) bool {
	return cmp.Or(m.used.Compare(other.used), cmp.Compare(m.lastUse, other.lastUse)) < 0
}

// Start waits until ctx ends. Then it empties the fleet, and returns when no mapper refreshes any more. It has the
// shape of controller-runtime's manager.Runnable. You may use the fleet before Start, and without it; after it, For
// keeps no mapper.
func (f *Fleet) Start(ctx context.Context) error {
	<-ctx.Done()
	f.mu.Lock()
	f.stopped = true
	for key := range f.members {
		f.remove(key)
	}
	f.mu.Unlock()
	f.runs.Wait()
	return nil
}

// NeedLeaderElection returns false: Start runs on every replica.
func (f *Fleet) NeedLeaderElection() bool { return false }

// mappers returns the mappers by their keys.
func (f *Fleet) mappers() map[string]*apiutil.DynamicRESTMapper {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make(map[string]*apiutil.DynamicRESTMapper, len(f.members))
	for key, m := range f.members {
		all[key] = m.mapper
	}
	return all
}

// ResetOnNoMatch is apiutil.ResetOnNoMatch for all mappers, because an error does not say which cluster it is from. It
// logs a line for each mapper that it resets.
func (f *Fleet) ResetOnNoMatch(err error) (reset bool) {
	for key, m := range f.mappers() {
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
	for key, m := range f.mappers() {
		all[key] = m.Status()
	}
	return all
}

// Healthz has the shape of controller-runtime's healthz.Checker. It fails if there are mappers and all are unhealthy,
// and names each: one cluster that is down is no reason to restart a program that works with the others.
func (f *Fleet) Healthz(*http.Request) error {
	all := f.mappers()
	var errs []error
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
		if !req.URL.Query().Has("cluster") {
			report.Page(func(bool) any { return map[string]any{"clusters": f.Status()} }).ServeHTTP(w, req)
			return
		}
		mapper := f.mappers()[req.URL.Query().Get("cluster")]
		if mapper == nil {
			http.Error(w, "the fleet has no such cluster", http.StatusNotFound)
			return
		}
		mapper.DebugHandler().ServeHTTP(w, req)
	})
}
