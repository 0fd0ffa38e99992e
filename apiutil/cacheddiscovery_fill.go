// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"cmp"
	"errors"
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

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// fill is everything that client-go's cache has read, and what that leaves out of versions that
// fail. Only asked changes.
type fill struct {
	state  state // of the mapper, before the reading
	ended  time.Time
	pause  time.Duration // after which another reading may be made
	differ bool          // from what the mapper knew
	asked  atomic.Bool   // by Fresh
	groups *metav1.APIGroupList
	lists  map[schema.GroupVersion]*metav1.APIResourceList // the last good ones
	failed map[schema.GroupVersion]error
}

// firstPause is the pause after a reading that lacks something. Each that follows is twice as long,
// up to mostPause.
const firstPause, mostPause = 10 * time.Second, time.Minute

// due reports whether another reading may find more, although the API is not known to have
// changed: the reading was of a server that is behind or ahead, or a version that failed is well.
func (f *fill) due(known *snapshot.Snapshot) bool {
	if !f.differ && len(f.failed) == 0 || time.Since(f.ended) < f.pause {
		return false
	}
	differ := f.differ
	for gv := range f.failed {
		v := known.Group(gv.Group).Version(gv.Version)
		differ = differ || v == nil || v.Err == nil
	}
	return differ
}

// read reads everything. A version that fails has the list that it had in last. If it has
// other kinds than are known, the server, or a replica of it, was behind or ahead.
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
			} else if _, _, err = known.KindFor(gv.WithResource(r.Name)); err != nil && !strings.Contains(r.Name, "/") {
				f.differ = true
			}
		}
	}
	f.differ = f.differ || n < known.Kinds()
	if f.differ || len(failed) > 0 {
		f.pause = max(firstPause, min(2*last.pause, mostPause))
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
