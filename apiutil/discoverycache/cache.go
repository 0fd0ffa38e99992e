// SPDX-License-Identifier: Apache-2.0

// Package discoverycache keeps what client-go's discovery returns, and a RESTMapper keeps it fresh. Use it in the
// place of client-go's memory.NewMemCacheClient, for what a RESTMapper does not know: verbs, short names, categories
// and subresources, and for functions that take a discovery.CachedDiscoveryInterface, such as
// restmapper.NewDeferredDiscoveryRESTMapper and restmapper.NewShortcutExpander.
package discoverycache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/freshmapper/freshmapper/apiutil"
	ours "github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/engine"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// New returns a cache of discovery, which m keeps fresh, in the place of
// client-go's memory.NewMemCacheClient: for verbs, short names, categories and subresources. It reads
// through the HTTP client of m, with its RequestTimeout and MaxResponseBytes. What is not cached, such as
// OpenAPI documents and the server's version, is c's. m and c must not be nil, and of the same server. It
// sends no request and starts no goroutine. All methods
// may be called from any goroutine. The cache owns what they return: do not change it.
//
// Each use counts as a use of m, so while the cache is in use what it returns is about as old as MaxAge at most. The
// first use after a pause of twice MaxAge waits for a refresh of m, unless the server does not answer.
// To have what is served now, call Invalidate first.
//
// The next use after m has learnt of a change, or was reset, reads
// all groups and lists, and waits for that RequestTimeout at most. A version that fails keeps its
// place and its last list, beside the error. A reading that fails leaves what is known. If nothing
// is, as after Invalidate, which is also the Reset of m, uses return the error, and
// apierrors.IsNotFound is false for it. A version that is missing is looked for on the server before
// the error is memory.ErrCacheNotFound.
//
// Fresh asks the server, so a mapper of restmapper.NewDeferredDiscoveryRESTMapper finds a late kind
// at the first lookup, if the server's document has it. Give each such mapper a cache of its own.
// Without aggregated discovery, a refresh of m reads every version from now on.
func New(m *apiutil.DynamicRESTMapper, c discovery.DiscoveryInterface) discovery.CachedDiscoveryInterface {
	e := engine.Of(m)
	e.Reloader.KeepAll()
	d := &cachedDiscovery{DiscoveryInterface: c, engine: e, repeats: flowcontrol.NewTokenBucketPassiveRateLimiter(1.0/60, 4)}
	d.last.Store(&reading{err: errUnread})
	return d
}

// cachedDiscovery answers from its last reading. The mapper says when to make another.
type cachedDiscovery struct {
	discovery.DiscoveryInterface // what is not cached is its
	engine                       *engine.Engine
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
	s := d.engine.Reloader.Snapshot()
	return state{s.Generation(), s.Document(), s.LastReset()}
}

// current returns the last reading. It waits for the next one if the mapper has learnt of a
// change, or if there is nothing to answer with: in an outage only now and then.
func (d *cachedDiscovery) current() *reading {
	d.engine.NoteUse()
	if d.engine.Reloader.Snapshot().Read() {
		// In a program that uses the cache all the time a refresh begins by itself at MaxAge, and nobody waits for it. Only a
		// use after a pause does. In an outage it gets what is known.
		_ = d.engine.Reloader.ConfirmAll(context.Background(), 2)
	}
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
		most := d.engine.Options.RequestTimeout
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
	d.engine.NoteUse()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	err := d.engine.Reloader.ReadDocument(ctx)
	if err == nil && !d.engine.Reloader.Snapshot().Aggregated() {
		_ = d.engine.Reloader.Refresh(ctx)
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
	d.engine.Reloader.Reset()
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

func (d *cachedDiscovery) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	r := d.current()
	if r.err == nil {
		d.given.CompareAndSwap(nil, r)
	}
	return discovery.ServerGroupsAndResources(r)
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
		r.pause = min(max(2*last.pause, r.pause), most) // the last one may have had none: then it was no reading
	}
	d.last.CompareAndSwap(last, r) // it fails after Invalidate
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next = nil
	close(r.done)
}

// fill reads all groups and lists. A version that fails has the list that it had last.
func (d *cachedDiscovery) fill(r, last *reading) (err error) {
	c, err := d.engine.Reloader.ClientGo()
	if err != nil {
		return err
	}
	r.groups, r.lists, r.failed, err = c.GroupsAndMaybeResources()
	if err != nil {
		return outage("/apis", err)
	}
	if r.lists == nil { // there is no aggregated document
		_, lists, err := discovery.ServerGroupsAndResources(oneByOne{c, r.groups})
		r.failed, _ = discovery.GroupDiscoveryFailedErrorGroups(err)
		r.lists = map[schema.GroupVersion]*metav1.APIResourceList{}
		for _, list := range lists {
			gv, _ := schema.ParseGroupVersion(list.GroupVersion)
			r.lists[gv] = list
		}
	}
	if len(r.lists) == 0 && len(r.failed) > 0 {
		return d.engine.Options.DiscoveryFailed(r.failed)
	}
	for gv := range r.failed {
		if list := last.lists[gv]; list != nil {
			r.lists[gv] = list
		}
	}
	return r.arrange(d.engine.Reloader.Snapshot())
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
	err = ours.CauseOf(err)
	if apierrors.IsNotFound(err) {
		err = errors.New(err.Error())
	}
	return &ours.Error{Path: strings.Replace(path, "/apis/v1", "/api/v1", 1), Err: err}
}
