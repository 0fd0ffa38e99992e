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
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/freshmapper/freshmapper/internal/follow"
)

// instance is a cache of controller-runtime for one kind, with one mapping. All that controller-runtime derives from
// the scope of a kind (paths, namespaces, selectors, keys) is right for its life.
type instance struct {
	cache.Cache
	k       *kind
	mapping *meta.RESTMapping     // of an absent instance: a guess, which leads to no request
	state   atomic.Int32          // a state; become changes it
	reason  atomic.Pointer[error] // why the kind is absent; nil unless the instance is, or was, absent

	ctx    context.Context // of start, which writes it
	cancel func()          // ends the instance

	mu            sync.Mutex                                // guards the rest
	listWatch     map[representation][]*validatingListWatch // one for each informer of controller-runtime's
	indexed       map[*index]func() error                   // adds an index, once
	registrations map[*handler]toolscache.InformerSynced    // reports whether the first list was delivered to a handler
}

// newInstance makes an instance that is present or filling. It sends no request.
func newInstance(k *kind, mapping *meta.RESTMapping, is state) (*instance, error) {
	i := &instance{
		k: k, mapping: mapping, cancel: func() {},
		listWatch:     map[representation][]*validatingListWatch{},
		indexed:       map[*index]func() error{},
		registrations: map[*handler]toolscache.InformerSynced{},
	}
	i.state.Store(int32(is))
	opts := k.c.opts
	opts.Mapper = follow.PinnedMapper{RESTMapper: opts.Mapper, Mapping: mapping}
	opts.ByObject = maps.Clone(k.c.byObject[k.gvk])
	if i.clusterScoped() {
		for obj, by := range opts.ByObject {
			opts.ByObject[obj] = k.forClusterScope(by)
		}
	}
	opts.NewInformer = i.newInformer
	var err error
	i.Cache, err = cache.New(k.c.config, opts)
	return i, err
}

// newAbsentInstance makes an absent instance. What it has is never listed, so its path is a guess.
func newAbsentInstance(k *kind, reason error) (*instance, error) {
	plural, _ := meta.UnsafeGuessKindToResource(k.gvk)
	guess := &meta.RESTMapping{Resource: plural, GroupVersionKind: k.gvk, Scope: meta.RESTScopeNamespace}
	i, err := newInstance(k, guess, absent)
	if err != nil {
		return nil, err
	}
	i.reason.Store(&reason)
	return i, nil
}

// absentBecause returns why the kind is absent, or nil if the instance is not absent.
func (i *instance) absentBecause() error {
	if !i.is(absent) {
		return nil
	}
	return *i.reason.Load()
}

// forClusterScope returns the options of a kind that is cluster-scoped. Such a kind has no namespaces, and cache.New refuses
// any that the options name: they are for the time when it is namespaced. Those of all namespaces apply to all objects. An
// entry that names single namespaces keeps its kind from switching to the cluster scope, unless the cache has none of its
// objects: it was made for a program that is confined to these namespaces.
func (k *kind) forClusterScope(by cache.ByObject) cache.ByObject {
	current := k.current.Load()
	config, ofAll := by.Namespaces[metav1.NamespaceAll]
	switch {
	case ofAll:
		by.Label = cmp.Or(config.LabelSelector, by.Label)
		by.Field = cmp.Or(config.FieldSelector, by.Field)
		by.UnsafeDisableDeepCopy = cmp.Or(config.UnsafeDisableDeepCopy, by.UnsafeDisableDeepCopy)
		if config.Transform != nil {
			by.Transform = config.Transform
		}
		by.Namespaces = nil
	case current == nil || current.is(absent):
		by.Namespaces = nil
	}
	return by
}

func (i *instance) clusterScoped() bool { return i.mapping.Scope.Name() == meta.RESTScopeNameRoot }

// current reports whether reads and handlers use the instance.
func (i *instance) current() bool { return i.k.current.Load() == i }

func (i *instance) start(ctx context.Context) {
	i.ctx, i.cancel = context.WithCancel(ctx)
	i.k.c.run(func() {
		if err := i.Start(i.ctx); err != nil && !errors.Is(err, context.Canceled) {
			log.Log.WithName("fresh").Error(err, "A cache has ended", "kind", i.k.gvk.String())
		}
		if i.is(retired) { // whoever has one of its informers still refers to its store
			for _, lw := range i.listWatches() {
				_ = lw.informer.GetStore().Replace(nil, "")
			}
		}
	})
}

// firstListGrace is how long a retired instance goes on at most for callers that wait for its first list: a reflector
// pauses for up to 60 seconds, and a handler may block indefinitely.
const firstListGrace = 90 * time.Second

// end retires the instance. It waits for nothing. Callers may wait for its informers or registrations to sync, also
// controller-runtime's own for several namespaces. So it goes on until they have synced, with an empty list.
func (i *instance) end() {
	i.become(retired)
	if i.ctx == nil {
		return
	}
	i.k.c.run(func() {
		ctx, cancel := context.WithTimeout(i.ctx, firstListGrace)
		defer cancel()
		if toolscache.WaitForCacheSync(ctx.Done(), i.synced) {
			toolscache.WaitForCacheSync(ctx.Done(), i.delivered)
			pause(ctx, pace) // client-go closes the channel of HasSyncedChecker a moment later, and not if ctx ends before
		}
		i.cancel()
	})
}

// delivered reports whether all handlers were given the first list. It calls with no lock held, because a transform may
// hold one of controller-runtime's.
func (i *instance) delivered() bool {
	i.mu.Lock()
	all := slices.Collect(maps.Values(i.registrations))
	i.mu.Unlock()
	return !slices.ContainsFunc(all, func(synced toolscache.InformerSynced) bool { return !synced() })
}

// addRegistration notes that a handler is registered. synced reports whether the first list was delivered to it.
func (i *instance) addRegistration(h *handler, synced toolscache.InformerSynced) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.registrations[h] = synced
}

// removeRegistration notes that a handler is no longer registered.
func (i *instance) removeRegistration(h *handler) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.registrations, h)
}

// informer returns controller-runtime's informer of a representation, which is made if there is none. It does not wait
// until the informer has synced.
func (i *instance) informer(ctx context.Context, of representation) (cache.Informer, error) {
	return i.GetInformer(ctx, i.k.object(of), cache.BlockUntilSynced(false))
}

// remove removes the informer of a representation, with its indexes.
func (i *instance) remove(ctx context.Context, of representation) error {
	i.mu.Lock()
	for _, lw := range i.listWatch[of] {
		lw.remove()
	}
	delete(i.listWatch, of)
	for x := range i.indexed {
		if x.of == of {
			delete(i.indexed, x)
		}
	}
	i.mu.Unlock()
	return i.RemoveInformer(ctx, i.k.object(of))
}

// hasOtherIndexes reports whether the informer of a representation has an index that is not among these: the informer
// was removed since and made anew.
func (i *instance) hasOtherIndexes(of representation, indexes []*index) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	for x := range i.indexed {
		if x.of == of && !slices.Contains(indexes, x) {
			return true
		}
	}
	return false
}

// index adds an index, unless the instance has it.
func (i *instance) index(x *index) error {
	i.mu.Lock()
	add := i.indexed[x]
	if add == nil {
		add = sync.OnceValue(func() error { return x.add(i) })
		i.indexed[x] = add
	}
	i.mu.Unlock()
	err := add()
	if err != nil {
		i.mu.Lock()
		defer i.mu.Unlock()
		delete(i.indexed, x)
	}
	return err
}

// representations returns those of which the instance has informers.
func (i *instance) representations() []representation {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Sorted(maps.Keys(i.listWatch))
}

// listWatches returns all, always in the same order.
func (i *instance) listWatches() (all []*validatingListWatch) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, of := range slices.Sorted(maps.Keys(i.listWatch)) {
		all = append(all, i.listWatch[of]...)
	}
	return all
}

// listWatchesOf returns those of a representation: one for each namespace that the cache has, or one for all.
func (i *instance) listWatchesOf(of representation) []*validatingListWatch {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.listWatch[of])
}

// storesOf returns the stores of a representation.
func (i *instance) storesOf(of representation) (stores []toolscache.Store) {
	for _, lw := range i.listWatchesOf(of) {
		stores = append(stores, lw.informer.GetStore())
	}
	return stores
}

// synced reports whether all that the instance has was listed.
func (i *instance) synced() bool {
	return !slices.ContainsFunc(i.listWatches(), func(lw *validatingListWatch) bool { return !lw.informer.HasSynced() })
}

// listed returns how many lists have come.
func (i *instance) listed() (n int) {
	for _, lw := range i.listWatches() {
		if lw.informer.HasSynced() {
			n++
		}
	}
	return n
}

// canReplace reports whether the instance may take the place of another one: each of its lists has come, or is forbidden
// although no fewer have come than to the other one.
func (i *instance) canReplace(old *instance) bool {
	all := i.listWatches()
	for _, lw := range all {
		if !lw.informer.HasSynced() && !apierrors.IsForbidden(lw.lastError()) {
			return false
		}
	}
	return i.listed() >= min(len(all), old.listed())
}

// forbidden returns why the kind may not be listed, or nil. A program that has been given all objects in one
// representation keeps them, whatever is forbidden later.
func (i *instance) forbidden() (why error) {
	for _, of := range i.representations() {
		complete := true
		for _, lw := range i.listWatchesOf(of) {
			if lw.informer.HasSynced() {
				continue
			}
			complete = false
			if err := lw.lastError(); apierrors.IsForbidden(err) {
				why = err
			}
		}
		if complete {
			return nil
		}
	}
	return why
}

// lastError returns why a list or a watch of the instance has failed the last time.
func (i *instance) lastError() error {
	for _, lw := range i.listWatches() {
		if err := lw.lastError(); err != nil {
			return err
		}
	}
	return nil
}

// inNamespace returns the options of a list for the namespace of a client for one, "" if it is not through such a
// client. Another namespace that the options name counts. controller-runtime finds nothing in a namespace of a
// cluster-scoped kind.
func (i *instance) inNamespace(namespace string, opts []client.ListOption) []client.ListOption {
	if namespace == "" {
		return opts
	}
	if named := (&client.ListOptions{}).ApplyOptions(opts).Namespace; named != "" && named != namespace {
		return opts
	}
	if i.clusterScoped() {
		namespace = ""
	}
	return append(slices.Clone(opts), client.InNamespace(namespace))
}

// explain adds why the kind can't be listed to controller-runtime's error, which is that it did not sync in time.
func (i *instance) explain(err error) error {
	if err == nil || !apierrors.IsTimeout(err) {
		return err
	}
	if why := i.lastError(); why != nil {
		return fmt.Errorf("%w: %w", err, why)
	}
	return err
}

// newInformer is the hook of controller-runtime's cache: it sees how an informer lists and watches.
func (i *instance) newInformer(
	upstream toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers toolscache.Indexers,
) toolscache.SharedIndexInformer {
	of := representationOf(obj)
	lw := &validatingListWatch{i: i, of: of, upstream: toolscache.ToListerWatcherWithContext(upstream)}
	lw.removed, lw.remove = context.WithCancel(context.Background())
	construct := toolscache.NewSharedIndexInformer
	if i.k.c.opts.NewInformer != nil {
		construct = i.k.c.opts.NewInformer
	}
	// Not the caller's object: a reflector reads it while the caller may write to it.
	lw.informer = construct(lw.listWatch(), i.k.object(of), resync, indexers)
	_ = lw.informer.SetWatchErrorHandlerWithContext(lw.logError) // a handler of the program's, if any, takes its place
	i.k.settings[of].applyTo(lw.informer)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.listWatch[of] = append(i.listWatch[of], lw)
	if i.current() {
		i.k.changes.Add(1)
	}
	return instanceInformer{lw.informer, i, lw}
}

// instanceInformer is what controller-runtime gets as its informer.
type instanceInformer struct {
	toolscache.SharedIndexInformer
	i  *instance
	lw *validatingListWatch
}

// RunWithContext runs the informer until its instance ends or has removed it. That is also when the context ends which
// controller-runtime hands over. But that context is derived from channels, and package context starts a goroutine for
// each context that is derived from such a one: client-go derives two for each informer. So the informer gets another
// context, with the same values.
func (x instanceInformer) RunWithContext(ctx context.Context) {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(x.i.ctx, cancel)()
	defer context.AfterFunc(x.lw.removed, cancel)()
	x.SharedIndexInformer.RunWithContext(own)
}

// SetTransform is called by controller-runtime with the transform of the options. One that the program has set on the
// informer stays.
func (x instanceInformer) SetTransform(transform toolscache.TransformFunc) error {
	if x.i.k.settings[x.lw.of].transform.Load() != nil {
		return nil
	}
	return x.SharedIndexInformer.SetTransform(transform)
}

// SetWatchErrorHandlerWithContext is the same for the handler of errors.
func (x instanceInformer) SetWatchErrorHandlerWithContext(handle toolscache.WatchErrorHandlerWithContext) error {
	if x.i.k.settings[x.lw.of].watchErrors.Load() != nil {
		return nil
	}
	return x.SharedIndexInformer.SetWatchErrorHandlerWithContext(handle)
}

// HasSynced reports whether nobody need wait for the informer. Nobody waits for one whose instance is not the current one:
// controller-runtime's IndexField would, of an instance that is filling, with the context that it was called with.
func (x instanceInformer) HasSynced() bool {
	return x.i.is(retired) || !x.i.current() || x.SharedIndexInformer.HasSynced()
}
