// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"

	ours "github.com/freshmapper/freshmapper/internal/discovery"
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
	d := &cachedDiscovery{DiscoveryInterface: c, mapper: m, turn: make(chan struct{}, 1)}
	d.filled.Store(&reading{})
	return d
}

// cachedDiscovery answers from a reading until the API changes.
type cachedDiscovery struct {
	discovery.DiscoveryInterface // what is not cached is c's
	mapper                       *DynamicRESTMapper
	turn                         chan struct{}           // of size 1: full while a reading goes on
	filled                       atomic.Pointer[reading] // the last
	answered                     atomic.Pointer[reading] // what ServerGroupsAndResources has answered first since Invalidate
	invalidated                  atomic.Uint64           // how often
	row                          atomic.Int64            // how many readings in a row Fresh has found outdated as soon as they had ended
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

// reading is everything that client-go's cache has read, and what that leaves out of versions
// that fail. But for outdated, nothing in it changes.
type reading struct {
	discovery.DiscoveryInterface // for what a reading does not have

	n      int                                             // how many were made before
	state  state                                           // of the mapper, before the reading
	err    error                                           // there is nothing to answer with
	groups *metav1.APIGroupList                            // nil beside an error
	lists  map[schema.GroupVersion]*metav1.APIResourceList // with the last good ones of what failed
	kept   map[schema.GroupVersion]*metav1.APIResourceList // lists, or those of the last reading that has some
	failed map[schema.GroupVersion]error

	ended  time.Time
	differ bool          // from what the mapper knew: the server, or a replica of it, was behind or ahead
	pause  time.Duration // after which another reading may be made, if this one differs or a version failed

	outdated atomic.Bool // Fresh has said so
}

const (
	// firstPause is the pause after a reading that is the first of its state. Each that follows
	// is twice as long, up to mostPause.
	firstPause, mostPause = 10 * time.Second, time.Minute
	mostRow               = 4
)

// current returns the last reading, or a new one if the API has changed. All who need one at the
// same time share it.
func (d *cachedDiscovery) current() *reading {
	d.mapper.hit()
	r := d.filled.Load()
	if r.groups != nil && r.state == d.state() {
		if r.due(d.mapper.reloader.Snapshot()) {
			select {
			case d.turn <- struct{}{}:
				go d.read() // nobody waits for it
			default:
			}
		}
		return r
	}
	d.turn <- struct{}{}
	now := d.filled.Load()
	if ended := now.n - r.n; ended == 0 || ended == 1 && now.err == nil && now.state != d.state() { // it may have begun before the call
		now = d.read()
	} else {
		<-d.turn
	}
	return now
}

// due reports whether another reading may find more, although the API is not known to have
// changed.
func (r *reading) due(known *snapshot.Snapshot) bool {
	differ := r.differ
	for gv := range r.failed {
		v := known.Group(gv.Group).Version(gv.Version)
		differ = differ || v == nil || v.Err == nil
	}
	return differ && time.Since(r.ended) >= r.pause
}

// read makes a reading. If nothing can be read, the last one goes on, unless it was invalidated.
// The caller has taken the turn, and read gives it back.
func (d *cachedDiscovery) read() *reading {
	defer func() { <-d.turn }()
	last := d.filled.Load()
	invalid := last.groups == nil || last.state.invalidated != d.invalidated.Load()
	if invalid {
		_ = d.refresh() // so that the mapper does not find later what c finds now
	}
	r, known := &reading{n: last.n + 1, state: d.state(), kept: last.kept, pause: firstPause}, d.mapper.reloader.Snapshot()
	if r.state == last.state {
		r.pause = min(2*last.pause, mostPause)
	}
	fill := func() (struct{}, error) { return struct{}{}, r.fill(d.DiscoveryInterface) }
	if _, err := ours.Guarded(context.Background(), fill); err == nil {
		r.differ = !r.agrees(known)
	} else if invalid {
		r.err = err
	} else {
		r.groups, r.lists, r.failed, r.differ = last.groups, last.lists, last.failed, true
	}
	r.ended = time.Now()
	d.filled.Store(r)
	return r
}

// fill reads everything. A version that fails has the list that it had last.
func (r *reading) fill(c discovery.DiscoveryInterface) error {
	cache := memory.NewMemCacheClient(c)
	cache.Invalidate() // if c has a cache, too
	groups, lists, err := cache.ServerGroupsAndResources()
	failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !partial {
		return err
	}
	if len(lists) == 0 {
		return errors.New("the server lists no APIs")
	}
	r.groups, r.failed, r.lists = &metav1.APIGroupList{}, failed, map[schema.GroupVersion]*metav1.APIResourceList{}
	for _, list := range lists {
		gv, _ := schema.ParseGroupVersion(list.GroupVersion)
		r.lists[gv] = list
	}
	at := map[string]int{}
	for i, g := range groups {
		r.groups.Groups, at[g.Name] = append(r.groups.Groups, *g), i
	}
	for gv := range failed {
		if list := cmp.Or(r.lists[gv], r.kept[gv]); list != nil {
			r.lists[gv] = list
		}
		if i, ok := at[gv.Group]; ok {
			addVersion(&r.groups.Groups[i], gv)
		}
	}
	r.kept = r.lists
	return nil
}

func (r *reading) ServerGroups() (*metav1.APIGroupList, error) { return r.groups, r.err }

func (r *reading) ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error) {
	gv, _ := schema.ParseGroupVersion(groupVersion)
	if list, err := r.lists[gv], cmp.Or(r.err, r.failed[gv]); list != nil || err != nil {
		return list, err
	}
	return nil, memory.ErrCacheNotFound
}

// addVersion adds a version to its group. Client-go leaves those that fail out of the aggregated
// document, whose first version is preferred.
func addVersion(g *metav1.APIGroup, gv schema.GroupVersion) {
	v := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
	if !slices.Contains(g.Versions, v) {
		g.Versions = append(slices.Clone(g.Versions), v)
		slices.SortStableFunc(g.Versions, func(a, b metav1.GroupVersionForDiscovery) int {
			return apiversion.CompareKubeAwareVersionStrings(b.Version, a.Version)
		})
		g.PreferredVersion = g.Versions[0]
	}
}

// agrees reports whether the lists have the kinds that are known, and no others.
func (r *reading) agrees(known *snapshot.Snapshot) bool {
	n := 0
	for gv, list := range r.lists {
		for _, resource := range list.APIResources {
			m, _, err := known.RESTMapping(schema.GroupKind{Group: gv.Group, Kind: resource.Kind}, []string{gv.Version})
			if err == nil && m.Resource.Resource == resource.Name && (m.Scope.Name() == meta.RESTScopeNameNamespace) == resource.Namespaced {
				n++
			} else if _, _, err = known.KindFor(gv.WithResource(resource.Name)); err != nil && !strings.Contains(resource.Name, "/") {
				return false
			}
		}
	}
	return n >= known.Kinds()
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
// false. While replicas of the server disagree, each reading is outdated at once: after mostRow of
// them in a row Fresh is true for a second.
func (d *cachedDiscovery) Fresh() bool {
	got := cmp.Or(d.answered.Load(), d.filled.Load())
	age := time.Since(got.ended)
	if d.refresh() != nil || got.state == d.state() && !got.due(d.mapper.reloader.Snapshot()) {
		return true
	}
	if first := got.outdated.CompareAndSwap(false, true); first && age < 100*time.Millisecond {
		d.row.Add(1)
	} else if first {
		d.row.Store(0)
	}
	return d.row.Load() > mostRow && age < time.Second
}

func (d *cachedDiscovery) Invalidate() {
	d.mapper.Reset()
	d.invalidated.Add(1)
	d.answered.Store(nil)
}

func (d *cachedDiscovery) ServerGroups() (*metav1.APIGroupList, error) {
	return d.current().ServerGroups()
}

// GroupsAndMaybeResources makes this a discovery.AggregatedDiscoveryInterface, as client-go's
// cache is.
func (d *cachedDiscovery) GroupsAndMaybeResources() (*metav1.APIGroupList, map[schema.GroupVersion]*metav1.APIResourceList, map[schema.GroupVersion]error, error) {
	r := d.current()
	return r.groups, maps.Clone(r.lists), maps.Clone(r.failed), r.err
}

func (d *cachedDiscovery) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	r := d.current()
	if r.err == nil {
		d.answered.CompareAndSwap(nil, r)
	}
	return discovery.ServerGroupsAndResources(r) // the lists in the order of the groups
}

func (d *cachedDiscovery) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	return discovery.ServerPreferredResources(d)
}

func (d *cachedDiscovery) ServerPreferredNamespacedResources() ([]*metav1.APIResourceList, error) {
	return discovery.ServerPreferredNamespacedResources(d)
}

func (d *cachedDiscovery) ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error) {
	list, err := d.current().ServerResourcesForGroupVersion(groupVersion)
	if err == memory.ErrCacheNotFound { //nolint:errorlint // A reading returns it as it is.
		_ = d.refresh()
		return d.current().ServerResourcesForGroupVersion(groupVersion)
	}
	return list, err
}

func (d *cachedDiscovery) WithLegacy() discovery.DiscoveryInterface { return d }
