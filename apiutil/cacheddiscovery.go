// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/util/flowcontrol"

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
// again; other uses send no request. A group-version that is missing is looked for on the
// server before the error is memory.ErrCacheNotFound. A version that fails keeps its last
// good list beside the error, a *discovery.ErrGroupDiscoveryFailed where lists of many are
// asked for. If c can read nothing, the error is c's. OpenAPI documents are not kept: they
// may change without a change of the API.
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
	d := &cachedDiscovery{DiscoveryInterface: c, mapper: m, retries: flowcontrol.NewTokenBucketRateLimiter(1, 4)}
	d.filled.Store(&fill{stamp: &stamp{state: state{invalidated: ^uint64(0)}}}) // outdated
	return d
}

// cachedDiscovery has a fill until the API changes.
type cachedDiscovery struct {
	discovery.DiscoveryInterface // what is not cached is c's
	mapper                       *DynamicRESTMapper
	invalidated                  atomic.Uint64 // how often
	filled                       atomic.Pointer[fill]
	filling                      sync.Mutex            // held while c reads: who needs that waits for it, as in client-go's cache
	answered                     atomic.Pointer[stamp] // by ServerGroupsAndResources, the first time since Invalidate
	retries                      flowcontrol.RateLimiter
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

// current returns the fill, or a new one if it is outdated.
func (d *cachedDiscovery) current() (*fill, error) {
	d.mapper.hit()
	if f := d.filled.Load(); !f.outdated(d.state()) {
		return f, nil
	}
	d.filling.Lock()
	defer d.filling.Unlock()
	last := d.filled.Load()
	if !last.outdated(d.state()) {
		return last, nil
	}
	if last.state.invalidated != d.invalidated.Load() {
		d.refresh() // so that the mapper does not find later what c finds now
	}
	next := &fill{CachedDiscoveryInterface: memory.NewMemCacheClient(d.DiscoveryInterface), stamp: &stamp{state: d.state()}}
	err := next.read(last, d.mapper)
	if err == nil {
		d.filled.Store(next)
	}
	return next, err
}

// refresh makes the mapper read the server. If it can't, nothing is known to have changed.
func (d *cachedDiscovery) refresh() {
	d.mapper.hit()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	_ = d.mapper.reloader.Refresh(ctx)
}

// Fresh is about what a deferred mapper has got. It is false for at most four readings, and one
// more each second: while replicas of the server disagree, each is outdated at once.
func (d *cachedDiscovery) Fresh() bool {
	got := cmp.Or(d.answered.Load(), d.filled.Load().stamp)
	d.refresh()
	if !got.outdated(d.state()) || !got.retried.Load() && !d.retries.TryAccept() {
		return true
	}
	got.retried.Store(true)
	return false
}

func (d *cachedDiscovery) Invalidate() {
	d.mapper.Reset()
	d.invalidated.Add(1)
	d.answered.Store(nil)
}

func (d *cachedDiscovery) ServerGroups() (*metav1.APIGroupList, error) {
	f, err := d.current()
	return f.groups, err
}

// GroupsAndMaybeResources makes this a discovery.AggregatedDiscoveryInterface, as client-go's
// cache is.
func (d *cachedDiscovery) GroupsAndMaybeResources() (*metav1.APIGroupList, map[schema.GroupVersion]*metav1.APIResourceList, map[schema.GroupVersion]error, error) {
	f, err := d.current()
	if err != nil || !f.aggregated {
		return f.groups, nil, nil, err
	}
	return f.groups, maps.Clone(f.lists), maps.Clone(f.failed), nil
}

func (d *cachedDiscovery) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	f, err := d.current()
	if err != nil {
		return nil, nil, err
	}
	d.answered.CompareAndSwap(nil, f.stamp)
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
	for again := false; ; again = true {
		f, err := d.current()
		if err != nil {
			return nil, err
		}
		list, err := f.ServerResourcesForGroupVersion(groupVersion)
		if again || !errors.Is(err, memory.ErrCacheNotFound) {
			return cmp.Or(list, f.lists[gv]), err
		}
		d.refresh()
	}
}

func (d *cachedDiscovery) WithLegacy() discovery.DiscoveryInterface { return d }

// stamp is of when the API was read.
type stamp struct {
	state   state       // of the mapper, before the reading
	until   time.Time   // something is missing: read again then; zero: nothing is
	retried atomic.Bool // Fresh was false for it
}

func (s *stamp) outdated(now state) bool {
	return s.state != now || !s.until.IsZero() && time.Now().After(s.until)
}

// fill is client-go's cache that has read everything, and what it leaves out of versions that
// fail.
type fill struct {
	discovery.CachedDiscoveryInterface
	*stamp
	aggregated bool
	groups     *metav1.APIGroupList                            // nil if nothing could be read
	lists      map[schema.GroupVersion]*metav1.APIResourceList // the last good ones
	failed     map[schema.GroupVersion]error
}

// read reads everything. A version that fails has the list that it had in last. If kinds that
// the mapper knows are missing or different, the server, or a replica of it, was behind.
func (f *fill) read(last *fill, mapper *DynamicRESTMapper) error {
	f.Invalidate() // if c has a cache, too
	groups, lists, err := f.CachedDiscoveryInterface.ServerGroupsAndResources()
	failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !partial {
		return err
	}
	if len(lists) == 0 {
		return errors.New("the server lists no APIs")
	}
	if c, ok := f.CachedDiscoveryInterface.(discovery.AggregatedDiscoveryInterface); ok {
		_, resources, _, _ := c.GroupsAndMaybeResources()
		f.aggregated = resources != nil
	}
	f.groups, f.failed, f.lists = &metav1.APIGroupList{}, failed, map[schema.GroupVersion]*metav1.APIResourceList{}
	for _, list := range lists {
		gv, _ := schema.ParseGroupVersion(list.GroupVersion)
		f.lists[gv] = list
	}
	missing, unknown := map[string][]string{}, false
	for gv := range failed {
		missing[gv.Group] = append(missing[gv.Group], gv.Version)
		if list := cmp.Or(f.lists[gv], last.lists[gv]); list != nil {
			f.lists[gv] = list
		} else {
			unknown = true
		}
	}
	for _, g := range groups {
		f.groups.Groups = append(f.groups.Groups, *withVersions(g.DeepCopy(), missing[g.Name]))
	}
	known := mapper.reloader.Snapshot()
	if unknown && !f.aggregated || f.kindsIn(known) < known.Kinds() { // only the aggregated document tells when a version recovers
		f.until = time.Now().Add(10 * time.Second)
	}
	return nil
}

// kindsIn counts the kinds that are known with the same resource and scope.
func (f *fill) kindsIn(known *snapshot.Snapshot) (n int) {
	for gv, list := range f.lists {
		for _, r := range list.APIResources {
			m, _, err := known.RESTMapping(schema.GroupKind{Group: gv.Group, Kind: r.Kind}, []string{gv.Version})
			if err == nil && m.Resource.Resource == r.Name && (m.Scope.Name() == meta.RESTScopeNameNamespace) == r.Namespaced {
				n++
			}
		}
	}
	return n
}

// withVersions adds versions to a group. Client-go leaves those that fail out of the aggregated
// document, whose first version is preferred.
func withVersions(g *metav1.APIGroup, versions []string) *metav1.APIGroup {
	for _, v := range versions {
		gv := metav1.GroupVersionForDiscovery{GroupVersion: schema.GroupVersion{Group: g.Name, Version: v}.String(), Version: v}
		if !slices.Contains(g.Versions, gv) {
			g.Versions = append(g.Versions, gv)
			slices.SortStableFunc(g.Versions, func(a, b metav1.GroupVersionForDiscovery) int {
				return apiversion.CompareKubeAwareVersionStrings(b.Version, a.Version)
			})
			g.PreferredVersion = g.Versions[0]
		}
	}
	return g
}
