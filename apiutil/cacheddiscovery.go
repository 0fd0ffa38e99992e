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
	"k8s.io/client-go/util/flowcontrol"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// NewCachedDiscovery returns a cache of what c reads, which m keeps fresh, in the place of
// client-go's memory.NewMemCacheClient: for verbs, short names, categories and subresources. m and c
// must not be nil, and of the same server. It sends no request and starts no goroutine. All methods
// may be called from any goroutine. The cache owns what they return: do not change it.
//
// Each use counts as a use of m. The next use after m has learnt of a change, or was reset, reads
// all groups and lists. It waits for that RequestTimeout at most; the reading goes on by itself. A
// version that fails keeps its place and its last list, beside the error. A reading that fails leaves
// what is known. If nothing is, as after Invalidate, uses return the error, and apierrors.IsNotFound
// is false for it. A version that is missing is looked for on the server before the error is
// memory.ErrCacheNotFound. OpenAPI documents are not kept.
//
// Fresh asks the server, so a mapper of restmapper.NewDeferredDiscoveryRESTMapper finds a late kind
// at the first lookup, if the server's document has it. Give each such mapper a cache of its own.
// While the server can't be read, Fresh is true. Right after a reading it is false four times, then
// once a minute: replicas may disagree. Invalidate is the Reset of m, and forgets what was read.
// Without aggregated discovery, a refresh of m reads every version from now on.
func NewCachedDiscovery(m *DynamicRESTMapper, c discovery.DiscoveryInterface) discovery.CachedDiscoveryInterface {
	m.reloader.KeepAll()
	d := &cachedDiscovery{DiscoveryInterface: c, mapper: m, repeats: flowcontrol.NewTokenBucketPassiveRateLimiter(1.0/60, 4)}
	d.last.Store(&reading{err: errUnread})
	return d
}

// cachedDiscovery answers from its last reading. The mapper says when to make another.
type cachedDiscovery struct {
	discovery.DiscoveryInterface // what is not cached is its
	mapper                       *DynamicRESTMapper
	last                         atomic.Pointer[reading]
	given                        atomic.Pointer[reading]        // what a deferred mapper has: the first since Invalidate
	repeats                      flowcontrol.PassiveRateLimiter // of readings that would follow each other at once
	mu                           sync.Mutex                     // guards next, for short work in memory only
	next                         *reading                       // the one under way, or nil
}

// state is what the mapper knows. The document also tells of what is of no use to a mapper.
type state struct {
	generation uint64
	document   *snapshot.Document
	reset      snapshot.Tick
}

func (d *cachedDiscovery) state() state {
	s := d.mapper.reloader.Snapshot()
	return state{s.Generation(), s.Document(), s.LastResetOfAny()}
}

// current returns the last reading. It waits for the next one if the mapper has learnt of a
// change, or if there is nothing to answer with: in an outage only now and then.
func (d *cachedDiscovery) current() *reading {
	d.mapper.noteUse()
	r := d.last.Load()
	due := time.Since(r.ended) >= r.pause
	if r.state == d.state() && (r.err == nil || !due && !d.repeats.TryAccept()) {
		if due {
			d.begin()
		}
		return r
	}
	for range 2 { // the first one may have begun before the change
		next, joined := d.begin()
		most := d.mapper.options.RequestTimeout
		if r.err == nil { // nobody waits for one that is late
			most -= time.Since(next.began)
		}
		select {
		case <-next.done:
		case <-time.After(most):
			return d.last.Load()
		}
		if r = next; !joined || !r.outage && r.state == d.state() {
			break
		}
	}
	return r
}

// begin begins a reading, or joins the one that is under way.
func (d *cachedDiscovery) begin() (next *reading, joined bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if joined = d.next != nil; !joined {
		d.next = &reading{began: time.Now(), done: make(chan struct{})}
		go d.read(d.next)
	}
	return d.next, joined
}

// refresh makes the mapper read the document; without the aggregated one, also the versions that
// answer soon.
func (d *cachedDiscovery) refresh() error {
	d.mapper.noteUse()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	err := d.mapper.reloader.ReadDocument(ctx)
	if err == nil && !d.mapper.reloader.Snapshot().Aggregated() {
		_ = d.mapper.reloader.Refresh(ctx)
	}
	return err
}

// Fresh is about what a deferred mapper has got, which resets and asks again while Fresh is
// false. Of those who find a reading outdated as soon as it has ended, the first one counts.
func (d *cachedDiscovery) Fresh() bool {
	got := cmp.Or(d.given.Load(), d.last.Load())
	age := time.Since(got.ended)
	if d.refresh() != nil {
		return true
	}
	now := d.state()
	now.reset = got.state.reset // a reset alone is no news
	if got.state == now && age < got.pause || age < 100*time.Millisecond && !got.outdated.Load() && !d.repeats.TryAccept() {
		return true
	}
	got.outdated.Store(true)
	return false
}

func (d *cachedDiscovery) Invalidate() {
	d.mapper.Reset()
	d.given.Store(nil)
	last := d.last.Load()
	d.last.Store(&reading{err: errUnread, lists: last.lists, state: d.state(), pause: last.pause}) // the pauses go on growing
}

func (d *cachedDiscovery) ServerGroups() (*metav1.APIGroupList, error) {
	return d.current().ServerGroups()
}

// GroupsAndMaybeResources makes this a discovery.AggregatedDiscoveryInterface, as client-go's is.
func (d *cachedDiscovery) GroupsAndMaybeResources() (*metav1.APIGroupList, map[schema.GroupVersion]*metav1.APIResourceList, map[schema.GroupVersion]error, error) {
	r := d.current()
	if r.err != nil {
		return nil, nil, nil, r.err
	}
	return r.groups, maps.Clone(r.lists), maps.Clone(r.failed), nil
}

func (d *cachedDiscovery) ServerGroupsAndResources() (groups []*metav1.APIGroup, lists []*metav1.APIResourceList, err error) {
	r := d.current()
	if r.err != nil {
		return nil, nil, r.err
	}
	d.given.CompareAndSwap(nil, r)
	for i := range r.groups.Groups {
		g := &r.groups.Groups[i]
		groups = append(groups, g)
		for _, v := range g.Versions {
			if list := r.lists[schema.GroupVersion{Group: g.Name, Version: v.Version}]; list != nil {
				lists = append(lists, list)
			}
		}
	}
	if len(r.failed) > 0 {
		err = &discovery.ErrGroupDiscoveryFailed{Groups: maps.Clone(r.failed)}
	}
	return groups, lists, err
}

func (d *cachedDiscovery) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	return discovery.ServerPreferredResources(d.current())
}

func (d *cachedDiscovery) ServerPreferredNamespacedResources() ([]*metav1.APIResourceList, error) {
	return discovery.ServerPreferredNamespacedResources(d.current())
}

func (d *cachedDiscovery) ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error) {
	list, err := d.current().ServerResourcesForGroupVersion(groupVersion)
	if err != memory.ErrCacheNotFound { //nolint:errorlint // It is ours.
		return list, err
	}
	if err := d.refresh(); err != nil {
		return nil, err
	}
	return d.current().ServerResourcesForGroupVersion(groupVersion)
}

func (d *cachedDiscovery) WithLegacy() discovery.DiscoveryInterface { return d }
