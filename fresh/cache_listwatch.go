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

// validatingListWatch is how an informer lists and watches. It sends nothing for an instance that is absent or retired. For
// the others it compares each answer with the mapping of the instance. An answer contradicts the mapping if it is a 404 of
// the path, or has an object that does not fit the scope. Then the mapper is asked, and the answer is passed on only if it
// cannot mix the objects of two paths.
//
// There are two ways for the first objects to come (KEP-3157): by a watch that begins with them, which is client-go's
// default, and by a list, for servers that do not know such watches.
type validatingListWatch struct {
	i        *instance
	of       representation
	upstream toolscache.ListerWatcherWithContext
	informer toolscache.SharedIndexInformer
	removed  context.Context // ends when the instance removes the informer
	remove   context.CancelFunc

	failed    atomic.Pointer[error]     // why the last list or watch failed; nil if it did not
	confirmed atomic.Pointer[confirmed] // that the mapping is right although an object does not fit
}

// confirmed is when the mapper has confirmed a mapping, and the revision of the API at which that was.
type confirmed struct {
	at         time.Time
	generation uint64
}

func (lw *validatingListWatch) listWatch() toolscache.ListerWatcher {
	return &toolscache.ListWatch{ListWithContextFunc: lw.list, WatchFuncWithContext: lw.watch}
}

func (lw *validatingListWatch) lastError() error { return ptr.Deref(lw.failed.Load(), nil) }

// note notes how a list or a watch has ended. A list that came, in whichever way, shows that the instance is right.
func (lw *validatingListWatch) note(err error) {
	if err != nil {
		lw.failed.Store(&err)
		if apierrors.IsForbidden(err) && lw.i.current() && lw.i.k.optional() {
			lw.i.k.wake()
		}
		return
	}
	lw.failed.Store(nil)
	if lw.i.is(outdated) {
		lw.i.become(present)
	}
}

// logError logs an error as client-go does. Why an optional kind may not be listed yet is in the one line of waitsFor instead:
// the cache tries again and again.
func (lw *validatingListWatch) logError(ctx context.Context, r *toolscache.Reflector, err error) {
	if apierrors.IsForbidden(err) && lw.i.k.optional() && !lw.informer.HasSynced() {
		return
	}
	toolscache.DefaultWatchErrorHandler(ctx, r, err)
}

// list lists the objects. A caller that waits for the first list of an informer would wait indefinitely if the kind is not
// served. So the current instance begins with an empty list once a read of the server has shown that. An instance that is
// filling must not begin so, because it would remove the objects of the current one.
func (lw *validatingListWatch) list(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	empty := &metav1.PartialObjectMetadataList{}
	if lw.i.is(absent) || lw.i.is(retired) {
		return empty, nil
	}
	found, err := lw.upstream.ListWithContext(ctx, opts)
	if follow.ReplyOfList(lw.i.mapping, found, err) != follow.ReplyContradicts {
		lw.note(err)
		return found, err
	}
	if err != nil {
		_, unproven := lw.askMapper(ctx, err)
		if meta.IsNoMatchError(unproven) && lw.i.current() && !lw.informer.HasSynced() {
			return empty, nil
		}
	} else if lw.refuses(ctx) {
		err = lw.expired()
	}
	lw.note(err)
	return found, err
}

// watch watches the objects, and with opts.SendInitialEvents begins with those there are.
func (lw *validatingListWatch) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	initial := ptr.Deref(opts.SendInitialEvents, false)
	if lw.i.is(absent) || lw.i.is(retired) {
		return lw.idle(initial), nil
	}
	watching, err := lw.upstream.WatchWithContext(ctx, opts)
	if err != nil {
		if follow.ReplyOf(err) == follow.ReplyContradicts && !initial { // of an initial one the list that follows tells
			_, _ = lw.askMapper(ctx, err)
		}
		if !apierrors.IsForbidden(err) { // a list tells whether the kind may be listed, and client-go lists next
			lw.note(err)
		}
		return watching, err
	}
	refused := false // only the function below uses it, one event at a time
	return follow.FilterWatch(watching, func(event watch.Event) (watch.Event, bool) {
		if refused {
			return event, false
		}
		if endsInitialEvents(event) {
			initial = false
			lw.note(nil)
		}
		if lw.fits(event) || !lw.refusesEvent(ctx, initial) {
			return event, true
		}
		refused = true
		return watch.Event{Type: watch.Error, Object: lw.refusal(initial)}, true
	}), nil
}

// idle returns a watch in which nothing happens. With initial, it begins with the bookmark that ends the initial events,
// of which there are none.
func (lw *validatingListWatch) idle(initial bool) watch.Interface {
	events := make(chan watch.Event, 1)
	if initial {
		end := lw.i.k.object(lw.of)
		end.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		events <- watch.Event{Type: watch.Bookmark, Object: end}
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

// fits reports whether the object of an event, if it has one, fits the scope of the mapping.
func (lw *validatingListWatch) fits(event watch.Event) bool {
	switch event.Type {
	case watch.Added, watch.Modified, watch.Deleted:
		return lw.i.clusterScoped() != follow.HasNamespace(event.Object)
	}
	return true
}

// refusesEvent reports whether an object that does not fit the scope must not get into the store. While initial events
// come they are not in the store yet, so they are judged as a list is: they replace all that is there.
func (lw *validatingListWatch) refusesEvent(ctx context.Context, initial bool) bool {
	return lw.refuses(ctx) || !initial && !lw.i.clusterScoped() && lw.hasNamespaced()
}

// refuses reports whether objects that do not fit the scope must not get in: the kind has another path, the mapper could not
// find out, or the path is that of a cluster-scoped kind that was namespaced before, or of a cache for some namespaces only.
// One of several API servers may know a new scope before the others.
func (lw *validatingListWatch) refuses(ctx context.Context) bool {
	generation := lw.i.k.c.mapper.Generation()
	if last := lw.confirmed.Load(); last == nil || last.generation != generation || time.Since(last.at) > patience {
		switched, err := lw.askMapper(ctx, nil)
		if switched != nil || err != nil {
			return true
		}
		lw.confirmed.Store(&confirmed{at: time.Now(), generation: generation})
	}
	if !lw.i.clusterScoped() {
		return false
	}
	return len(lw.i.k.c.opts.DefaultNamespaces) > 0 || lw.i.k.c.mapper.WasNamespaced(lw.i.k.gvk.GroupKind())
}

// hasNamespaced reports whether the store has an object in a namespace.
func (lw *validatingListWatch) hasNamespaced() bool {
	for _, obj := range lw.informer.GetStore().List() {
		if object, err := meta.Accessor(obj); err == nil && object.GetNamespace() != "" {
			return true
		}
	}
	return false
}

// askMapper is called when an answer contradicts the mapping: refused is its error, or nil if an object does not fit. It
// returns the mapping to which the kind has switched, if any. The error is NoMatch if the kind is not served, and another
// one if that could not be found out.
func (lw *validatingListWatch) askMapper(ctx context.Context, refused error) (*meta.RESTMapping, error) {
	now, err := lw.i.k.c.mapper.NewMapping(ctx, lw.i.mapping, follow.ReplyContradicts)
	if meta.IsNoMatchError(err) || err == nil && refused != nil {
		lw.i.become(outdated)
	}
	if lw.i.current() {
		lw.i.k.wake()
	}
	return now, err
}

// expired makes a reflector list again, after a pause.
func (lw *validatingListWatch) expired() *apierrors.StatusError {
	return apierrors.NewResourceExpired(lw.i.k.gvk.String() + " is served at another path")
}

// refusal is the status that ends a watch. A reflector begins an initial watch that has expired again without a pause, so that
// ends as one does on a server that does not know such watches, and then a list follows.
func (lw *validatingListWatch) refusal(initial bool) *metav1.Status {
	if initial {
		return &apierrors.NewInvalid(lw.i.k.gvk.GroupKind(), "", nil).ErrStatus
	}
	return &lw.expired().ErrStatus
}
