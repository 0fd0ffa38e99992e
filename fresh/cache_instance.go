// SPDX-License-Identifier: Apache-2.0

package fresh

import (
	"cmp"
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
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
	forgot  atomic.Bool // ForgetKind empties it: nothing that it lists or tells counts, and another one follows. It stays so
	lost    atomic.Bool // a read has shown that the kind moved or went since this one last listed it

	ctx    context.Context // of start, which writes it
	cancel func()          // ends it

	mu      sync.Mutex                             // guards the rest
	made    map[form][]*judge                      // one for each of upstream's informers
	indexed map[*index]func() error                // adds an index, once
	told    map[*handler]toolscache.InformerSynced // whether a handler was told the generation's first list
}

func newGeneration(k *kind, mapping *meta.RESTMapping) (g *generation, err error) {
	g = &generation{k: k, mapping: mapping, made: map[form][]*judge{}, indexed: map[*index]func() error{}, told: map[*handler]toolscache.InformerSynced{}, cancel: func() {}}
	opts := k.c.opts
	opts.Mapper = follow.Sole{RESTMapper: opts.Mapper, Mapping: mapping}
	opts.ByObject = maps.Clone(k.c.byObject[k.gvk])
	for obj, by := range opts.ByObject {
		if first := k.now.Load() == nil; first && g.ofCluster() {
			by.Namespaces = nil // the kind was not served when the options were made
			opts.ByObject[obj] = by
		}
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
			for _, j := range g.judges() {
				_ = j.informer.GetStore().Replace(nil, "")
			}
		}
	})
}

// end ends a generation that is not, or no longer, the present one. It waits for nothing. Somebody may wait for
// its informers or registrations to sync, also upstream's for several namespaces. So it goes on until they have,
// with nothing: see list.
func (g *generation) end() {
	g.retired.Store(true)
	if g.ctx == nil {
		return
	}
	g.k.c.run(func() {
		ctx, cancel := context.WithTimeout(g.ctx, 3*patience) // a reflector rests for up to 60 s; a handler may block for ever
		defer cancel()
		_ = toolscache.WaitForCacheSync(ctx.Done(), g.synced) && toolscache.WaitForCacheSync(ctx.Done(), g.toldAll)
		g.cancel()
	})
}

// toldAll reports whether all handlers were told the first list. It calls with no lock held: a transform may hold
// upstream's.
func (g *generation) toldAll() bool {
	g.mu.Lock()
	told := slices.Collect(maps.Values(g.told))
	g.mu.Unlock()
	return !slices.ContainsFunc(told, func(synced toolscache.InformerSynced) bool { return !synced() })
}

// tells notes that a handler is registered, and with nil that it no longer is.
func (g *generation) tells(h *handler, synced toolscache.InformerSynced) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if delete(g.told, h); synced != nil {
		g.told[h] = synced
	}
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
	maps.DeleteFunc(g.indexed, func(x *index, _ func() error) bool { return x.form == of })
	return err
}

// outdated reports whether a form has an index that is none of these: it was removed, and made anew without it.
func (g *generation) outdated(of form, indexes []*index) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for x := range g.indexed {
		if x.form == of && !slices.Contains(indexes, x) {
			return true
		}
	}
	return false
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
	err := add()
	if err != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.indexed, x)
	}
	return err
}

func (g *generation) forms() []form {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.made))
}

// judges returns all, always in the same order, or those of some forms.
func (g *generation) judges(of ...form) (all []*judge) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for form := structured; form <= metadata; form++ {
		if len(of) == 0 || slices.Contains(of, form) {
			all = append(all, g.made[form]...)
		}
	}
	return all
}

// synced reports whether all that the generation has was listed.
func (g *generation) synced() bool {
	return !slices.ContainsFunc(g.judges(), func(j *judge) bool { return !j.informer.HasSynced() })
}

// ready reports whether the generation can take the place of another: each of its lists has come or is
// forbidden, and no fewer have come.
func (g *generation) ready(old *generation) bool {
	listed := func(all []*judge) (n int) {
		for _, j := range all {
			if j.informer.HasSynced() {
				n++
			}
		}
		return n
	}
	all := g.judges()
	for _, j := range all {
		if !j.informer.HasSynced() && !apierrors.IsForbidden(j.failure()) {
			return false
		}
	}
	return listed(all) >= min(len(all), listed(old.judges()))
}

// failure returns why a list or a watch of the generation has failed the last time.
func (g *generation) failure() error {
	for _, j := range g.judges() {
		if err := j.failure(); err != nil {
			return err
		}
	}
	return nil
}

// in returns the options of a list for the namespace of a client for one, "" if it is not through such a client. Another
// namespace that the options name counts. Upstream finds nothing in a namespace of what is cluster-wide.
func (g *generation) in(namespace string, opts []client.ListOption) []client.ListOption {
	if namespace == "" {
		return opts
	}
	if named := (&client.ListOptions{}).ApplyOptions(opts).Namespace; cmp.Or(named, namespace) != namespace {
		return opts
	}
	if g.ofCluster() {
		namespace = ""
	}
	return append(slices.Clone(opts), client.InNamespace(namespace))
}

// explain adds why the kind can't be listed to upstream's error, which is that it did not sync in time.
func (g *generation) explain(err error) error {
	if err == nil || !apierrors.IsTimeout(err) {
		return err
	}
	if failed := g.failure(); failed != nil {
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
	g.made[of] = append(g.made[of], judged)
	if g.k.now.Load() == g {
		g.k.changes.Add(1)
	}
	return impatient{judged.informer, g}
}

// impatient is an informer that nobody waits for unless its generation is the present one: upstream's IndexField would, of
// the next one, with the context that it was called with.
type impatient struct {
	toolscache.SharedIndexInformer
	g *generation
}

func (i impatient) HasSynced() bool {
	return i.g.retired.Load() || i.g.k.now.Load() != i.g || i.SharedIndexInformer.HasSynced()
}

// judge tells the mapper of what contradicts the mapping of an informer.
type judge struct {
	g        *generation
	lw       toolscache.ListerWatcherWithContext
	informer toolscache.SharedIndexInformer
	failed   atomic.Pointer[error] // why the last list or watch failed; nil if it did not
	asking   atomic.Bool           // the mapper, because of an event
}

func (j *judge) listWatch() toolscache.ListerWatcher {
	return &toolscache.ListWatch{ListWithContextFunc: j.list, WatchFuncWithContext: j.watch}
}

// note notes how a list or a watch has ended.
func (j *judge) note(err error) {
	if err == nil {
		j.failed.Store(nil)
		j.g.lost.Store(false)
		return
	}
	j.failed.Store(&err)
}

func (j *judge) failure() error { return ptr.Deref(j.failed.Load(), nil) }

// list lists. Who waits for an informer that can get no objects would wait for ever. So the first list is
// empty if the generation is retired, or if it is the present one and a read that began after the server has
// refused the list shows that the kind is not served. One that may become the present one must not begin so.
func (j *judge) list(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	empty := &metav1.PartialObjectMetadataList{}
	if j.g.retired.Load() && !j.informer.HasSynced() {
		return empty, nil
	}
	found, err := j.lw.ListWithContext(ctx, opts)
	if follow.DoubtOfList(j.g.mapping, found, err) == follow.Contradiction {
		now, unproven := j.contradicted(ctx, err)
		switch {
		case err != nil && meta.IsNoMatchError(unproven) && j.g.k.now.Load() == j.g && !j.informer.HasSynced():
			return empty, nil
		case err == nil && (now != nil || unproven != nil || j.keepsOut()):
			err = j.expired()
		}
	}
	j.note(err)
	if err == nil && j.g.forgot.Load() { // it was under way, or the kind is back
		if j.informer.HasSynced() { // nobody waits for this list
			_, _ = j.contradicted(ctx, nil)
		}
		return empty, nil
	}
	return found, err
}

// watch watches, unless the generation is retired or forgotten. A watch that begins with the objects is refused as by a
// server that knows no such watches if it may end as expired: a reflector would begin it again at once. It lists then,
// which is judged whole, and rests before it tries again.
func (j *judge) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	switch over := j.g.retired.Load() || j.g.forgot.Load(); {
	case (over || j.keepsOut()) && opts.SendInitialEvents != nil:
		return nil, apierrors.NewInvalid(j.g.k.gvk.GroupKind(), "", nil)
	case over:
		return nil, j.expired()
	}
	watching, err := j.lw.WatchWithContext(ctx, opts)
	if follow.DoubtOf(err) == follow.Contradiction {
		_, _ = j.contradicted(ctx, err)
	}
	if err != nil {
		j.note(err)
		return watching, err
	}
	return follow.Watched(watching, func(event watch.Event) (watch.Event, bool) { return j.sift(ctx, event) }), nil
}

// sift ends a watch if an object shows that the kind is not cluster-wide any more. The mapper is asked beside it.
func (j *judge) sift(ctx context.Context, event watch.Event) (watch.Event, bool) {
	if j.g.forgot.Load() {
		return event, event.Type == watch.Error
	}
	if !j.g.ofCluster() || !follow.HasNamespace(event.Object) {
		return event, true
	}
	if !j.asking.Swap(true) {
		j.g.k.c.run(func() {
			_, _ = j.contradicted(ctx, nil)
			j.asking.Store(false)
		})
	}
	if j.keepsOut() {
		return watch.Event{Type: watch.Error, Object: &j.expired().ErrStatus}, true
	}
	return event, true
}

// keepsOut reports whether what is in namespaces must not come in: the path is cluster-wide, and the kind was
// namespaced or the cache is for some namespaces only.
func (j *judge) keepsOut() bool {
	if !j.g.ofCluster() {
		return false
	}
	return len(j.g.k.c.opts.DefaultNamespaces) > 0 || j.g.k.c.mapper.WasNamespaced(j.g.k.gvk.GroupKind())
}

// contradicted is called when an answer contradicts the mapping: an error, or an object in a namespace. It
// returns what Moved returns. A path that has refused is listed anew at once if the kind is served after all.
func (j *judge) contradicted(ctx context.Context, refused error) (*meta.RESTMapping, error) {
	now, err := j.g.k.c.mapper.Moved(ctx, j.g.mapping, follow.Contradiction)
	if meta.IsNoMatchError(err) || err == nil && refused != nil {
		j.g.lost.Store(true)
	}
	if j.g.k.now.Load() == j.g {
		j.g.k.ring()
	}
	return now, err
}

func (j *judge) expired() *apierrors.StatusError {
	return apierrors.NewResourceExpired(j.g.k.gvk.String() + " is served at another path")
}
