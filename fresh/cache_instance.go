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
// the scope of a kind (paths, namespaces, selectors, keys) is right as long as the instance lives.
type instance struct {
	cache.Cache
	k       *kind
	mapping *meta.RESTMapping     // an absent instance has a guess, with which no request is sent
	state   atomic.Int32          // a state; become changes it
	reason  atomic.Pointer[error] // why the kind is absent; nil unless the instance is, or was, absent

	ctx    context.Context // of start, which writes it
	cancel func()          // ends the instance

	mu            sync.Mutex                                       // guards the rest
	listWatch     map[follow.Representation][]*validatingListWatch // one for each informer of controller-runtime's
	indexed       map[*index]func() error                          // adds an index, once
	registrations map[*handler]toolscache.InformerSynced           // whether the first list was delivered to each
}

// newInstance makes an instance in a state: the first one of a kind is present or absent, later ones are filling or
// absent. It sends no request.
func newInstance(k *kind, mapping *meta.RESTMapping, initial state) (*instance, error) {
	i := &instance{
		k: k, mapping: mapping, cancel: func() {},
		listWatch:     map[follow.Representation][]*validatingListWatch{},
		indexed:       map[*index]func() error{},
		registrations: map[*handler]toolscache.InformerSynced{},
	}
	i.state.Store(int32(initial))
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

// newAbsentInstance makes an absent instance. It never sends a request, so its mapping is a guess.
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

// forClusterScope returns the options for a kind that is cluster-scoped. cache.New rejects the namespaces that the
// options name for such a kind: they are for the time when it is namespaced.
//
//   - The options of metav1.NamespaceAll apply to all objects.
//   - An entry that names single namespaces is for a program that is confined to these. It keeps its kind from
//     switching to the cluster scope, unless the cache has no objects of the kind: then the namespaces are left out.
func (k *kind) forClusterScope(by cache.ByObject) cache.ByObject {
	current := k.current.Load()
	config, isForAll := by.Namespaces[metav1.NamespaceAll]
	switch {
	case isForAll:
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

// isCurrent reports whether reads and handlers use the instance.
func (i *instance) isCurrent() bool { return i.k.current.Load() == i }

func (i *instance) start(ctx context.Context) {
	i.ctx, i.cancel = context.WithCancel(ctx)
	i.k.c.run(func() {
		if err := i.Start(i.ctx); err != nil && !errors.Is(err, context.Canceled) {
			log.Log.WithName("fresh").
				Error(err, "The cache of a kind has stopped, and its content is not updated any more",
					"kind", i.k.gvk.String())
		}
		if i.is(retired) { // a program that has one of its informers still refers to the store
			for _, lw := range i.listWatches() {
				_ = lw.informer.GetStore().Replace(nil, "")
			}
		}
	})
}

const (
	// maxFirstListWait is for how long a retired instance goes on at most, for callers that wait for its first list.
	// A reflector pauses for up to 60 seconds, and a handler may block indefinitely.
	maxFirstListWait = 90 * time.Second

	// syncedCheckerLag is longer than the time after which client-go closes the channel of HasSyncedChecker, once
	// HasSynced returns true. It does not close it if the informer ends before.
	syncedCheckerLag = time.Second
)

// end retires the instance. It does not wait. Callers may wait for its informers or registrations to sync, and so
// does controller-runtime itself for several namespaces. So the instance goes on until they have synced, with an
// empty list.
func (i *instance) end() {
	i.become(retired)
	if i.ctx == nil {
		return
	}
	i.k.c.run(func() {
		ctx, cancel := context.WithTimeout(i.ctx, maxFirstListWait)
		defer cancel()
		if toolscache.WaitForCacheSync(ctx.Done(), i.synced) {
			toolscache.WaitForCacheSync(ctx.Done(), i.handlersSynced)
			pause(ctx, syncedCheckerLag)
		}
		i.cancel()
	})
}

// handlersSynced reports whether the first list was delivered to all handlers. It holds no lock while it asks,
// because a transform may hold one of controller-runtime's.
func (i *instance) handlersSynced() bool {
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

// informer returns controller-runtime's informer of a representation, which is made if there is none. It does not
// wait until the informer has synced.
func (i *instance) informer(ctx context.Context, representation follow.Representation) (cache.Informer, error) {
	return i.GetInformer(ctx, i.k.object(representation), cache.BlockUntilSynced(false))
}

// remove removes the informer of a representation, with its indexes.
func (i *instance) remove(ctx context.Context, representation follow.Representation) error {
	i.mu.Lock()
	for _, lw := range i.listWatch[representation] {
		lw.remove()
	}
	delete(i.listWatch, representation)
	for x := range i.indexed {
		if x.representation == representation {
			delete(i.indexed, x)
		}
	}
	i.mu.Unlock()
	return i.RemoveInformer(ctx, i.k.object(representation))
}

// hasOtherIndexes reports whether the informer of a representation has an index that is not among these. Then the
// informer was removed meanwhile, and made again.
func (i *instance) hasOtherIndexes(representation follow.Representation, indexes []*index) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	for x := range i.indexed {
		if x.representation == representation && !slices.Contains(indexes, x) {
			return true
		}
	}
	return false
}

// index adds an index, unless the instance has it already.
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
func (i *instance) representations() []follow.Representation {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Sorted(maps.Keys(i.listWatch))
}

// listWatches returns those of all representations, in a fixed order.
func (i *instance) listWatches() (all []*validatingListWatch) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, representation := range slices.Sorted(maps.Keys(i.listWatch)) {
		all = append(all, i.listWatch[representation]...)
	}
	return all
}

// listWatchesOf returns those of a representation: one for each namespace that the cache has, or one for all.
func (i *instance) listWatchesOf(representation follow.Representation) []*validatingListWatch {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.listWatch[representation])
}

// storesOf returns the stores of a representation.
func (i *instance) storesOf(representation follow.Representation) (stores []toolscache.Store) {
	for _, lw := range i.listWatchesOf(representation) {
		stores = append(stores, lw.informer.GetStore())
	}
	return stores
}

// synced reports whether each informer of the instance has listed its objects.
func (i *instance) synced() bool {
	return !slices.ContainsFunc(i.listWatches(), func(lw *validatingListWatch) bool { return !lw.informer.HasSynced() })
}

// countSynced returns how many informers have listed their objects.
func (i *instance) countSynced() (n int) {
	for _, lw := range i.listWatches() {
		if lw.informer.HasSynced() {
			n++
		}
	}
	return n
}

// canReplace reports whether the instance may take the place of another one: each of its informers has listed its
// objects, or may not list them, and no fewer have listed them than those of the other instance.
func (i *instance) canReplace(old *instance) bool {
	all := i.listWatches()
	for _, lw := range all {
		if !lw.informer.HasSynced() && !apierrors.IsForbidden(lw.lastError()) {
			return false
		}
	}
	return i.countSynced() >= min(len(all), old.countSynced())
}

// forbidden returns why the kind may not be listed, or nil. If all objects were listed in one representation, the
// program keeps them, whatever is forbidden later.
//
// In a cache of several namespaces, one in which the kind may not be listed is enough: the kind is absent as a whole.
// To have the objects of the others, and none of that one, would report a missing permission as missing objects.
func (i *instance) forbidden() error {
	var reason error
	for _, representation := range i.representations() {
		listWatches := i.listWatchesOf(representation)
		if !slices.ContainsFunc(listWatches, (*validatingListWatch).isUnsynced) {
			return nil
		}
		for _, lw := range listWatches {
			if err := lw.lastError(); lw.isUnsynced() && apierrors.IsForbidden(err) {
				reason = err
			}
		}
	}
	return reason
}

// lastError returns why the last list or watch of one of the informers has failed, or nil.
func (i *instance) lastError() error {
	for _, lw := range i.listWatches() {
		if err := lw.lastError(); err != nil {
			return err
		}
	}
	return nil
}

// inNamespace returns the options of a list through a client for a namespace, or the same options if namespace is "".
// If the options name another namespace, that one counts. For a cluster-scoped kind the namespace is left out,
// because controller-runtime finds nothing there.
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

// explain adds the reason to controller-runtime's error that an informer did not sync in time.
func (i *instance) explain(err error) error {
	if err == nil || !apierrors.IsTimeout(err) {
		return err
	}
	if reason := i.lastError(); reason != nil {
		return fmt.Errorf("%w: %w", err, reason)
	}
	return err
}

// newInformer is cache.Options.NewInformer of the instance: it gives each informer a ListerWatcher that validates
// what comes.
func (i *instance) newInformer(
	upstream toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers toolscache.Indexers,
) toolscache.SharedIndexInformer {
	representation := follow.RepresentationOf(obj)
	lw := &validatingListWatch{
		i:              i,
		representation: representation,
		upstream:       toolscache.ToListerWatcherWithContext(upstream),
	}
	lw.removed, lw.remove = context.WithCancel(context.Background())
	construct := toolscache.NewSharedIndexInformer
	if i.k.c.opts.NewInformer != nil {
		construct = i.k.c.opts.NewInformer
	}
	// It does not get the caller's object, because a reflector reads it while the caller may write to it.
	lw.informer = construct(lw.listWatch(), i.k.object(representation), resync, indexers)
	_ = lw.informer.SetWatchErrorHandlerWithContext(lw.logError) // a handler of the program takes its place
	i.k.settings[representation].applyTo(lw.informer)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.listWatch[representation] = append(i.listWatch[representation], lw)
	if i.isCurrent() {
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

// RunWithContext runs the informer until its instance ends or has removed it. That is also when the context ends
// which controller-runtime hands over. But that context is derived from channels, and package context starts a
// goroutine for each context that is derived from such a one: client-go derives two for each informer. So the
// informer gets another context, with the same values.
func (x instanceInformer) RunWithContext(ctx context.Context) {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(x.i.ctx, cancel)()
	defer context.AfterFunc(x.lw.removed, cancel)()
	x.SharedIndexInformer.RunWithContext(own)
}

// SetTransform is called by controller-runtime with the transform of the options. If the program has set another one
// on the informer, that one stays.
func (x instanceInformer) SetTransform(transform toolscache.TransformFunc) error {
	if x.i.k.settings[x.lw.representation].transform.Load() != nil {
		return nil
	}
	return x.SharedIndexInformer.SetTransform(transform)
}

// SetWatchErrorHandlerWithContext does the same for the handler of errors.
func (x instanceInformer) SetWatchErrorHandlerWithContext(handle toolscache.WatchErrorHandlerWithContext) error {
	if x.i.k.settings[x.lw.representation].watchErrorHandler.Load() != nil {
		return nil
	}
	return x.SharedIndexInformer.SetWatchErrorHandlerWithContext(handle)
}

// HasSynced reports whether the informer has listed its objects, or callers need not wait for that, because its
// instance is not the current one: IndexField of a controller-runtime before v0.24 waits for it, also in an instance
// that is filling, until the context of the caller ends.
func (x instanceInformer) HasSynced() bool {
	return x.i.is(retired) || !x.i.isCurrent() || x.SharedIndexInformer.HasSynced()
}
