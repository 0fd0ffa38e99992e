// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/util/flowcontrol"

	ours "github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// NewCachedDiscovery returns client-go's in-memory cache of c, which m keeps fresh: for
// verbs, short names, categories and subresources, and for code that takes a
// discovery.CachedDiscoveryInterface. m and c must not be nil, and of the same server.
// NewCachedDiscovery sends no request and starts no goroutine. All methods may be called
// from any goroutine. The cache owns what they return: do not change it.
//
// Answers have client-go's form: the groups as m knows them, and lists that are read through
// c. Each use counts as a use of m. The next use after m has noticed a change reads all lists,
// once for all that wait for them. What is read may be behind, or lack a version that fails. So
// later uses start further readings, for which nobody waits: after 10 seconds, 20 more, 40 more,
// in the end every 10 minutes. A version that is missing is looked for on the server before the
// error is memory.ErrCacheNotFound. One that fails keeps its place and its last good list beside
// the error, a *discovery.ErrGroupDiscoveryFailed where many lists are asked for. If nothing can
// be read, what was read last stays; after Invalidate the error is c's. OpenAPI documents are
// not kept.
//
// Fresh asks the server, so a mapper of restmapper.NewDeferredDiscoveryRESTMapper finds a late
// kind at the first lookup. It keeps what it found until a lookup misses or it is reset: use m
// itself where you can. Give each such mapper a cache of its own. While the server can't be
// read, Fresh is true. Right after a reading it is false at most four times, then once a minute:
// while replicas disagree, the mapper would otherwise ask without end. Invalidate is the Reset
// of m, and forgets what was read. On a server without aggregated discovery, a refresh of m
// reads every version from now on.
func NewCachedDiscovery(m *DynamicRESTMapper, c discovery.DiscoveryInterface) discovery.CachedDiscoveryInterface {
	m.reloader.KeepAll()
	d := &cachedDiscovery{DiscoveryInterface: c, mapper: m, turn: make(chan struct{}, 1), repeats: flowcontrol.NewTokenBucketPassiveRateLimiter(1.0/60, 4)}
	d.filled.Store(&reading{})
	return d
}

// cachedDiscovery answers from a reading until the API changes.
type cachedDiscovery struct {
	discovery.DiscoveryInterface // what is not cached is c's
	mapper                       *DynamicRESTMapper
	filled                       atomic.Pointer[reading]        // the last reading; an empty one after Invalidate
	answered                     atomic.Pointer[reading]        // the first that was given to a caller since Invalidate
	repeats                      flowcontrol.PassiveRateLimiter // for Fresh right after a reading

	turn chan struct{}                                   // of size 1: full while a reading goes on
	kept map[schema.GroupVersion]*metav1.APIResourceList // the last good lists; only who has the turn uses it
}

// reading is what was read at a time. But for outdated, nothing in it changes.
type reading struct {
	state    state
	groups   *metav1.APIGroupList                            // as the mapper knew them; nil: there is nothing to answer with
	lists    map[schema.GroupVersion]*metav1.APIResourceList // with the last good ones of what failed
	failed   map[schema.GroupVersion]error
	err      error // beside nothing
	ended    time.Time
	pause    time.Duration // after which another one may be made
	outdated atomic.Bool   // Fresh has said so
}

// state is the mapper's before a reading. It differs after each change of the API that the
// mapper has noticed, also of what a mapper does not know.
type state struct {
	generation uint64
	document   *snapshot.Document
}

func (d *cachedDiscovery) state() state {
	s := d.mapper.reloader.Snapshot()
	return state{s.Generation(), s.Document()}
}

// current returns the last reading, or a new one if the API has changed.
func (d *cachedDiscovery) current() *reading {
	d.mapper.noteUse()
	r := d.filled.Load()
	if r.groups != nil && r.state == d.state() {
		if time.Since(r.ended) >= r.pause {
			select {
			case d.turn <- struct{}{}:
				go d.read()
			default:
			}
		}
		return r
	}
	d.turn <- struct{}{}
	if now := d.filled.Load(); now != r && (now.err != nil || now.groups != nil && now.state == d.state()) {
		<-d.turn
		return now // somebody else has read for both
	}
	return d.read()
}

// read makes a reading. If that fails, the last one goes on, unless it was invalidated. The
// caller has taken the turn, and read gives it back.
func (d *cachedDiscovery) read() *reading {
	defer func() { <-d.turn }()
	last := d.filled.Load()
	_ = d.refresh() // so that the mapper does not find later what c finds now
	r := &reading{state: d.state(), pause: 10 * time.Second}
	if r.state == last.state {
		r.pause = min(2*last.pause, 10*time.Minute)
	}
	_, err := ours.Guarded(context.Background(), func() (struct{}, error) { return struct{}{}, d.fill(r) })
	if err != nil {
		r.groups, r.lists, r.failed = last.groups, last.lists, last.failed
	}
	if r.groups == nil {
		r.err = err
	}
	r.ended = time.Now()
	d.filled.CompareAndSwap(last, r) // it fails after Invalidate
	return r
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

// fill reads everything. A version that fails has the list that it had last.
func (d *cachedDiscovery) fill(r *reading) error {
	cache := memory.NewMemCacheClient(d.DiscoveryInterface)
	cache.Invalidate() // if c has a cache, too
	_, lists, err := cache.ServerGroupsAndResources()
	failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
	switch {
	case err != nil && !partial:
		return err
	case len(lists) == 0:
		return errors.New("the server lists no APIs")
	}
	r.lists, r.failed = map[schema.GroupVersion]*metav1.APIResourceList{}, failed
	for _, list := range lists {
		gv, _ := schema.ParseGroupVersion(list.GroupVersion)
		r.lists[gv] = list
	}
	for gv := range failed {
		if list := cmp.Or(r.lists[gv], d.kept[gv]); list != nil {
			r.lists[gv] = list
		}
	}
	d.kept = r.lists
	r.groups = r.groupsIn(d.mapper.reloader.Snapshot())
	return nil
}

// groupsIn returns the groups that a mapper knows, with the versions that were read or failed.
// Client-go's lack those that fail.
func (r *reading) groupsIn(s *snapshot.Snapshot) *metav1.APIGroupList {
	groups := &metav1.APIGroupList{}
	for _, known := range s.Groups() {
		g := metav1.APIGroup{Name: known.Name()}
		for _, version := range known.Versions() {
			gv := schema.GroupVersion{Group: g.Name, Version: version.Name}
			if r.lists[gv] == nil && r.failed[gv] == nil {
				continue
			}
			g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version})
			if version.Name == known.Preferred() {
				g.PreferredVersion = g.Versions[len(g.Versions)-1]
			}
		}
		if len(g.Versions) > 0 {
			groups.Groups = append(groups.Groups, g)
		}
	}
	return groups
}

// Fresh is about what a deferred mapper has got, which resets and asks again while Fresh is
// false. Of those who find a reading outdated as soon as it has ended, the first one counts.
func (d *cachedDiscovery) Fresh() bool {
	got := cmp.Or(d.answered.Load(), d.filled.Load())
	age := time.Since(got.ended)
	if d.refresh() != nil || got.state == d.state() && age < got.pause {
		return true
	}
	if age < 100*time.Millisecond && !got.outdated.Load() && !d.repeats.TryAccept() {
		return true
	}
	got.outdated.Store(true)
	return false
}

func (d *cachedDiscovery) Invalidate() {
	d.mapper.Reset()
	d.answered.Store(nil)
	last := d.filled.Load()
	d.filled.Store(&reading{state: last.state, pause: last.pause}) // the pauses go on growing
}

func (d *cachedDiscovery) ServerGroups() (*metav1.APIGroupList, error) {
	r := d.current()
	return r.groups, r.err
}

// GroupsAndMaybeResources makes this a discovery.AggregatedDiscoveryInterface, as client-go's
// cache is.
func (d *cachedDiscovery) GroupsAndMaybeResources() (*metav1.APIGroupList, map[schema.GroupVersion]*metav1.APIResourceList, map[schema.GroupVersion]error, error) {
	r := d.current()
	return r.groups, maps.Clone(r.lists), maps.Clone(r.failed), r.err
}

func (d *cachedDiscovery) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	if r := d.current(); r.err == nil {
		d.answered.CompareAndSwap(nil, r)
	}
	return discovery.ServerGroupsAndResources(d)
}

func (d *cachedDiscovery) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	return discovery.ServerPreferredResources(d)
}

func (d *cachedDiscovery) ServerPreferredNamespacedResources() ([]*metav1.APIResourceList, error) {
	return discovery.ServerPreferredNamespacedResources(d)
}

func (d *cachedDiscovery) ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error) {
	gv, _ := schema.ParseGroupVersion(groupVersion)
	r := d.current()
	if r.err == nil && r.lists[gv] == nil && r.failed[gv] == nil {
		if err := d.refresh(); err != nil {
			return nil, err
		}
		r = d.current()
	}
	switch list, err := r.lists[gv], r.failed[gv]; {
	case r.err != nil:
		return nil, r.err
	case list == nil && err == nil:
		return nil, memory.ErrCacheNotFound
	default:
		return list, err
	}
}

func (d *cachedDiscovery) WithLegacy() discovery.DiscoveryInterface { return d }
