// SPDX-License-Identifier: Apache-2.0

package refresh

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
)

// watched lists the resources that tell of a change of the served API.
func watched() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{
		{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
		{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"},
	}
}

// Watcher rings whenever an object of one resource comes, changes or goes. It
// asks for metadata only and keeps next to nothing of that.
type Watcher struct {
	client   metadata.Interface
	resource schema.GroupVersionResource
	log      logr.Logger
	safe     func(error) error // what may be shown of an error

	watching atomic.Bool // a watch is open
	troubled atomic.Bool // the trouble has been logged
}

// NewWatchers makes a watcher for each resource that tells of a change of the API.
// What goes wrong is logged as safe returns it, which takes out credentials that a
// server may repeat.
func NewWatchers(client metadata.Interface, log logr.Logger, safe func(error) error) []*Watcher {
	var watchers []*Watcher
	for _, resource := range watched() {
		watchers = append(watchers, &Watcher{client: client, resource: resource, log: log, safe: safe})
	}
	return watchers
}

// Watching says whether a watch is open now.
func (w *Watcher) Watching() bool { return w.watching.Load() }

// run watches until ctx ends. client-go's informer lists, watches, resumes, and
// tries again with a backoff of up to half a minute.
func (w *Watcher) run(ctx context.Context, bell *Doorbell) {
	defer w.watching.Store(false)
	//nolint:staticcheck // The variants with a context are too young for k8s.io/client-go v0.32.
	source := &cache.ListWatch{
		ListFunc:  func(o metav1.ListOptions) (runtime.Object, error) { return w.client.Resource(w.resource).List(ctx, o) },
		WatchFunc: func(o metav1.ListOptions) (watch.Interface, error) { return w.open(ctx, o, bell) },
	}
	informer := cache.NewSharedIndexInformer(source, &metav1.PartialObjectMetadata{}, 0, cache.Indexers{})
	// None of the three fails before the informer runs.
	_ = informer.SetTransform(onlyIdentity)
	_ = informer.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { w.failed(ctx, err) })
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(_ any, old bool) {
			if old {
				bell.Ring()
			} else {
				bell.RingEvent()
			}
		},
		UpdateFunc: func(_, _ any) { bell.RingEvent() },
		DeleteFunc: func(any) { bell.RingEvent() },
	})
	informer.Run(ctx.Done())
}

// open opens a watch, and rings if there was none: the trouble may have hidden something.
func (w *Watcher) open(ctx context.Context, o metav1.ListOptions, bell *Doorbell) (watch.Interface, error) {
	stream, err := w.client.Resource(w.resource).Watch(ctx, o)
	if err != nil {
		w.watching.Store(false)
		if o.SendInitialEvents != nil {
			// After a refused connection or a 429 to a watch that is to list as well,
			// client-go waits for up to a minute without a look at the context. After
			// any other error it lists, and is done for now if that fails.
			err = errors.New(err.Error())
		}
		return nil, err
	}
	if !w.watching.Swap(true) {
		w.troubled.Store(false)
		bell.Ring()
	}
	return stream, nil
}

// onlyIdentity keeps of an object what the informer needs to tell it apart.
func onlyIdentity(object any) (any, error) {
	full, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object, nil
	}
	return &metav1.PartialObjectMetadata{
		TypeMeta:   full.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{Name: full.Name, UID: full.UID, ResourceVersion: full.ResourceVersion},
	}, nil
}

// failed logs once what has to be done, until the watch works again.
func (w *Watcher) failed(ctx context.Context, err error) {
	w.watching.Store(false)
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || w.troubled.Swap(true) {
		return
	}
	log := w.log.WithValues("group", w.resource.Group, "resource", w.resource.Resource)
	switch {
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		log.Error(w.safe(err), "cannot watch for API changes: a ClusterRole must allow the verbs list and watch on this resource; "+
			"until then only the interval and misses refresh")
	case apierrors.IsNotFound(err):
		log.Error(w.safe(err), "cannot watch for API changes: the server does not serve this resource; only the interval and misses refresh")
	default:
		log.Error(w.safe(err), "cannot watch for API changes now, trying again")
	}
}
