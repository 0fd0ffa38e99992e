// SPDX-License-Identifier: Apache-2.0

package fresh

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/freshmapper/freshmapper/internal/follow"
)

// kind is what a cache has of one kind. Its current instance is right for the path of the kind, or absent.
type kind struct {
	c       *followingCache
	gvk     schema.GroupVersionKind
	current atomic.Pointer[instance] // replaced by swap alone
	changes atomic.Int64             // grows when the current instance gets or loses an informer or an index

	ctx     context.Context    // of start, which writes it before started is true
	cancel  context.CancelFunc // likewise
	started atomic.Bool
	woken   atomic.Bool // reconcile has something to do
	working atomic.Bool // a goroutine calls reconcile

	// Only reconcile and what it calls use these.
	lastError  string        // why the kind could not be followed, as it was logged last
	switchedAt time.Time     // when the kind was last found at another path
	triedAt    time.Time     // when an instance was last made to replace an absent one
	retry      time.Duration // the pause before the next try

	settings [metadataOnly + 1]settings // by representation

	mu        sync.Mutex // guards the rest
	informers map[representation]*informer
	indexes   []*index
}

// settings are what a program has set on an informer before it was started. They hold for each instance to come.
type settings struct{ transform, watchErrors atomic.Pointer[setting] }

// setting sets something on controller-runtime's informer.
type setting func(toolscache.SharedIndexInformer) error

func (s *settings) applyTo(informer toolscache.SharedIndexInformer) {
	for _, set := range []*setting{s.transform.Load(), s.watchErrors.Load()} {
		if set != nil {
			_ = (*set)(informer) // it fails for an informer that was started
		}
	}
}

// index is a call of IndexField or AddIndexers.
type index struct {
	of  representation
	add func(*instance) error
}

// representation is the Go type in which a program wants objects. controller-runtime has an informer for each.
type representation int

const (
	typed representation = iota
	unstructuredObjects
	metadataOnly
)

func representationOf(obj runtime.Object) representation {
	switch obj.(type) {
	case runtime.Unstructured:
		return unstructuredObjects
	case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		return metadataOnly
	}
	return typed
}

// object returns an object of the kind in a representation.
func (k *kind) object(of representation) client.Object { return newObject(k.c.opts.Scheme, k.gvk, of) }

func newObject(scheme *runtime.Scheme, gvk schema.GroupVersionKind, of representation) client.Object {
	var obj client.Object = &unstructured.Unstructured{}
	switch of {
	case metadataOnly:
		obj = &metav1.PartialObjectMetadata{}
	case typed:
		made, _ := scheme.New(gvk)
		obj, _ = made.(client.Object)
	}
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	return obj
}

// newKind makes a kind that is served with a mapping.
func newKind(c *followingCache, gvk schema.GroupVersionKind, mapping *meta.RESTMapping) (*kind, error) {
	k := &kind{c: c, gvk: gvk, informers: map[representation]*informer{}}
	first, err := newInstance(k, mapping, present)
	k.current.Store(first)
	return k, err
}

// newAbsentKind makes a kind that is not served. It has an instance when it is served.
func newAbsentKind(c *followingCache, gvk schema.GroupVersionKind, reason error) (*kind, error) {
	k := &kind{c: c, gvk: gvk, informers: map[representation]*informer{}}
	first, err := newAbsentInstance(k, reason)
	k.current.Store(first)
	return k, err
}

// optional reports whether the kind may be absent: cache.Options.ByObject names it.
func (k *kind) optional() bool { return k.c.byObject[k.gvk] != nil }

// start starts the current instance, and follows the kind until ctx ends or end is called.
func (k *kind) start(ctx context.Context) {
	k.ctx, k.cancel = context.WithCancel(ctx)
	k.current.Load().start(k.ctx)
	k.started.Store(true)
	k.wake()
}

// end ends the kind: its last informer was removed.
func (k *kind) end() {
	if k.started.Load() {
		k.cancel()
	}
	k.current.Load().end()
	k.c.mapper.SetWaiting(k, k.gvk, nil)
}

// ended reports whether the kind was started, and then ended: by end, or with the cache.
func (k *kind) ended() bool { return k.started.Load() && k.ctx.Err() != nil }

// wake makes the kind compare its current instance with what the mapper knows. It never blocks. A goroutine does the work,
// which ends when there is nothing left to do.
func (k *kind) wake() {
	k.woken.Store(true)
	if !k.started.Load() || k.ctx.Err() != nil || !k.working.CompareAndSwap(false, true) {
		return
	}
	k.c.run(func() {
		for k.woken.Swap(false) && k.ctx.Err() == nil {
			k.reconcile(k.ctx)
		}
		k.working.Store(false)
		if k.woken.Load() { // since the last look at it
			k.wake()
		}
	})
}

const (
	// pace is the shortest time from one instance of a kind to the next.
	pace = time.Second

	// patience is the longest pause between two tries to switch a kind, if nothing else happens; and how long after a kind
	// has switched one of several API servers may still show where it was before.
	patience = 30 * time.Second
)

// reconcile replaces the current instance if it is not right for what the mapper knows.
func (k *kind) reconcile(ctx context.Context) {
	current := k.current.Load()
	mapping, err := k.c.mapper.KnownMapping(k.gvk)
	switch {
	case meta.IsNoMatchError(err):
		current.become(outdated)
		k.reconcileRemoved(ctx, current)
	case k.optional() && !current.is(absent) && current.forbidden() != nil:
		k.replaceByAbsent(ctx, current.forbidden())
	case err == nil && k.mustReplace(current, mapping):
		k.reconcileServed(ctx, mapping)
	}
}

// mustReplace reports whether an instance with this mapping must take the place of the current one.
func (k *kind) mustReplace(current *instance, mapping *meta.RESTMapping) bool {
	if why := current.absentBecause(); why != nil {
		mayNotBeListed := !meta.IsNoMatchError(why) // only another try tells whether that has changed
		return !mayNotBeListed || time.Since(k.triedAt) >= pollInterval/2
	}
	return current.is(outdated) || follow.Differ(mapping, current.mapping)
}

// reconcileServed switches the kind to a mapping, and tries again later if that is not possible now.
func (k *kind) reconcileServed(ctx context.Context, mapping *meta.RESTMapping) {
	began := time.Now()
	k.triedAt = began
	if k.switchTo(ctx, mapping) {
		k.retry = 0
		k.wake() // for what has happened since
	} else {
		k.retryLater()
	}
	pause(ctx, pace-time.Since(began))
}

// reconcileRemoved makes an optional kind absent, once two reads have shown that it is not served. Of any other kind the
// current instance stays, as in controller-runtime: the server has told it of each object that was deleted.
func (k *kind) reconcileRemoved(ctx context.Context, current *instance) {
	if why := current.absentBecause(); why != nil && !meta.IsNoMatchError(why) {
		_, why = k.c.mapper.KnownMapping(k.gvk)
		k.waitsFor(current, why)
		return
	}
	if !k.optional() || current.is(absent) {
		return
	}
	removed, reason := k.confirmedRemoved(ctx)
	if !removed {
		k.retryLater()
		return
	}
	k.retry = 0
	k.replaceByAbsent(ctx, reason)
}

// confirmedRemoved reports whether two live reads, a second apart, have shown that the kind is not served, because one of
// several API servers may be behind. It returns the NoMatch of the second.
func (k *kind) confirmedRemoved(ctx context.Context) (bool, error) {
	if _, err := k.c.mapper.Confirm(ctx, k.gvk, follow.WaitUntilRead); !meta.IsNoMatchError(err) {
		return false, err
	}
	pause(ctx, pace)
	_, err := k.c.mapper.Confirm(ctx, k.gvk, follow.WaitUntilRead)
	return meta.IsNoMatchError(err), err
}

// retryLater wakes the kind after a pause, which grows from 1 to 30 seconds.
func (k *kind) retryLater() {
	k.retry = min(max(pace, 2*k.retry), patience)
	time.AfterFunc(k.retry, k.wake)
}

// switchTo makes an instance with a mapping the current one, as soon as that has all that the current one has and is
// ready. It gives up if ctx ends, if the kind is not at that path, or if there can be no such instance.
func (k *kind) switchTo(ctx context.Context, mapping *meta.RESTMapping) (switched bool) {
	began, old := time.Now(), k.current.Load()
	wasAbsent := old.is(absent)
	next, err := newInstance(k, mapping, filling)
	if err != nil {
		k.logCannot(mapping, err)
		return false
	}
	next.start(ctx)
	for {
		seen := k.changes.Load()
		if err := k.fill(ctx, next); err != nil {
			k.logCannot(mapping, err)
			next.end()
			return false
		}
		if !k.awaitReady(ctx, next, old) || !k.confirmedServed(ctx, next, began) {
			next.end()
			return false
		}
		if k.swap(ctx, next, seen) {
			break
		}
	}
	k.lastError = ""
	old.end()
	if wasAbsent {
		k.served(mapping)
		return true
	}
	if follow.Differ(old.mapping, mapping) {
		k.switchedAt = time.Now()
	}
	k.c.mapper.ReportSwitch("cache")
	log.Log.WithName("fresh").Info("The cache follows a kind", "kind", k.gvk.String(),
		"oldResource", old.mapping.Resource.Resource, "oldScope", old.mapping.Scope.Name(),
		"resource", mapping.Resource.Resource, "scope", mapping.Scope.Name())
	return true
}

// replaceByAbsent makes an absent instance the current one. It has nothing to list, so it is ready at once.
func (k *kind) replaceByAbsent(ctx context.Context, reason error) {
	old := k.current.Load()
	next, err := newAbsentInstance(k, reason)
	if err != nil {
		k.logCannot(old.mapping, err)
		return
	}
	next.start(ctx)
	for {
		seen := k.changes.Load()
		if err := k.fill(ctx, next); err != nil {
			k.logCannot(old.mapping, err)
			next.end()
			return
		}
		if k.swap(ctx, next, seen) {
			break
		}
		if ctx.Err() != nil {
			next.end()
			return
		}
	}
	k.lastError = ""
	k.waitsFor(next, reason)
	old.end()
}

// fill gives an instance the indexes and informers that the current one has, and takes others from it.
func (k *kind) fill(ctx context.Context, next *instance) (err error) {
	k.mu.Lock()
	indexes, wanted := slices.Clone(k.indexes), k.current.Load().representations()
	k.mu.Unlock()
	for _, of := range next.representations() {
		if !slices.Contains(wanted, of) || next.hasOtherIndexes(of, indexes) {
			err = errors.Join(err, next.remove(ctx, of))
		}
	}
	for _, of := range wanted {
		_, failed := next.informer(ctx, of)
		err = errors.Join(err, failed)
	}
	for _, x := range indexes {
		err = errors.Join(err, next.index(x))
	}
	return err
}

// awaitReady waits until an instance can take the place of the current one. It returns false if ctx ends, if the kind is
// not, or no longer, at the path of the instance, or if that may not be listed and there is nothing to replace.
func (k *kind) awaitReady(ctx context.Context, next, old *instance) bool {
	for wait := 10 * time.Millisecond; !next.canReplace(old); wait = min(2*wait, pace) {
		pause(ctx, wait)
		if ctx.Err() != nil || !k.isServedAt(next) {
			return false
		}
		if why := next.forbidden(); why != nil && old.is(absent) {
			k.waitsFor(old, why)
			return false
		}
		if err := next.lastError(); err != nil {
			k.logCannot(next.mapping, err)
		}
	}
	return ctx.Err() == nil
}

// isServedAt reports whether the kind is known to be at the path of an instance that is filling.
func (k *kind) isServedAt(next *instance) bool {
	mapping, err := k.c.mapper.KnownMapping(k.gvk)
	if meta.IsNoMatchError(err) {
		k.current.Load().become(outdated)
	}
	return err == nil && !follow.Differ(mapping, next.mapping)
}

// confirmedServed reports whether the kind is at the path of an instance, which has listed it. One of several API servers
// may be behind: so if the kind has switched just before, a second read, a second after the first, has to show the same. If
// the mapper may not read, what is known counts.
func (k *kind) confirmedServed(ctx context.Context, next *instance, began time.Time) bool {
	if k.switchedAt.IsZero() || time.Since(k.switchedAt) > patience {
		return true
	}
	pause(ctx, pace-time.Since(began))
	_, _ = k.c.mapper.Confirm(ctx, k.gvk, follow.WaitBriefly)
	return ctx.Err() == nil && k.isServedAt(next)
}

// swap makes an instance the current one, unless there were changes since those that it has seen or the kind has ended, and
// reports that. Nobody waits for handlers, which may block.
func (k *kind) swap(ctx context.Context, next *instance, seen int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.changes.Load() != seen || ctx.Err() != nil || k.current.Load().is(retired) {
		return false
	}
	next.become(present) // unless it is absent
	k.current.Swap(next).become(retired)
	for _, i := range k.informers {
		i.switchTo(ctx, next)
	}
	return true
}

// informer returns the informer of a representation; nil if the instance is no longer the current one.
func (k *kind) informer(ctx context.Context, of representation, from *instance) (cache.Informer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if from.is(retired) {
		return nil, nil
	}
	if k.informers[of] == nil {
		upstream, err := from.informer(ctx, of) // anew: it may have been removed meanwhile
		if err != nil {
			return nil, err
		}
		k.informers[of] = newInformer(k, of, upstream, from)
	}
	return k.informers[of].public, nil
}

// remove removes the informer of a representation, and reports whether the kind stays. It ends with its last informer: a
// caller that has got the kind just before looks it up anew.
func (k *kind) remove(ctx context.Context, of representation) (stays bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	current := k.current.Load()
	if i := k.informers[of]; i != nil {
		i.removed = true
		delete(k.informers, of)
	}
	k.indexes = slices.DeleteFunc(k.indexes, func(x *index) bool { return x.of == of })
	k.settings[of].transform.Store(nil)
	k.settings[of].watchErrors.Store(nil)
	err = current.remove(ctx, of)
	k.changes.Add(1)
	stays = len(current.representations()) > 0
	if !stays {
		current.become(retired)
	}
	return stays, err
}

// addIndex adds an index to the kind, now and in each instance to come, or reports that the kind has ended.
func (k *kind) addIndex(x *index) (ended bool, err error) {
	for {
		current := k.current.Load()
		err := current.index(x)
		k.mu.Lock()
		same := k.current.Load() == current
		ended := same && current.is(retired)
		if same && !ended && err == nil {
			k.indexes = append(k.indexes, x)
			k.changes.Add(1)
		}
		k.mu.Unlock()
		if same {
			return ended, err
		}
	}
}

// logCannot logs why the kind can't be followed, once for each reason.
func (k *kind) logCannot(mapping *meta.RESTMapping, err error) {
	if err.Error() == k.lastError {
		return
	}
	k.lastError = err.Error()
	log.Log.WithName("fresh").Error(err, "The cache keeps what it has of a kind, because it cannot follow it to another path",
		"kind", k.gvk.String(), "resource", mapping.Resource.Resource, "scope", mapping.Scope.Name())
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
