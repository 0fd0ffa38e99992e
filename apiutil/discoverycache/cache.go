// SPDX-License-Identifier: Apache-2.0

package discoverycache

import (
	"cmp"
	"context"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/engine"
)

// New returns a discovery cache that the mapper keeps fresh, in the place of client-go's memory.NewMemCacheClient. What
// is not cached, such as OpenAPI documents and the server's version, is the client's. Both must not be nil, and be of
// the same server.
//
// From now on the mapper keeps all that the server sends, which takes several times the memory, and what it has read
// before counts as reset: its next lookup reads the server. New sends no request and starts no goroutine. All methods
// may be called from any goroutine. The cache owns what they return: do not change it.
//
// A use of the cache is a use of the mapper: it sends no request if everything was read or confirmed within MaxAge, and
// reads the server otherwise. For what is served at this moment, call Refresh of the mapper first, or Invalidate, which
// is also its Reset.
//
// In an outage, methods return what is known together with an error; those that return lists of several versions with a
// *discovery.ErrGroupDiscoveryFailed that has all of them. If nothing is known, as at first and after Invalidate, they
// return the error alone. apierrors.IsNotFound is false for it. A version that is missing is looked for on the server
// before the error is memory.ErrCacheNotFound.
//
// Fresh asks the server, so a mapper of restmapper.NewDeferredDiscoveryRESTMapper finds a kind that is installed late
// at the first lookup, if the server's document has it. Give each such mapper a cache of its own. Without aggregated
// discovery, a refresh of the mapper reads every version from now on.
func New(
	mapper *apiutil.DynamicRESTMapper, client discovery.DiscoveryInterface,
) discovery.CachedDiscoveryInterface {
	e := engine.Of(mapper)
	e.Reloader.KeepResourceLists()
	return &cachedDiscovery{
		DiscoveryInterface: client,
		engine:             e,
		retries:            flowcontrol.NewTokenBucketPassiveRateLimiter(1.0/60, 4),
	}
}

var (
	_ discovery.CachedDiscoveryInterface     = (*cachedDiscovery)(nil)
	_ discovery.AggregatedDiscoveryInterface = (*cachedDiscovery)(nil) // Velero needs that
)

// ServerGroups returns the groups, in the mapper's order. Versions that fail have a place, too.
func (d *cachedDiscovery) ServerGroups() (*metav1.APIGroupList, error) {
	v, err := d.use()
	if v == nil {
		return nil, err
	}
	return v.groups, err
}

// GroupsAndMaybeResources returns groups and lists, and the versions that failed.
func (d *cachedDiscovery) GroupsAndMaybeResources() (
	*metav1.APIGroupList, map[schema.GroupVersion]*metav1.APIResourceList, map[schema.GroupVersion]error, error,
) {
	v, err := d.use()
	if v == nil {
		return nil, nil, nil, err
	}
	return v.groups, maps.Clone(v.lists), maps.Clone(v.failed), nil
}

// ServerGroupsAndResources returns groups and lists, in the mapper's order. Deferred mappers of client-go call it.
func (d *cachedDiscovery) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	v, err := d.use()
	if v == nil {
		return nil, nil, err
	}
	d.given.CompareAndSwap(nil, v)
	return v.groupsAndResources()
}

// ServerPreferredResources returns the resources in the versions that the server prefers.
func (d *cachedDiscovery) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	v, err := d.use()
	if v == nil {
		return nil, err
	}
	return discovery.ServerPreferredResources(v)
}

// ServerPreferredNamespacedResources returns those of them that are namespaced.
func (d *cachedDiscovery) ServerPreferredNamespacedResources() ([]*metav1.APIResourceList, error) {
	v, err := d.use()
	if v == nil {
		return nil, err
	}
	return discovery.ServerPreferredNamespacedResources(v)
}

// ServerResourcesForGroupVersion returns the resources of a version, and looks for it on the server if it is not known.
func (d *cachedDiscovery) ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error) {
	gv, err := schema.ParseGroupVersion(groupVersion)
	if err != nil {
		return nil, memory.ErrCacheNotFound
	}
	v, outage := d.use()
	if v == nil {
		return nil, outage
	}
	list, isKnown, err := v.resourceList(gv)
	if outage != nil {
		return list, outage
	}
	if isKnown {
		return list, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), d.engine.Options.RequestTimeout)
	defer cancel()
	read, err := d.engine.Reloader.ReadLive(ctx, gv)
	if err != nil {
		return nil, err
	}
	list, isKnown, err = newView(read, engine.FailedVersions(read)).resourceList(gv)
	if isKnown {
		return list, err
	}
	return nil, memory.ErrCacheNotFound // callers compare it
}

// Invalidate makes the cache forget what it knows, and resets the mapper.
func (d *cachedDiscovery) Invalidate() {
	d.engine.Reloader.Reset()
	d.invalidated.Store(uint64(d.engine.Reloader.Snapshot().LastReset()))
	d.given.Store(nil)
}

// A deferred mapper for which Fresh is false resets, reads again, and calls Fresh again: at once if it does not find
// the kind in the new answers either. While replicas of the API server disagree, each read finds something else. So
// answers that are younger than soonOutdated are called outdated only a few times, and once a minute after that.
const soonOutdated = 100 * time.Millisecond

// Fresh reports whether the server still serves what a deferred mapper has got from the cache. In an outage it is true:
// a deferred mapper that reads again would know nothing.
func (d *cachedDiscovery) Fresh() bool {
	given := cmp.Or(d.given.Load(), d.last.Load())
	began := time.Now()
	if state, _, _ := d.state(); state == failing {
		return true
	}
	if d.refresh() != nil {
		return true
	}
	if given == nil {
		return false
	}
	now := d.engine.Reloader.Snapshot()
	if given.sameAs(newView(now, nil)) {
		return true
	}
	if began.Sub(given.made) < soonOutdated && !given.outdated.Load() && !d.retries.TryAccept() {
		return true
	}
	given.outdated.Store(true) // so that all mappers that find it so at the same time do not count
	return false
}

// refreshTimeout bounds how long Fresh waits for the server.
const refreshTimeout = 3 * time.Second

// refresh makes the mapper read the document; without the aggregated one, also the versions that answer soon.
func (d *cachedDiscovery) refresh() error {
	d.engine.NoteUse()
	ctx, cancel := context.WithTimeout(context.Background(), refreshTimeout)
	defer cancel()
	err := d.engine.Reloader.ReadDocument(ctx)
	if err == nil && !d.engine.Reloader.Snapshot().Aggregated() {
		_ = d.engine.Reloader.Refresh(ctx)
	}
	return err
}

// WithLegacy returns the cache: it has everything, whichever form of discovery the server speaks.
func (d *cachedDiscovery) WithLegacy() discovery.DiscoveryInterface { return d }
