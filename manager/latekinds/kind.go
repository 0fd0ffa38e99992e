// SPDX-License-Identifier: Apache-2.0

package latekinds

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Kind is controller-runtime's source.Kind for a kind that may be absent: one optional watch of a controller
// that runs anyway. Give the manager, or another cluster, where source.Kind takes its cache:
//
//	ctrl.NewControllerManagedBy(mgr).For(&appv1.App{}).
//		WatchesRawSource(latekinds.Kind(mgr, &examplev1.Widget{}, h)).
//		Complete(r)
//
// In place of Owns(&examplev1.Widget{}) the handler is
//
//	h := handler.TypedEnqueueRequestForOwner[*examplev1.Widget](mgr.GetScheme(), mgr.GetRESTMapper(), &appv1.App{}, handler.OnlyControllerOwner())
//
// The object may be unstructured or a PartialObjectMetadata, with its kind set. Give the builder's event filters, too,
// as predicates: they are not for raw sources.
//
// The kind may come, go and come back in any scope, any number of times:
//
//   - While it is absent, the source counts as synced, so the controller starts. That is so only if a read of
//     the server has shown it. In an outage, or if the kind is served and cannot be listed, as without
//     permission, the source is not synced: the controller fails after its CacheSyncTimeout, as with source.Kind.
//   - When it comes, the source is told all its objects, and nothing else: an App that has no Widget yet gets no
//     request. A reconciler that leaves work while it meets NoMatch returns RequeueAfter. The objects count as an initial list the first time only, so
//     a priority queue does not put later ones behind.
//   - When two live reads, a second apart, have found that it is gone, or has another scope or resource, each
//     object that the source was told and that is left is told as a Delete with DeleteStateUnknown. A failure
//     of the server is no absence.
//
// The informer is that of the cluster's cache, with its options. If that is a cache of
// github.com/freshmapper/freshmapper/fresh, or of the fork of controller-runtime, the informer
// stays while the kind is absent, for all who have it. Any other cache is made to remove the informer, also if
// others use it: then let all controllers watch the kind by Kind. None of them is told what is gone before the
// handlers of all have returned: one that blocks holds up the others.
//
// While the kind is absent, a Get or List of the cache is NoMatch (meta.IsNoMatchError), with MatchingFields,
// too. After the kind has gone, a cache that keeps the informer has no objects instead.
//
// The cluster's mapper must be one that Add takes. Changes are noticed as its RunWhileServed says. It asks
// discovery, so no permission to read CustomResourceDefinitions is needed. All sources of a kind of one cache
// wait together: one log line tells that the kind is absent, and one that it has come, and the gauge
// controller_runtime_late_kinds_absent{group,version,kind} counts the caches in which it is absent.
func Kind[object client.Object](
	of cluster.Cluster, obj object, handler handler.TypedEventHandler[object, reconcile.Request], predicates ...predicate.TypedPredicate[object],
) *Source[object, reconcile.Request] {
	return TypedKind(of, obj, handler, predicates...)
}

// TypedKind is Kind for any type of request, as source.TypedKind is.
func TypedKind[object client.Object, request comparable](
	of cluster.Cluster, obj object, handler handler.TypedEventHandler[object, request], predicates ...predicate.TypedPredicate[object],
) *Source[object, request] {
	return &Source[object, request]{cluster: of, obj: obj, handler: handler, predicates: predicates}
}

// Source is a source.TypedSyncingSource for a kind that may be absent. Make one with Kind. It belongs to one
// controller at a time, and may be started again when that has ended.
type Source[object client.Object, request comparable] struct {
	cluster    cluster.Cluster
	obj        object
	handler    handler.TypedEventHandler[object, request]
	predicates []predicate.TypedPredicate[object]
	indexes    []index
	indexed    atomic.Pointer[session] // in which the indexes were made last

	last atomic.Pointer[watching] // what Start has begun; nil before
}

// index is a call of IndexField.
type index struct {
	field   string
	extract client.IndexerFunc
}

// watching is what is known of a source between its start and the end of its controller.
type watching struct {
	presence *presence
	first    sync.Once
	synced   chan struct{}         // closed when the source is synced for the first time
	listed   atomic.Bool           // the source is synced now
	failed   atomic.Pointer[error] // why it could not be begun the last time
	ended    atomic.Bool           // its controller has
}

// IndexField adds an index, as client.FieldIndexer does, for a kind that may be absent: each time that the kind
// comes, before the handler is told of its objects. Call it before the controller starts, and for each field of a
// kind on one source only. It returns the source.
func (s *Source[object, request]) IndexField(field string, extract client.IndexerFunc) *Source[object, request] {
	s.indexes = append(s.indexes, index{field, extract})
	return s
}

// String names the source in logs.
func (s *Source[object, request]) String() string {
	return fmt.Sprintf("optional kind source: %T", s.obj)
}

// Start is for controllers only. It returns an error if an argument of Kind is missing, if the scheme does not
// have the kind, or if the mapper can't wait for kinds.
func (s *Source[object, request]) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
	switch {
	case s.cluster == nil, any(s.obj) == nil, s.handler == nil:
		return errors.New("latekinds: Kind needs a cluster, an object and a handler, and one of them is nil")
	}
	gvk, err := apiutil.GVKForObject(s.obj, s.cluster.GetScheme())
	if err != nil {
		return fmt.Errorf("latekinds: find the kind of %T: %w", s.obj, err)
	}
	mapper := waits(s.cluster.GetRESTMapper())
	if mapper == nil {
		return cannotWait(s.cluster.GetRESTMapper(), "kind "+gvk.Kind)
	}
	w := &watching{presence: enter(ctx, s.cluster.GetCache(), mapper, s.obj, gvk), synced: make(chan struct{})}
	s.last.Store(w)
	go func() {
		defer w.presence.leave()
		defer w.ended.Store(true)
		var at *session
		for {
			if at = w.presence.join(ctx, at); at == nil {
				return
			}
			s.watch(ctx, w, at, &gate[object, request]{to: s.handler, predicates: s.predicates, queue: queue, later: w.wasSynced()})
		}
	}()
	return nil
}

// watch watches the kind until the session ends, and tells then what is gone.
func (s *Source[object, request]) watch(ctx context.Context, w *watching, at *session, g *gate[object, request]) {
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(at.ctx, cancel)()
	for wait := time.Second; running.Err() == nil; wait = min(2*wait, longestWait) {
		err := s.begin(running, at, g)
		switch {
		case running.Err() != nil:
		case err == nil:
			w.listed.Store(true)
			w.first.Do(func() { close(w.synced) })
			<-running.Done()
		default:
			w.failed.Store(&err)
			log.FromContext(ctx).WithName("latekinds").Error(err, "An optional kind cannot be watched, and is tried again", "source", s.String())
			sleep(running, wait)
		}
	}
	w.listed.Store(false)
	g.close()
	at.users.Done()
	select {
	case <-at.empty:
		g.tellGone(ctx)
	case <-ctx.Done():
	}
}

// begin makes the indexes, once for each informer, and starts a source of controller-runtime's. It returns when
// that is synced.
func (s *Source[object, request]) begin(ctx context.Context, at *session, g *gate[object, request]) error {
	cache, last := s.cluster.GetCache(), s.indexed.Load()
	if last == nil || last != at && keeperOf(cache) == nil {
		for _, index := range s.indexes {
			if err := cache.IndexField(ctx, s.obj, index.field, index.extract); err != nil {
				return fmt.Errorf("index field %q: %w", index.field, err)
			}
		}
		s.indexed.Store(at)
	}
	kind := source.TypedKind(cache, s.obj, handler.TypedEventHandler[object, request](g))
	if err := kind.Start(ctx, g.queue); err != nil {
		return err
	}
	return kind.WaitForSync(ctx)
}

// WaitForSync is for controllers only. It returns nil when the cache has the objects of the kind, or when
// a read has shown that the kind is absent; and an error if ctx has a deadline that passes before.
func (s *Source[object, request]) WaitForSync(ctx context.Context) error {
	w := s.last.Load()
	if w == nil {
		return errors.New("latekinds: the source was not started")
	}
	for {
		absent, changed := w.presence.absence()
		if absent {
			return nil
		}
		select {
		case <-w.synced:
			return nil
		case <-changed:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return nil
			}
			return errors.Join(fmt.Errorf("timed out waiting for cache to be synced for %s", s), w.failure())
		}
	}
}

func (w *watching) wasSynced() bool {
	select {
	case <-w.synced:
		return true
	default:
		return false
	}
}

func (w *watching) failure() error {
	if err := w.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Readyz has the shape of controller-runtime's healthz.Checker, for who wants a program not to be ready while
// the kind is absent. Its error names the kind. It sends no request. Where no controller runs the source, as on a
// replica that does not lead, it returns nil.
//
//	err := mgr.AddReadyzCheck("widgets", widgets.Readyz)
func (s *Source[object, request]) Readyz(*http.Request) error {
	w := s.last.Load()
	if w == nil || w.ended.Load() {
		return nil
	}
	switch absent, _ := w.presence.absence(); {
	case absent:
		return fmt.Errorf("%s is not served", w.presence.gvk)
	case !w.listed.Load():
		return errors.Join(fmt.Errorf("%s is not listed yet", w.presence.gvk), w.failure())
	}
	return nil
}

var _ source.SyncingSource = &Source[client.Object, reconcile.Request]{}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
