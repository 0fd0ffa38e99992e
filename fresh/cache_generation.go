// SPDX-License-Identifier: Apache-2.0

package fresh

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crapiutil "sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/freshmapper/freshmapper/internal/follow"
)

// generation is a cache of upstream's for one kind, with one mapping. All that upstream derives from the
// scope of a kind (paths, namespaces, selectors, keys) is right for its life.
type generation struct {
	cache.Cache
	k       *kind
	mapping *meta.RESTMapping
	retired atomic.Bool // it is no longer the present one, or never will be. It stays so
	lost    atomic.Bool // a read has shown that the kind moved or went since this one last listed it

	ctx    context.Context // of start, which writes it
	cancel func()          // ends it

	mu      sync.Mutex // guards the rest
	made    map[form][]toolscache.SharedIndexInformer
	indexed map[*index]func() error // adds an index, once
	failed  error                   // why the last list or watch failed; nil if it did not
}

func newGeneration(k *kind, mapping *meta.RESTMapping) (g *generation, err error) {
	g = &generation{k: k, mapping: mapping, made: map[form][]toolscache.SharedIndexInformer{}, indexed: map[*index]func() error{}, cancel: func() {}}
	opts := k.c.opts
	opts.Mapper = follow.Sole{RESTMapper: opts.Mapper, Mapping: mapping}
	opts.ByObject = nil
	for obj, by := range k.c.opts.ByObject {
		if gvk, err := crapiutil.GVKForObject(obj, opts.Scheme); err != nil || gvk != k.gvk {
			continue
		}
		if first := k.now.Load() == nil; first && g.ofCluster() {
			by.Namespaces = nil // the kind was not served when the options were made
		}
		opts.ByObject = map[client.Object]cache.ByObject{obj: by}
	}
	opts.NewInformer = g.newInformer
	g.Cache, err = cache.New(k.c.config, opts)
	return g, err
}

func (g *generation) ofCluster() bool { return g.mapping.Scope.Name() == meta.RESTScopeNameRoot }

func (g *generation) start(ctx context.Context) {
	g.ctx, g.cancel = context.WithCancel(ctx)
	g.k.c.run(func() {
		if err := g.Start(g.ctx); err != nil && !errors.Is(err, context.Canceled) {
			log.Log.WithName("fresh").Error(err, "A cache has ended", "kind", g.k.gvk.String())
		}
		if g.retired.Load() { // those who have an informer of it still refer to its store
			for _, form := range g.forms() {
				for _, informer := range g.informers(form) {
					_ = informer.GetStore().Replace(nil, "")
				}
			}
		}
	})
}

// end ends a generation that nobody waits for.
func (g *generation) end() {
	g.retired.Store(true)
	g.cancel()
}

// retire ends a generation that was the present one, and waits for nothing. Somebody may wait for its
// informers to sync, so it goes on until they have, with nothing: see list.
func (g *generation) retire(ctx context.Context) {
	if g.synced() {
		g.cancel()
		return
	}
	g.k.c.run(func() {
		toolscache.WaitForCacheSync(ctx.Done(), g.synced)
		pause(ctx, time.Second) // for handlers that wait for their first list
		g.cancel()
	})
}

// get returns upstream's informer of a form, and makes it if there is none.
func (g *generation) get(ctx context.Context, of form) (cache.Informer, error) {
	return g.GetInformer(ctx, g.k.object(of), cache.BlockUntilSynced(false))
}

func (g *generation) remove(ctx context.Context, of form) error {
	err := g.RemoveInformer(ctx, g.k.object(of))
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.made, of)
	return err
}

// index adds an index, unless it is there.
func (g *generation) index(x *index) error {
	g.mu.Lock()
	add := g.indexed[x]
	if add == nil {
		add = sync.OnceValue(func() error { return x.add(g) })
		g.indexed[x] = add
	}
	g.mu.Unlock()
	return add()
}

func (g *generation) forms() []form {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.made))
}

func (g *generation) informers(of form) []toolscache.SharedIndexInformer {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.made[of])
}

// synced reports whether all that the generation has was listed.
func (g *generation) synced() bool {
	for _, form := range g.forms() {
		for _, informer := range g.informers(form) {
			if !informer.HasSynced() {
				return false
			}
		}
	}
	return true
}

// note notes how a list or a watch has ended.
func (g *generation) note(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.failed = err; err == nil {
		g.lost.Store(false)
	}
}

func (g *generation) failure() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failed
}

// explain adds why the kind can't be listed to upstream's error, which is that it did not sync in time.
func (g *generation) explain(err error) error {
	if failed := g.failure(); failed != nil && apierrors.IsTimeout(err) {
		return fmt.Errorf("%w: %w", err, failed)
	}
	return err
}

// newInformer is the hook of upstream's cache: it sees how an informer lists and watches.
func (g *generation) newInformer(
	lw toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers toolscache.Indexers,
) toolscache.SharedIndexInformer {
	judged, of := &judge{g: g, lw: toolscache.ToListerWatcherWithContext(lw)}, formOf(obj)
	construct := toolscache.NewSharedIndexInformer
	if g.k.c.opts.NewInformer != nil {
		construct = g.k.c.opts.NewInformer
	}
	// Not the caller's object: a reflector reads it while the caller may write to it.
	judged.informer = construct(judged.listWatch(), g.k.object(of), resync, indexers)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.made[of] = append(g.made[of], judged.informer)
	if g.k.now.Load() == g {
		g.k.changes.Add(1)
	}
	return impatient{judged.informer, &g.retired}
}

// impatient is an informer that nobody waits for once its generation is retired.
type impatient struct {
	toolscache.SharedIndexInformer
	retired *atomic.Bool
}

func (i impatient) HasSynced() bool { return i.retired.Load() || i.SharedIndexInformer.HasSynced() }

// judge tells the mapper of what contradicts the mapping of an informer.
type judge struct {
	g        *generation
	lw       toolscache.ListerWatcherWithContext
	informer toolscache.SharedIndexInformer
}

func (j *judge) listWatch() toolscache.ListerWatcher {
	return &toolscache.ListWatch{ListWithContextFunc: j.list, WatchFuncWithContext: j.watch}
}

// list lists. Who waits for an informer that can get no objects would wait for ever. So the first list is
// empty if the generation is retired, or if a read that began after the server has refused the list shows
// that the kind is not served.
func (j *judge) list(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	empty := &metav1.PartialObjectMetadataList{}
	if j.g.retired.Load() && !j.informer.HasSynced() {
		return empty, nil
	}
	found, err := j.lw.ListWithContext(ctx, opts)
	if follow.DoubtOfList(j.g.mapping, found, err) == follow.Contradiction {
		now, unproven := j.contradicted(ctx, err)
		absent := meta.IsNoMatchError(unproven) || j.g.retired.Load()
		switch {
		case err != nil && absent && !j.informer.HasSynced():
			return empty, nil
		case err == nil && (now != nil || unproven != nil):
			err = j.expired()
		}
	}
	j.g.note(err)
	return found, err
}

// watch watches. It ends when an object shows that the kind is not cluster-wide any more.
func (j *judge) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	watching, err := j.lw.WatchWithContext(ctx, opts)
	if follow.DoubtOf(err) == follow.Contradiction {
		_, _ = j.contradicted(ctx, err)
	}
	if err != nil {
		j.g.note(err)
		return watching, err
	}
	if j.g.ofCluster() {
		watching = watch.Filter(drained{watching}, func(event watch.Event) (watch.Event, bool) { return j.sift(ctx, event) })
	}
	return drained{watching}, nil
}

func (j *judge) sift(ctx context.Context, event watch.Event) (watch.Event, bool) {
	if !follow.InNamespace(event.Object) {
		return event, true
	}
	ctx, cancel := context.WithTimeout(ctx, 2*pace)
	defer cancel()
	if now, _ := j.contradicted(ctx, nil); now != nil {
		return watch.Event{Type: watch.Error, Object: &j.expired().ErrStatus}, true
	}
	return event, len(j.g.k.c.opts.DefaultNamespaces) == 0 // to a cache of several namespaces others are nothing
}

// contradicted is called when an answer contradicts the mapping: an error, or an object in a namespace. It
// returns what Moved returns. A path that has refused is listed anew at once if the kind is served after all.
func (j *judge) contradicted(ctx context.Context, refused error) (*meta.RESTMapping, error) {
	now, err := j.g.k.c.mapper.Moved(ctx, j.g.mapping, follow.Contradiction)
	if meta.IsNoMatchError(err) || err == nil && refused != nil {
		j.g.lost.Store(true)
	}
	j.g.k.ring()
	return now, err
}

func (j *judge) expired() *apierrors.StatusError {
	return apierrors.NewResourceExpired(j.g.k.gvk.String() + " is served at another path")
}

// drained is a watch whose events are taken after Stop, until it ends. A watch.Filter, also upstream's for
// metadata, does not end while it has an event that nobody takes.
type drained struct{ watch.Interface }

func (d drained) Stop() {
	d.Interface.Stop()
	go func() {
		for range d.ResultChan() {
		}
	}()
}
