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

// kind is what a cache has of one kind. Its current instance is the one that reads and handlers use, in one of the
// states present, outdated and absent.
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
	lastLogged   string        // the last error that was logged: why the kind could not switch
	lastSwitch   time.Time     // when the kind last switched to another path
	lastInstance time.Time     // when the kind last tried to replace its instance
	retry        time.Duration // the pause before the next try

	settings [follow.MetadataOnly + 1]settings // by representation

	mu        sync.Mutex // guards the rest
	informers map[follow.Representation]*informer
	indexes   []*index
}

// settings are what a program has set on an informer before it was started. They hold for the informers of later
// instances, too.
type settings struct {
	transform         atomic.Pointer[setting]
	watchErrorHandler atomic.Pointer[setting]
}

// setting sets something on an informer of controller-runtime's.
type setting func(toolscache.SharedIndexInformer) error

func (s *settings) applyTo(informer toolscache.SharedIndexInformer) {
	for _, set := range []*setting{s.transform.Load(), s.watchErrorHandler.Load()} {
		if set != nil {
			_ = (*set)(informer) // it fails for an informer that was started
		}
	}
}

// index is a call of IndexField or AddIndexers.
type index struct {
	representation follow.Representation
	add            func(*instance) error
}

// object returns an object of the kind in a representation.
func (k *kind) object(representation follow.Representation) client.Object {
	return newObject(k.c.opts.Scheme, k.gvk, representation)
}

func newObject(
	scheme *runtime.Scheme, gvk schema.GroupVersionKind, representation follow.Representation,
) client.Object {
	var obj client.Object
	switch representation {
	case follow.Typed:
		typed, _ := scheme.New(gvk)
		obj, _ = typed.(client.Object)
	case follow.Unstructured:
		obj = &unstructured.Unstructured{}
	case follow.MetadataOnly:
		obj = &metav1.PartialObjectMetadata{}
	}
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	return obj
}

// newKind makes a kind that is served with a mapping.
func newKind(c *followingCache, gvk schema.GroupVersionKind, mapping *meta.RESTMapping) (*kind, error) {
	k := &kind{c: c, gvk: gvk, informers: map[follow.Representation]*informer{}}
	first, err := newInstance(k, mapping, present)
	k.current.Store(first)
	return k, err
}

// newAbsentKind makes a kind that is not served. Its first instance is absent.
func newAbsentKind(c *followingCache, gvk schema.GroupVersionKind, reason error) (*kind, error) {
	k := &kind{c: c, gvk: gvk, informers: map[follow.Representation]*informer{}}
	first, err := newAbsentInstance(k, reason)
	k.current.Store(first)
	return k, err
}

// isOptional reports whether the kind may be absent.
func (k *kind) isOptional() bool { return k.c.isOptional(k.gvk) }

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

// wake makes the kind compare its current instance with what the mapper knows. It never blocks. A goroutine does the
// work, and ends when there is nothing left to do.
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
		if k.woken.Load() { // it was woken after the loop had ended, and before that was visible
			k.wake()
		}
	})
}

const (
	// minSwitchInterval is the shortest time between two tries to replace the instance of a kind, and between two
	// live reads that have to show the same.
	minSwitchInterval = time.Second

	// maxRetryInterval is the longest pause between two tries to replace the instance of a kind, if nothing else
	// happens.
	maxRetryInterval = 30 * time.Second

	// replicaLag is for how long one of several API servers may still show the former scope or plural of a kind.
	replicaLag = 30 * time.Second
)

// reconcile replaces the current instance if it is not right for what the mapper knows.
func (k *kind) reconcile(ctx context.Context) {
	current := k.current.Load()
	mapping, err := k.c.mapper.KnownMapping(k.gvk)
	if meta.IsNoMatchError(err) {
		current.become(outdated)
		k.reconcileRemoved(ctx, current)
		return
	}
	if k.isOptional() && !current.is(absent) {
		if forbidden := current.forbidden(); forbidden != nil {
			k.replaceByAbsent(ctx, forbidden)
			return
		}
	}
	if err == nil && k.needsInstance(current, mapping) {
		k.reconcileServed(ctx, mapping)
	}
}

// needsInstance reports whether a new instance with this mapping must take the place of the current one.
func (k *kind) needsInstance(current *instance, mapping *meta.RESTMapping) bool {
	reason := current.absentBecause()
	if reason == nil {
		return current.is(outdated) || follow.Differ(mapping, current.mapping)
	}
	if meta.IsNoMatchError(reason) {
		return true // it was not served, and it is now
	}
	// It may not be listed. Only another try tells whether that has changed, so there is one with each poll.
	return time.Since(k.lastInstance) >= pollInterval/2
}

// reconcileServed switches the kind to a mapping, and tries again later if that is not possible now.
func (k *kind) reconcileServed(ctx context.Context, mapping *meta.RESTMapping) {
	k.lastInstance = time.Now()
	if k.switchTo(ctx, mapping) {
		k.retry = 0
		k.wake() // for what has happened since
	} else {
		k.retryLater()
	}
	pause(ctx, minSwitchInterval-time.Since(k.lastInstance))
}

// reconcileRemoved makes an optional kind absent, once two reads have shown that it is not served. Any other kind
// keeps its current instance, as in controller-runtime: the server has sent the deletion of each object.
func (k *kind) reconcileRemoved(ctx context.Context, current *instance) {
	reason := current.absentBecause()
	if reason != nil && !meta.IsNoMatchError(reason) { // it was forbidden, and now it is not served
		_, reason = k.c.mapper.KnownMapping(k.gvk)
		k.setWaiting(current, reason)
		return
	}
	if !k.isOptional() || current.is(absent) {
		return
	}
	removed, reason := k.confirmRemoved(ctx)
	if !removed {
		k.retryLater()
		return
	}
	k.retry = 0
	k.replaceByAbsent(ctx, reason)
}

// confirmRemoved reports whether two live reads, a second apart, have shown that the kind is not served. One of
// several API servers may be behind. It returns the NoMatch of the second read.
func (k *kind) confirmRemoved(ctx context.Context) (bool, error) {
	_, err := k.c.mapper.Confirm(ctx, k.gvk, follow.WaitUntilRead)
	if !meta.IsNoMatchError(err) {
		return false, err
	}
	pause(ctx, minSwitchInterval)
	_, err = k.c.mapper.Confirm(ctx, k.gvk, follow.WaitUntilRead)
	return meta.IsNoMatchError(err), err
}

// retryLater wakes the kind after a pause, which grows from 1 to 30 seconds.
func (k *kind) retryLater() {
	k.retry = min(max(minSwitchInterval, 2*k.retry), maxRetryInterval)
	time.AfterFunc(k.retry, k.wake)
}

// switchTo makes an instance with a mapping the current one, as soon as that has listed all that the current one has.
// It reports whether it did. It gives up if ctx ends, if the kind is not at that path, or if there can be no such
// instance.
func (k *kind) switchTo(ctx context.Context, mapping *meta.RESTMapping) bool {
	began := time.Now()
	old := k.current.Load()
	wasAbsent := old.is(absent)
	next, err := newInstance(k, mapping, filling)
	if err != nil {
		k.logCannotSwitch(mapping, err)
		return false
	}
	next.start(ctx)
	if !k.fillAndSwap(ctx, next, old, began) {
		next.end()
		return false
	}
	k.lastLogged = ""
	old.end()
	if wasAbsent {
		k.noteServed(mapping)
		return true
	}
	if follow.Differ(old.mapping, mapping) {
		k.lastSwitch = time.Now()
	}
	k.c.mapper.ReportSwitch("cache")
	log.Log.WithName("fresh").Info("The cache follows a kind", "kind", k.gvk.String(),
		"oldResource", old.mapping.Resource.Resource, "oldScope", old.mapping.Scope.Name(),
		"resource", mapping.Resource.Resource, "scope", mapping.Scope.Name())
	return true
}

// fillAndSwap makes an instance the current one when it has listed all, and the kind is at its path. It begins again
// whenever the current instance gets or loses an informer meanwhile.
func (k *kind) fillAndSwap(ctx context.Context, next, old *instance, began time.Time) bool {
	for {
		changes := k.changes.Load()
		if err := k.copyInformers(ctx, next); err != nil {
			k.logCannotSwitch(next.mapping, err)
			return false
		}
		if !k.waitUntilListed(ctx, next, old) || !k.confirmServed(ctx, next, began) {
			return false
		}
		if k.swap(ctx, next, changes) {
			return true
		}
	}
}

// replaceByAbsent makes an absent instance the current one. It has nothing to list, so it is ready at once.
func (k *kind) replaceByAbsent(ctx context.Context, reason error) {
	old := k.current.Load()
	next, err := newAbsentInstance(k, reason)
	if err != nil {
		k.logCannotSwitch(old.mapping, err)
		return
	}
	next.start(ctx)
	for {
		changes := k.changes.Load()
		if err := k.copyInformers(ctx, next); err != nil {
			k.logCannotSwitch(old.mapping, err)
			next.end()
			return
		}
		if k.swap(ctx, next, changes) {
			break
		}
		if ctx.Err() != nil {
			next.end()
			return
		}
	}
	k.lastLogged = ""
	k.setWaiting(next, reason)
	old.end()
}

// copyInformers gives an instance the informers and indexes that the current one has, and removes others from it.
func (k *kind) copyInformers(ctx context.Context, next *instance) (err error) {
	k.mu.Lock()
	indexes := slices.Clone(k.indexes)
	wanted := k.current.Load().representations()
	k.mu.Unlock()
	for _, representation := range next.representations() {
		if !slices.Contains(wanted, representation) || next.hasOtherIndexes(representation, indexes) {
			err = errors.Join(err, next.remove(ctx, representation))
		}
	}
	for _, representation := range wanted {
		_, failed := next.informer(ctx, representation)
		err = errors.Join(err, failed)
	}
	for _, x := range indexes {
		err = errors.Join(err, next.index(x))
	}
	return err
}

// waitUntilListed waits until an instance has listed what it needs to take the place of the current one. It returns
// false if ctx ends, if the kind is not at the path of the instance, or if the kind may not be listed and the current
// one is absent.
func (k *kind) waitUntilListed(ctx context.Context, next, old *instance) bool {
	for wait := 10 * time.Millisecond; !next.canReplace(old); wait = min(2*wait, time.Second) {
		pause(ctx, wait)
		if ctx.Err() != nil || !k.isServedAt(next) {
			return false
		}
		if forbidden := next.forbidden(); forbidden != nil && old.is(absent) {
			k.setWaiting(old, forbidden)
			return false
		}
		if err := next.lastError(); err != nil {
			k.logCannotSwitch(next.mapping, err)
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

// confirmServed reports whether the kind is at the path of an instance, which has listed it. If the kind has switched
// a moment ago, one of several API servers may be behind. Then a second read, a second after the first, has to show
// the same. If the mapper may not read now, what it knows counts.
func (k *kind) confirmServed(ctx context.Context, next *instance, began time.Time) bool {
	if k.lastSwitch.IsZero() || time.Since(k.lastSwitch) > replicaLag {
		return true
	}
	pause(ctx, minSwitchInterval-time.Since(began))
	_, _ = k.c.mapper.Confirm(ctx, k.gvk, follow.WaitBriefly)
	return ctx.Err() == nil && k.isServedAt(next)
}

// swap makes an instance the current one, unless the kind has ended, or informers or indexes were added or removed
// since changes was read. It reports whether it did. It does not wait for handlers, which may block.
func (k *kind) swap(ctx context.Context, next *instance, changes int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.changes.Load() != changes || ctx.Err() != nil || k.current.Load().is(retired) {
		return false
	}
	next.become(present) // unless it is absent
	k.current.Swap(next).become(retired)
	for _, i := range k.informers {
		i.switchTo(ctx, next)
	}
	return true
}

// informer returns the informer of a representation. It returns nil if the instance is no longer the current one.
func (k *kind) informer(
	ctx context.Context, representation follow.Representation, from *instance,
) (cache.Informer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if from.is(retired) {
		return nil, nil
	}
	if k.informers[representation] == nil {
		upstream, err := from.informer(ctx, representation) // it may have been removed since the caller has got it
		if err != nil {
			return nil, err
		}
		k.informers[representation] = newInformer(k, representation, upstream, from)
	}
	return k.informers[representation].public, nil
}

// remove removes the informer of a representation, and reports whether the kind stays. It ends with its last
// informer: a caller that has got the kind just before looks it up again.
func (k *kind) remove(ctx context.Context, representation follow.Representation) (stays bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	current := k.current.Load()
	if i := k.informers[representation]; i != nil {
		i.removed = true
		delete(k.informers, representation)
	}
	k.indexes = slices.DeleteFunc(k.indexes, func(x *index) bool { return x.representation == representation })
	k.settings[representation].transform.Store(nil)
	k.settings[representation].watchErrorHandler.Store(nil)
	err = current.remove(ctx, representation)
	k.changes.Add(1)
	stays = len(current.representations()) > 0
	if !stays {
		current.become(retired)
	}
	return stays, err
}

// addIndex adds an index to the current instance and to each later one, or reports that the kind has ended.
func (k *kind) addIndex(x *index) (ended bool, err error) {
	for {
		current := k.current.Load()
		err := current.index(x)
		if noted, ended := k.noteIndex(x, current, err); noted {
			return ended, err
		}
	}
}

// noteIndex notes an index that was added to an instance, unless that failed. It reports whether the instance is
// still the current one, and whether the kind has ended.
func (k *kind) noteIndex(x *index, in *instance, failed error) (noted, ended bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current.Load() != in {
		return false, false
	}
	if in.is(retired) {
		return true, true
	}
	if failed == nil {
		k.indexes = append(k.indexes, x)
		k.changes.Add(1)
	}
	return true, false
}

// logCannotSwitch logs why the kind cannot switch to a mapping, unless that was the last thing that it logged.
func (k *kind) logCannotSwitch(mapping *meta.RESTMapping, err error) {
	if err.Error() == k.lastLogged {
		return
	}
	k.lastLogged = err.Error()
	log.Log.WithName("fresh").Error(err,
		"The cache keeps what it has of a kind, because it cannot follow it to another path",
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
