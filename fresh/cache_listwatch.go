// SPDX-License-Identifier: Apache-2.0

package fresh

import (
	"context"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/freshmapper/freshmapper/internal/follow"
)

// validatingListWatch is how an informer lists and watches. For an instance that is absent or retired it sends
// nothing. For the others it compares each answer with the mapping of the instance. An answer contradicts the mapping
// if it is a 404 of the path, or has an object that does not fit the scope. Then it asks the mapper, and passes the
// answer on only if that cannot mix the objects of two paths.
//
// The first objects come in one of two ways (KEP-3157): by a watch that begins with them, which is client-go's
// default, and by a list, if the server does not know such watches.
type validatingListWatch struct {
	i              *instance
	representation follow.Representation
	upstream       toolscache.ListerWatcherWithContext
	informer       toolscache.SharedIndexInformer

	removed context.Context // ends when the instance removes the informer
	remove  context.CancelFunc

	failed       atomic.Pointer[error]        // why the last list or watch failed; nil if it did not
	confirmation atomic.Pointer[confirmation] // nil if there was none
}

// confirmation is that the mapper has confirmed a mapping although an object does not fit its scope.
type confirmation struct {
	at         time.Time
	generation uint64 // of the mapper, at that time
}

func (lw *validatingListWatch) listWatch() toolscache.ListerWatcher {
	return &toolscache.ListWatch{ListWithContextFunc: lw.list, WatchFuncWithContext: lw.watch}
}

func (lw *validatingListWatch) lastError() error { return ptr.Deref(lw.failed.Load(), nil) }

// isUnsynced reports whether the informer has not listed its objects yet.
func (lw *validatingListWatch) isUnsynced() bool { return !lw.informer.HasSynced() }

// sendsNothing reports whether the instance needs no objects.
func (lw *validatingListWatch) sendsNothing() bool { return lw.i.is(absent) || lw.i.is(retired) }

// noteSuccess notes that the objects were listed, by a list or by a watch. That shows that the instance is right.
func (lw *validatingListWatch) noteSuccess() {
	lw.failed.Store(nil)
	if lw.i.is(outdated) {
		lw.i.become(present)
	}
}

// noteFailure notes why a list or a watch has failed. If the kind may not be listed, it may become absent.
func (lw *validatingListWatch) noteFailure(err error) {
	lw.failed.Store(&err)
	if apierrors.IsForbidden(err) && lw.i.isCurrent() && lw.i.k.isOptional() {
		lw.i.k.wake()
	}
}

// logError logs an error as client-go does, except that an optional kind may not be listed yet. The cache tries again
// and again then, and setWaiting logs that in one line.
func (lw *validatingListWatch) logError(ctx context.Context, r *toolscache.Reflector, err error) {
	if apierrors.IsForbidden(err) && lw.i.k.isOptional() && lw.isUnsynced() {
		return
	}
	toolscache.DefaultWatchErrorHandler(ctx, r, err)
}

// list lists the objects.
//
// If the kind is not served, a caller that waits for the first list of an informer would wait indefinitely. So the
// current instance begins with an empty list, once a read of the server has shown that the kind is not served. An
// instance that is filling must not begin so: it would remove the objects of the current one.
func (lw *validatingListWatch) list(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	empty := &metav1.PartialObjectMetadataList{}
	if lw.sendsNothing() {
		return empty, nil
	}
	found, err := lw.upstream.ListWithContext(ctx, opts)
	contradicts := follow.ReplyOfList(lw.i.mapping, found, err) == follow.ReplyContradicts
	if contradicts && err != nil {
		_, noAnswer := lw.askMapper(ctx, err)
		if meta.IsNoMatchError(noAnswer) && lw.i.isCurrent() && lw.isUnsynced() {
			return empty, nil
		}
	}
	if contradicts && err == nil && lw.rejectsObjects(ctx) {
		err = lw.expired()
	}
	if err != nil {
		lw.noteFailure(err)
		return found, err
	}
	lw.noteSuccess()
	return found, nil
}

// watch watches the objects. With opts.SendInitialEvents it begins with those that exist.
func (lw *validatingListWatch) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	initial := ptr.Deref(opts.SendInitialEvents, false)
	if lw.sendsNothing() {
		return lw.idleWatch(initial), nil
	}
	watching, err := lw.upstream.WatchWithContext(ctx, opts)
	if err != nil {
		// After an initial watch that has failed a list follows, which shows the same.
		if follow.ReplyOf(err) == follow.ReplyContradicts && !initial {
			_, _ = lw.askMapper(ctx, err)
		}
		if !apierrors.IsForbidden(err) { // only a list shows whether the kind may be listed, and client-go lists next
			lw.noteFailure(err)
		}
		return watching, err
	}
	rejected := false // the function below is called for one event at a time
	return follow.FilterWatch(watching, func(event watch.Event) (watch.Event, bool) {
		if rejected {
			return event, false
		}
		if endsInitialEvents(event) {
			initial = false
			lw.noteSuccess()
		}
		if lw.fitsScope(event) || !lw.rejectsEvent(ctx, initial) {
			return event, true
		}
		rejected = true
		return watch.Event{Type: watch.Error, Object: lw.rejection(initial)}, true
	}), nil
}

// idleWatch returns a watch in which nothing happens. If it is initial, it begins with the bookmark that ends the
// initial events, of which there are none.
func (lw *validatingListWatch) idleWatch(initial bool) watch.Interface {
	events := make(chan watch.Event, 1)
	if initial {
		bookmark := lw.i.k.object(lw.representation)
		bookmark.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		events <- watch.Event{Type: watch.Bookmark, Object: bookmark}
	}
	return watch.NewProxyWatcher(events)
}

// endsInitialEvents reports whether an event is the bookmark after the initial events of a watch.
func endsInitialEvents(event watch.Event) bool {
	if event.Type != watch.Bookmark {
		return false
	}
	object, err := meta.Accessor(event.Object)
	return err == nil && object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}

// fitsScope reports whether the object of an event, if it has one, fits the scope of the mapping.
func (lw *validatingListWatch) fitsScope(event watch.Event) bool {
	switch event.Type {
	case watch.Added, watch.Modified, watch.Deleted:
		return lw.i.clusterScoped() != follow.HasNamespace(event.Object)
	default:
		return true
	}
}

// rejectsEvent reports whether an object that does not fit the scope must not get into the store. Initial events are
// treated as a list: together they replace all that is in the store. After these, an object without a namespace must
// not get in beside objects in namespaces.
func (lw *validatingListWatch) rejectsEvent(ctx context.Context, initial bool) bool {
	if lw.rejectsObjects(ctx) {
		return true
	}
	return !initial && !lw.i.clusterScoped() && lw.hasNamespacedObject()
}

// rejectsObjects reports whether objects that do not fit the scope must not get into the store, in one of these
// cases:
//
//   - The kind has another mapping, or the mapper could not find out. One of several API servers may know a new scope
//     before the others.
//   - Objects with a namespace have come for a cluster-scoped kind that was namespaced before, or in a cache of single
//     namespaces.
func (lw *validatingListWatch) rejectsObjects(ctx context.Context) bool {
	mapper := lw.i.k.c.mapper
	generation := mapper.Generation()
	last := lw.confirmation.Load()
	if last == nil || last.generation != generation || time.Since(last.at) > replicaLag {
		newMapping, err := lw.askMapper(ctx, nil)
		if newMapping != nil || err != nil {
			return true
		}
		lw.confirmation.Store(&confirmation{at: time.Now(), generation: generation})
	}
	if !lw.i.clusterScoped() {
		return false
	}
	return len(lw.i.k.c.opts.DefaultNamespaces) > 0 || mapper.WasNamespaced(lw.i.k.gvk.GroupKind())
}

// hasNamespacedObject reports whether the store has an object in a namespace.
func (lw *validatingListWatch) hasNamespacedObject() bool {
	for _, obj := range lw.informer.GetStore().List() {
		object, err := meta.Accessor(obj)
		if err == nil && object.GetNamespace() != "" {
			return true
		}
	}
	return false
}

// askMapper is called when an answer contradicts the mapping. refused is the error of the answer, or nil if an object
// does not fit. It returns the new mapping of the kind, if there is one. The error is NoMatch if the kind is not
// served, and another one if the mapper could not find out.
func (lw *validatingListWatch) askMapper(ctx context.Context, refused error) (*meta.RESTMapping, error) {
	newMapping, err := lw.i.k.c.mapper.NewMapping(ctx, lw.i.mapping, follow.ReplyContradicts)
	if meta.IsNoMatchError(err) || err == nil && refused != nil {
		lw.i.become(outdated)
	}
	if lw.i.isCurrent() {
		lw.i.k.wake()
	}
	return newMapping, err
}

// expired returns the error with which a reflector lists again, after a pause.
func (lw *validatingListWatch) expired() *apierrors.StatusError {
	return apierrors.NewResourceExpired(lw.i.k.gvk.String() + " is served at another path")
}

// rejection returns the status that ends a watch. After an initial watch that has expired, a reflector begins another
// one without a pause. So an initial watch ends as one on a server that does not know such watches, and then a list
// follows.
func (lw *validatingListWatch) rejection(initial bool) *metav1.Status {
	if initial {
		return &apierrors.NewInvalid(lw.i.k.gvk.GroupKind(), "", nil).ErrStatus
	}
	return &lw.expired().ErrStatus
}
