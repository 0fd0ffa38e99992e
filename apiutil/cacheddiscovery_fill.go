// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"cmp"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// fill is everything that client-go's cache has read, and what that leaves out of versions that
// fail. Only asked changes.
type fill struct {
	state  state         // of the mapper, before the reading
	tick   snapshot.Tick // before the reading
	ended  time.Time
	until  time.Time     // something is missing: read again then; zero: nothing is
	pause  time.Duration // before until
	asked  atomic.Bool   // by Fresh
	groups *metav1.APIGroupList
	lists  map[schema.GroupVersion]*metav1.APIResourceList // the last good ones
	failed map[schema.GroupVersion]error
}

// missingFor is how long a reading counts that lacks something. Those that follow count twice as
// long each, up to a minute.
const missingFor = 10 * time.Second

// due reports whether another reading may find more, although the API is not known to have
// changed: a version that failed is well again. The aggregated document tells that itself.
func (f *fill) due(known *snapshot.Snapshot) bool {
	for gv := range f.failed {
		v := known.Group(gv.Group).Version(gv.Version)
		if v != nil && v.Err == nil && v.Read > f.tick && !known.Aggregated() {
			return true
		}
	}
	return !f.until.IsZero() && time.Now().After(f.until)
}

// read reads everything. A version that fails has the list that it had in last. If kinds that
// are known are missing or different, the server, or a replica of it, was behind.
func (f *fill) read(c discovery.DiscoveryInterface, last *fill, known *snapshot.Snapshot) error {
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
	f.groups, f.failed, f.lists = &metav1.APIGroupList{}, failed, map[schema.GroupVersion]*metav1.APIResourceList{}
	for _, list := range lists {
		gv, _ := schema.ParseGroupVersion(list.GroupVersion)
		f.lists[gv] = list
	}
	missing := map[string][]string{}
	for gv := range failed {
		missing[gv.Group] = append(missing[gv.Group], gv.Version)
		if list := cmp.Or(f.lists[gv], last.lists[gv]); list != nil {
			f.lists[gv] = list
		}
	}
	for _, g := range groups {
		f.groups.Groups = append(f.groups.Groups, *withVersions(g.DeepCopy(), missing[g.Name]))
	}
	n := 0
	for gv, list := range f.lists {
		for _, r := range list.APIResources {
			m, _, err := known.RESTMapping(schema.GroupKind{Group: gv.Group, Kind: r.Kind}, []string{gv.Version})
			if err == nil && m.Resource.Resource == r.Name && (m.Scope.Name() == meta.RESTScopeNameNamespace) == r.Namespaced {
				n++
			}
		}
	}
	if n < known.Kinds() {
		f.pause = max(missingFor, min(2*last.pause, time.Minute))
		f.until = time.Now().Add(f.pause)
	}
	return nil
}

// ordered returns the groups, and the lists in their order.
func (f *fill) ordered() (groups []*metav1.APIGroup, lists []*metav1.APIResourceList) {
	for i := range f.groups.Groups {
		g := &f.groups.Groups[i]
		groups = append(groups, g)
		for _, v := range g.Versions {
			if list := f.lists[schema.GroupVersion{Group: g.Name, Version: v.Version}]; list != nil {
				lists = append(lists, list)
			}
		}
	}
	return groups, lists
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
