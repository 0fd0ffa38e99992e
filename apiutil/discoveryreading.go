// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"

	ours "github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// reading is what was read at a time. Functions of client-go take it for a discovery client. But
// for outdated, nothing in it changes once it has ended.
type reading struct {
	discovery.DiscoveryInterface // nil
	groups                       *metav1.APIGroupList
	lists                        map[schema.GroupVersion]*metav1.APIResourceList // with the last ones of versions that failed
	failed                       map[schema.GroupVersion]error
	err                          error // why nothing is known

	outage   bool          // nothing was read: what is known is of the reading before
	state    state         // before it
	began    time.Time     // set first, as is done
	done     chan struct{} // closed when it has ended
	ended    time.Time
	pause    time.Duration // after which another one may be made
	outdated atomic.Bool   // Fresh has said so
}

var errUnread = errors.New("the discovery client has not answered yet")

func (r *reading) ServerGroups() (*metav1.APIGroupList, error) { return r.groups, r.err }

func (r *reading) ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error) {
	gv, _ := schema.ParseGroupVersion(groupVersion)
	if r.err != nil || r.lists[gv] == nil && r.failed[gv] == nil {
		return nil, cmp.Or(r.err, memory.ErrCacheNotFound)
	}
	return r.lists[gv], r.failed[gv]
}

// read makes a reading. The mapper reads before it, so that it does not find later what the
// client finds now.
func (d *cachedDiscovery) read(r *reading) {
	last, most := d.last.Load(), 10*time.Minute
	_ = d.refresh()
	r.state = d.state()
	if _, err := ours.Guarded(context.Background(), func() (*reading, error) { return r, d.fill(r, last) }); err != nil {
		r.groups, r.lists, r.failed, r.err, r.outage = last.groups, last.lists, last.failed, last.err, true
		if most = 40 * time.Second; r.err != nil {
			r.err = err
		}
	}
	r.ended, r.pause = time.Now(), 10*time.Second
	if r.state == last.state && r.outage == last.outage {
		r.pause = min(2*last.pause, most)
	}
	d.last.CompareAndSwap(last, r) // it fails after Invalidate
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next = nil
	close(r.done)
}

// fill reads all groups and lists. A version that fails has the list that it had last.
func (d *cachedDiscovery) fill(r, last *reading) (err error) {
	if cached, ok := d.DiscoveryInterface.(discovery.CachedDiscoveryInterface); ok {
		cached.Invalidate()
	}
	if c, ok := d.DiscoveryInterface.(discovery.AggregatedDiscoveryInterface); ok {
		r.groups, r.lists, r.failed, err = c.GroupsAndMaybeResources()
	} else {
		r.groups, err = d.DiscoveryInterface.ServerGroups()
	}
	if err != nil {
		return outage("/apis", err)
	}
	if r.lists == nil { // there is no aggregated document
		_, lists, err := discovery.ServerGroupsAndResources(oneByOne{d.DiscoveryInterface, r.groups})
		r.failed, _ = discovery.GroupDiscoveryFailedErrorGroups(err)
		r.lists = map[schema.GroupVersion]*metav1.APIResourceList{}
		for _, list := range lists {
			gv, _ := schema.ParseGroupVersion(list.GroupVersion)
			r.lists[gv] = list
		}
	}
	if len(r.lists) == 0 && len(r.failed) > 0 {
		failed := ErrResourceDiscoveryFailed(r.failed)
		return &failed
	}
	for gv := range r.failed {
		if list := last.lists[gv]; list != nil {
			r.lists[gv] = list
		}
	}
	return r.arrange(d.mapper.reloader.Snapshot())
}

// oneByOne is a discovery client with groups that are known, through which client-go reads lists.
type oneByOne struct {
	discovery.DiscoveryInterface
	groups *metav1.APIGroupList
}

func (c oneByOne) ServerGroups() (*metav1.APIGroupList, error) { return c.groups, nil }

// ServerResourcesForGroupVersion reads a list. The path says of which version it is, whatever the
// list says. Client-go makes an empty list without a kind of a 404 of /api/v1, and of any object.
func (c oneByOne) ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error) {
	list, err := ours.Guarded(context.Background(), func() (*metav1.APIResourceList, error) {
		return c.DiscoveryInterface.ServerResourcesForGroupVersion(groupVersion)
	})
	if err != nil {
		return nil, outage("/apis/"+groupVersion, err)
	}
	said, _ := schema.ParseGroupVersion(list.GroupVersion)
	if asked, _ := schema.ParseGroupVersion(groupVersion); said.Group != asked.Group || list.Kind == "" && len(list.APIResources) == 0 {
		return nil, outage("/apis/"+groupVersion, fmt.Errorf("the answer is no list of its resources, but of %.300q", list.GroupVersion))
	}
	own := *list
	own.GroupVersion = groupVersion
	return &own, nil
}

// arrange puts groups and versions into the mapper's order. Versions that failed have a place, too,
// which client-go leaves out; what the mapper does not know comes last. It is an error if there is
// no core group, or no other, and the mapper knows some: client-go takes any 404 of /api, and any
// object of /apis, for an answer without groups.
func (r *reading) arrange(known *snapshot.Snapshot) error {
	read := r.groups.Groups
	r.groups = &metav1.APIGroupList{}
	place, halves := map[string]int{}, map[bool]bool{}
	add := func(group, version, preferred string) {
		gv := schema.GroupVersion{Group: group, Version: version}
		if r.lists[gv] == nil && r.failed[gv] == nil {
			return
		}
		i, ok := place[group]
		if !ok {
			i = len(r.groups.Groups)
			place[group], r.groups.Groups = i, append(r.groups.Groups, metav1.APIGroup{Name: group})
		}
		g, v := &r.groups.Groups[i], metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: version}
		if slices.Contains(g.Versions, v) {
			return
		}
		if g.Versions = append(g.Versions, v); version == preferred {
			g.PreferredVersion = v
		}
	}
	for _, g := range known.Groups() {
		halves[g.Name() == ""] = true
		for _, v := range g.Versions() {
			add(g.Name(), v.Name, g.Preferred())
		}
	}
	for _, g := range read {
		for _, v := range g.Versions {
			add(g.Name, v.Version, g.PreferredVersion.Version)
		}
	}
	for group := range place {
		delete(halves, group == "")
	}
	if len(halves) > 0 || len(place) == 0 {
		return outage("/api or /apis", errors.New("groups are missing in the answer, which a gateway may have sent"))
	}
	return nil
}

// outage returns an error for which apierrors.IsNotFound is false: a 404 may be a gateway's.
func outage(path string, err error) error {
	if apierrors.IsNotFound(err) {
		err = errors.New(err.Error())
	}
	return &ours.Error{Path: strings.Replace(path, "/apis/v1", "/api/v1", 1), Err: err}
}
