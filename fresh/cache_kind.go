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
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/freshmapper/freshmapper/internal/follow"
)

// kind is what a cache has of one kind. Its generation is right for the path of the kind.
type kind struct {
	c       *followingCache
	gvk     schema.GroupVersionKind
	now     atomic.Pointer[generation] // replaced by swap alone
	changes atomic.Int64               // moves when the present generation gets or loses an informer or an index
	bell    chan struct{}              // of size 1: there may be another path
	end     func()                     // ends it; start writes it

	// Only follow and what it calls use these.
	said  string    // why the kind could not be followed
	moved time.Time // when it was last found at another path

	mu        sync.Mutex // guards the rest
	informers map[form]*informer
	indexes   []*index
}

// index is a call of IndexField or AddIndexers.
type index struct {
	form form
	add  func(*generation) error
}

// form is how objects are represented. Upstream has an informer for each.
type form int

const (
	structured form = iota
	whole
	metadata
)

func formOf(obj runtime.Object) form {
	switch obj.(type) {
	case runtime.Unstructured:
		return whole
	case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		return metadata
	}
	return structured
}

// object returns an object of the kind in a form.
func (k *kind) object(of form) client.Object { return object(k.c.opts.Scheme, k.gvk, of) }

func object(scheme *runtime.Scheme, gvk schema.GroupVersionKind, of form) client.Object {
	var obj client.Object = &unstructured.Unstructured{}
	switch of {
	case metadata:
		obj = &metav1.PartialObjectMetadata{}
	case structured:
		made, _ := scheme.New(gvk)
		obj, _ = made.(client.Object)
	}
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	return obj
}

func newKind(c *followingCache, gvk schema.GroupVersionKind, mapping *meta.RESTMapping) (*kind, error) {
	k := &kind{c: c, gvk: gvk, bell: make(chan struct{}, 1), informers: map[form]*informer{}}
	k.end = func() { k.now.Load().end() }
	first, err := newGeneration(k, mapping)
	k.now.Store(first)
	return k, err
}

// ring makes the kind look for another path. It never blocks.
func (k *kind) ring() {
	select {
	case k.bell <- struct{}{}:
	default:
	}
}

// start starts the present generation, and follows the kind until ctx ends or end is called.
func (k *kind) start(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	k.end = func() {
		cancel()
		k.now.Load().end()
	}
	k.now.Load().start(ctx)
	k.c.run(func() { k.follow(ctx) })
}

const (
	// pace is the least time from one generation of a kind to the next.
	pace = time.Second
	// patience is how long a kind waits at most that can have no right generation, if nothing else happens; and
	// how long after a kind has moved one of several API servers may still show where it was before.
	patience = 30 * time.Second
)

// follow moves the kind each time that there is another path.
func (k *kind) follow(ctx context.Context) {
	for wait := pace; ctx.Err() == nil; {
		var again <-chan time.Time
		if target := k.target(); target != nil {
			began, moved := time.Now(), k.move(ctx, target)
			if moved {
				again, wait = time.After(0), pace
			} else {
				again, wait = time.After(wait), min(2*wait, patience)
			}
			pause(ctx, pace-time.Since(began))
		}
		select {
		case <-k.bell:
		case <-again:
		case <-ctx.Done():
		}
	}
}

// target returns the mapping that the kind is known to have, if its present generation is not, or no longer,
// right for it.
func (k *kind) target() *meta.RESTMapping {
	g := k.now.Load()
	now, err := k.c.mapper.Now(k.gvk)
	if meta.IsNoMatchError(err) {
		g.lost.Store(true) // once the kind is back, it is listed at once
	}
	if err != nil || !follow.Differ(now, g.mapping) && !g.lost.Load() && !g.forgot.Load() {
		return nil
	}
	return now
}

// move makes a generation with a mapping the present one, as soon as that has all that the present one has
// and is ready. It gives up if ctx ends, if the kind is not at that path, or if there can be no such generation.
func (k *kind) move(ctx context.Context, mapping *meta.RESTMapping) (moved bool) {
	began, old := time.Now(), k.now.Load()
	g, err := newGeneration(k, mapping)
	if err != nil {
		k.cannot(mapping, err)
		return false
	}
	g.start(ctx)
	for swapped := false; !swapped; {
		seen := k.changes.Load()
		if err := k.fill(ctx, g); err != nil {
			k.cannot(mapping, err)
			g.end()
			return false
		}
		if !k.awaitReady(ctx, g, old) || !k.confirmed(ctx, g, began) {
			g.end()
			return false
		}
		swapped = k.swap(ctx, g, seen)
	}
	if k.said = ""; follow.Differ(old.mapping, mapping) {
		k.moved = time.Now()
	}
	k.c.mapper.Count("cache")
	log.Log.WithName("fresh").Info("The cache follows a kind", "kind", k.gvk.String(),
		"oldResource", old.mapping.Resource.Resource, "oldScope", old.mapping.Scope.Name(), "resource", mapping.Resource.Resource, "scope", mapping.Scope.Name())
	old.end()
	return true
}

// fill gives a generation the indexes and informers that the present one has, and takes others from it.
func (k *kind) fill(ctx context.Context, g *generation) (err error) {
	k.mu.Lock()
	indexes, forms := slices.Clone(k.indexes), k.now.Load().forms()
	k.mu.Unlock()
	for _, form := range g.forms() {
		if !slices.Contains(forms, form) || g.outdated(form, indexes) {
			err = errors.Join(err, g.remove(ctx, form))
		}
	}
	for _, form := range forms {
		_, failed := g.get(ctx, form)
		err = errors.Join(err, failed)
	}
	for _, x := range indexes {
		err = errors.Join(err, g.index(x))
	}
	return err
}

// awaitReady waits until a generation is ready. It returns false if ctx ends, or if the kind is not, or no
// longer, at the path of the generation.
func (k *kind) awaitReady(ctx context.Context, g, old *generation) bool {
	for wait := 10 * time.Millisecond; !g.ready(old); wait = min(2*wait, pace) {
		pause(ctx, wait)
		if !k.isAt(ctx, g) {
			return false
		}
		if err := g.failure(); err != nil {
			k.cannot(g.mapping, err)
		}
	}
	return ctx.Err() == nil
}

// isAt reports whether the kind is known to be at the path of a generation that is not the present one.
func (k *kind) isAt(ctx context.Context, g *generation) bool {
	target := k.target()
	return ctx.Err() == nil && target != nil && !follow.Differ(target, g.mapping)
}

// cannot logs why the kind can't be followed, once for each reason.
func (k *kind) cannot(mapping *meta.RESTMapping, err error) {
	if err.Error() == k.said {
		return
	}
	k.said = err.Error()
	log.Log.WithName("fresh").Error(err, "The cache keeps what it has of a kind, because it cannot follow it to another path", "kind", k.gvk.String(),
		"resource", mapping.Resource.Resource, "scope", mapping.Scope.Name())
}

// confirmed reports whether the kind is at the path of a generation. One of several API servers may be
// behind: so if the kind has moved just before, a second read, a second after the first, has to show the
// same. If the mapper may not read, what is known counts.
func (k *kind) confirmed(ctx context.Context, g *generation, began time.Time) bool {
	if time.Since(k.moved) > patience {
		return true
	}
	pause(ctx, pace-time.Since(began))
	_, _ = k.c.mapper.Confirm(ctx, k.gvk, false)
	return k.isAt(ctx, g)
}

// swap makes a generation the present one, unless there were changes since those that it has seen, and reports
// that. Nobody waits for handlers, which may block.
func (k *kind) swap(ctx context.Context, next *generation, seen int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.changes.Load() != seen {
		return false
	}
	k.now.Swap(next).retired.Store(true)
	for _, i := range k.informers {
		i.move(ctx, next)
	}
	return true
}

// informer returns the informer of a form; nil if the generation is no longer the present one.
func (k *kind) informer(ctx context.Context, g *generation, of form) (cache.Informer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if g.retired.Load() {
		return nil, nil
	}
	if k.informers[of] == nil {
		up, err := g.get(ctx, of) // anew: it may have been removed meanwhile
		if err != nil {
			return nil, err
		}
		k.informers[of] = newInformer(k, of, up, g)
	}
	return k.informers[of].public, nil
}

// remove removes the informer of a form, and reports whether the kind stays. It ends with its last informer: who has got
// the kind just before looks it up anew.
func (k *kind) remove(ctx context.Context, of form) (stays bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	g := k.now.Load()
	delete(k.informers, of)
	k.indexes = slices.DeleteFunc(k.indexes, func(x *index) bool { return x.form == of })
	err = g.remove(ctx, of)
	k.changes.Add(1)
	stays = len(g.forms()) > 0
	if !stays {
		g.retired.Store(true)
	}
	return stays, err
}

// addIndex adds an index to the kind, now and in each generation to come, or reports that the kind has ended.
func (k *kind) addIndex(x *index) (ended bool, err error) {
	for {
		g := k.now.Load()
		err := g.index(x)
		k.mu.Lock()
		same := k.now.Load() == g
		ended := same && g.retired.Load()
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

// ForgetKind empties what the cache has of a kind, and tells each handler that the objects are gone. Informers and
// indexes stay. It does nothing unless the mapper knows that the kind is not served. Package latekinds calls it
// when two live reads have shown that.
func (c *followingCache) ForgetKind(gvk schema.GroupVersionKind) {
	absent := func() bool {
		_, err := c.mapper.Now(gvk)
		return meta.IsNoMatchError(err)
	}
	k := c.kinds.Get(gvk)
	if k == nil || !absent() {
		return
	}
	k.mu.Lock()
	g := k.now.Load()
	g.forgot.Store(true) // once the kind is back, it is listed anew
	var handlers []*handler
	for _, i := range k.informers {
		handlers = append(handlers, i.handlers...)
	}
	k.mu.Unlock()
	for _, j := range g.judges() {
		_ = j.informer.GetStore().Replace(nil, "")
	}
	k.ring()
	for _, h := range handlers {
		go h.forgetAll(g) // it may block
	}
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
