// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// NewCachedDiscovery returns client-go's in-memory cache of c, which m keeps fresh: for
// verbs, short names, categories and subresources, and for code that takes a
// discovery.CachedDiscoveryInterface. m and c must not be nil, and of the same server.
// NewCachedDiscovery sends no request and starts no goroutine. All methods may be called
// from any goroutine. The cache owns what they return: do not change it.
//
// Answers have client-go's form, and are read through c. Each use counts as a use of m, so
// m confirms them every MaxAge. The next use after m has noticed a change reads everything
// again; other uses wait for no request. A group-version that is missing is looked for on the
// server before the error is memory.ErrCacheNotFound. A version that fails keeps its last
// good list beside the error, a *discovery.ErrGroupDiscoveryFailed where lists of many are
// asked for. If c can read nothing, what was read last stays; after Invalidate the error is
// c's. OpenAPI documents are not kept: they may change without a change of the API.
//
// Fresh asks the server, as a miss of m does. It is false if the API has changed since the
// cache was filled, and true right after a fill. So a mapper of
// restmapper.NewDeferredDiscoveryRESTMapper finds a late kind at the first lookup, and never
// asks without end. Give each such mapper a cache of its own. It keeps what it found until a
// lookup misses or it is reset: use m itself where you can. While the server can't be read,
// Fresh is true. Invalidate is the Reset of m, and what was read before it is forgotten. On a
// server without aggregated discovery, a refresh of m reads every version from now on.
func NewCachedDiscovery(m *DynamicRESTMapper, c discovery.DiscoveryInterface) discovery.CachedDiscoveryInterface {
	m.reloader.KeepAll()
	d := &cachedDiscovery{DiscoveryInterface: c, mapper: m}
	d.filled.Store(&fill{state: state{invalidated: ^uint64(0)}}) // outdated
	return d
}

// cachedDiscovery has a fill until the API changes.
type cachedDiscovery struct {
	discovery.DiscoveryInterface // what is not cached is c's
	mapper                       *DynamicRESTMapper
	invalidated                  atomic.Uint64        // how often
	filled, answered             atomic.Pointer[fill] // answered by ServerGroupsAndResources, the first time since Invalidate

	mu      sync.Mutex // held for short work in memory only; guards what follows
	running *reading   // nil if there is none
	retries int        // how often in a row Fresh was false for what had just been read
	rest    time.Time  // until then Fresh is true
}

// state differs after each change of the API, also of what a mapper does not know.
type state struct {
	generation, invalidated uint64
	document                *snapshot.List
}

func (d *cachedDiscovery) state() state {
	s := d.mapper.reloader.Snapshot()
	return state{s.Generation(), d.invalidated.Load(), s.Document()}
}

// current returns the fill, or a new one if the API has changed.
func (d *cachedDiscovery) current() (*fill, error) {
	d.mapper.hit()
	if f := d.filled.Load(); f.state == d.state() {
		if f.due(d.mapper.reloader.Snapshot()) {
			d.read() // nobody waits for it
		}
		return f, nil
	}
	r := d.read()
	<-r.done
	if r.err == nil && r.fill.state != d.state() { // it may have begun before the call
		r = d.read()
		<-r.done
	}
	return r.fill, r.err
}

// reading is a read of everything through c, shared by all that wait for it.
type reading struct {
	done chan struct{}
	fill *fill // this and err are written before done is closed
	err  error
}

// read returns the reading that is under way, or a new one.
func (d *cachedDiscovery) read() *reading {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running == nil {
		r := &reading{done: make(chan struct{})}
		d.running = r
		go func() {
			r.fill, r.err = d.fill(d.filled.Load())
			d.filled.Store(r.fill)
			d.mu.Lock()
			defer d.mu.Unlock()
			d.running = nil
			close(r.done)
		}()
	}
	return d.running
}

// fill reads everything. If that fails, last goes on, unless it was invalidated.
func (d *cachedDiscovery) fill(last *fill) (*fill, error) {
	invalid := last.state.invalidated != d.invalidated.Load()
	if invalid {
		_ = d.refresh() // so that the mapper does not find later what c finds now
	}
	next := &fill{state: d.state()}
	if err := next.read(d.DiscoveryInterface, last, d.mapper.reloader.Snapshot()); err != nil {
		if invalid {
			return last, err
		}
		next.groups, next.lists, next.failed = last.groups, last.lists, last.failed
		next.pause, next.differ = firstPause, true
	}
	next.ended = time.Now()
	return next, nil
}

// refresh makes the mapper read the document; without the aggregated one, also the versions that
// answer soon.
func (d *cachedDiscovery) refresh() error {
	d.mapper.hit()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	err := d.mapper.reloader.ReadDocument(ctx)
	if err == nil && !d.mapper.reloader.Snapshot().Aggregated() {
		_ = d.mapper.reloader.Refresh(ctx)
	}
	return err
}

// Fresh is about what a deferred mapper has got, which reads and asks at once again while Fresh is
// false. While replicas of the server disagree, each reading is outdated at once: after four of
// them in a row Fresh is true for a second.
func (d *cachedDiscovery) Fresh() bool {
	got := cmp.Or(d.answered.Load(), d.filled.Load())
	atOnce, again := time.Since(got.ended) < 100*time.Millisecond, got.asked.Swap(true)
	if d.refresh() != nil || got.state == d.state() && !got.due(d.mapper.reloader.Snapshot()) {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if atOnce && !again {
		d.retries++
	} else if !again {
		d.retries = 0
	}
	if d.retries > 4 {
		d.retries, d.rest = 0, time.Now().Add(time.Second)
	}
	return time.Now().Before(d.rest)
}

func (d *cachedDiscovery) Invalidate() {
	d.mapper.Reset()
	d.invalidated.Add(1)
	d.answered.Store(nil)
}

func (d *cachedDiscovery) ServerGroups() (*metav1.APIGroupList, error) {
	f, err := d.current()
	if err != nil {
		return nil, err
	}
	return f.groups, nil
}

// GroupsAndMaybeResources makes this a discovery.AggregatedDiscoveryInterface, as client-go's
// cache is.
func (d *cachedDiscovery) GroupsAndMaybeResources() (*metav1.APIGroupList, map[schema.GroupVersion]*metav1.APIResourceList, map[schema.GroupVersion]error, error) {
	f, err := d.current()
	if err != nil {
		return nil, nil, nil, err
	}
	return f.groups, maps.Clone(f.lists), maps.Clone(f.failed), nil
}

func (d *cachedDiscovery) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	f, err := d.current()
	if err != nil {
		return nil, nil, err
	}
	d.answered.CompareAndSwap(nil, f)
	groups, lists := f.ordered()
	if len(f.failed) > 0 {
		err = &discovery.ErrGroupDiscoveryFailed{Groups: maps.Clone(f.failed)}
	}
	return groups, lists, err
}

func (d *cachedDiscovery) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	return discovery.ServerPreferredResources(d)
}

func (d *cachedDiscovery) ServerPreferredNamespacedResources() ([]*metav1.APIResourceList, error) {
	return discovery.ServerPreferredNamespacedResources(d)
}

func (d *cachedDiscovery) ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error) {
	gv, _ := schema.ParseGroupVersion(groupVersion)
	for again := false; ; again = true {
		f, err := d.current()
		if err != nil {
			return nil, err
		}
		if list, err := f.lists[gv], f.failed[gv]; list != nil || err != nil {
			return list, err
		}
		if again {
			return nil, memory.ErrCacheNotFound
		}
		_ = d.refresh()
	}
}

func (d *cachedDiscovery) WithLegacy() discovery.DiscoveryInterface { return d }
