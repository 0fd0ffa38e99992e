// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/version"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	runtimesource "sigs.k8s.io/controller-runtime/pkg/source"
)

// source mirrors the marked objects of a kind. One source is enough for all kinds,
// because it keeps nothing.
type source struct {
	mgr   ctrl.Manager
	board *board
	opts  options
}

// run returns when ctx ends, or on an error. The kind is served until ctx ends.
func (s *source) run(ctx context.Context, gvk schema.GroupVersionKind) error {
	if err := s.awaitUse(ctx, gvk); err != nil {
		return err
	}
	warning, err := s.warning(ctx, gvk)
	if err != nil || ctx.Err() != nil {
		return err
	}
	return s.mirror(ctx, gvk, "in version "+gvk.Version+warning)
}

// awaitUse returns once there is a marked object of the kind, or when ctx ends. Asking
// for one from time to time is cheaper than a watch, and most kinds are never used at
// all.
func (s *source) awaitUse(ctx context.Context, gvk schema.GroupVersionKind) error {
	for ctx.Err() == nil {
		list, err := s.one(ctx, gvk, client.MatchingLabelsSelector{Selector: marked()})
		if err != nil || len(list.Items) > 0 {
			return err
		}
		s.board.set(gvk.GroupKind().String(), unused, "")
		pause(ctx, s.opts.probeInterval)
	}
	return nil
}

// one lists the metadata of one object.
func (s *source) one(
	ctx context.Context,
	gvk schema.GroupVersionKind,
	opts ...client.ListOption,
) (*metav1.PartialObjectMetadataList, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	return list, s.mgr.GetAPIReader().List(ctx, list, append(opts, client.Limit(1))...)
}

// warning says, before a kind is watched, that it has very many objects: the server reads
// all of them to list the marked ones. It is empty if the kind has not so many.
func (s *source) warning(ctx context.Context, gvk schema.GroupVersionKind) (string, error) {
	list, err := s.one(ctx, gvk)
	if err != nil {
		return "", err
	}
	objects := int64(len(list.Items)) + ptr.Deref(list.GetRemainingItemCount(), 0)
	if objects <= int64(s.opts.manyObjects) {
		return "", nil
	}
	warning := fmt.Sprintf(
		"there are %d objects of this kind, more than -many-objects=%d, "+
			"and the server reads all of them to list the marked ones",
		objects,
		s.opts.manyObjects,
	)
	s.mgr.GetLogger().Info("about to watch: "+warning, "kind", gvk.GroupKind().String())
	return "; " + warning, nil
}

// marked selects what a user marked as a source, and what this program marked as a copy.
func marked() labels.Selector {
	requirement, err := labels.NewRequirement(markLabel, selection.Exists, nil)
	if err != nil {
		return labels.Nothing() // markLabel is a constant, and valid
	}
	return labels.NewSelector().Add(*requirement)
}

// mirror watches the marked objects of a kind with its own cache and controller: they end
// with ctx, and leave nothing behind. In the manager's cache, whose options cannot name the kind before it is found,
// the watch of a kind that was removed would fail again and again until restart.
func (s *source) mirror(ctx context.Context, gvk schema.GroupVersionKind, message string) error {
	failing, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	objects, err := s.newCache(fail)
	if err != nil {
		return err
	}
	c, err := s.newController(gvk, objects)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(failing)
	group.Go(func() error { return objects.Start(ctx) })
	group.Go(func() error {
		if err := s.awaitSync(ctx, gvk, objects); err != nil || ctx.Err() != nil {
			return err
		}
		s.board.set(gvk.GroupKind().String(), running, message)
		return c.Start(ctx)
	})
	err = group.Wait()
	if cause := context.Cause(failing); !errors.Is(cause, context.Canceled) {
		return errors.Join(err, cause)
	}
	return err
}

// awaitSync waits for the first list, so that the controller, which waits for it, too,
// need not wait.
func (s *source) awaitSync(ctx context.Context, gvk schema.GroupVersionKind, objects cache.Cache) error {
	limited, cancel := context.WithTimeout(ctx, s.opts.syncTimeout)
	defer cancel()
	// Asking for the informer starts it, and waits.
	if _, err := objects.GetInformer(limited, metadataOf(gvk)); err != nil && ctx.Err() == nil {
		return fmt.Errorf("listing %s took longer than %s: %w", gvk.GroupKind(), s.opts.syncTimeout, err)
	}
	return nil
}

// newCache makes a cache of the metadata of marked objects. The rest of an object is read
// when the program copies it. If it may not be listed or watched any more,
// the cache, which would try until restart, calls fail. It does not if the server is down.
func (s *source) newCache(fail func(error)) (cache.Cache, error) {
	return cache.New(s.mgr.GetConfig(), cache.Options{
		HTTPClient:           s.mgr.GetHTTPClient(),
		Scheme:               s.mgr.GetScheme(),
		Mapper:               s.mgr.GetRESTMapper(),
		DefaultLabelSelector: marked(),
		DefaultTransform:     cache.TransformStripManagedFields(),
		DefaultWatchErrorHandler: func(ctx context.Context, r *toolscache.Reflector, err error) {
			toolscache.DefaultWatchErrorHandler(ctx, r, err)
			if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsMethodNotSupported(err) ||
				apierrors.IsInternalError(err) {
				fail(err)
			}
		},
	})
}

func (s *source) newController(gvk schema.GroupVersionKind, objects cache.Cache) (controller.Controller, error) {
	c, err := controller.NewUnmanaged("mirror-"+gvk.GroupKind().String(), controller.Options{
		Reconciler: &reconciler{
			gvk:        gvk,
			copies:     objects,
			client:     s.mgr.GetClient(), // which reads unstructured objects from the server
			events:     s.mgr.GetEventRecorder("lazywatch"),
			maxTargets: s.opts.maxTargets,
		},
		Logger:             s.mgr.GetLogger(),
		CacheSyncTimeout:   s.opts.syncTimeout,
		SkipNameValidation: ptr.To(true), // the kind may come back, and its controller with it
		// The program looks for a missing target at least every minute.
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, time.Minute),
	})
	if err != nil {
		return nil, err
	}
	return c, c.Watch(
		runtimesource.Kind[client.Object](objects, metadataOf(gvk), handler.EnqueueRequestsFromMapFunc(sourceOf)),
	)
}

func metadataOf(gvk schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(gvk)
	return object
}

// sources runs one source for each kind, each by itself: if one fails, the board shows
// that, and the others are not affected.
type sources struct {
	apis        apis
	kinds       filter
	board       *board
	maxFailures int           // in a row; then a kind is left alone
	rest        time.Duration // for so long
	// run mirrors the objects of a kind. It returns when ctx ends, or on an error.
	run func(ctx context.Context, gvk schema.GroupVersionKind) error
}

// kind is a kind that is mirrored if it can be.
type kind struct {
	versions map[string]resource // served, and not excluded
	chosen   resource            // the one that is mirrored
	stop     func()              // ends what was begun for chosen
	ended    chan struct{}       // closed when that has ended
}

// start blocks until ctx and all sources have ended.
func (s *sources) start(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	for _, pattern := range s.kinds.include {
		s.board.set(pattern, notServed, "") // until a kind is
	}
	kinds := map[schema.GroupKind]*kind{}
	s.apis.Watch(ctx, func(changes []change) {
		for gk, k := range s.note(kinds, changes) {
			r := k.best()
			if r == k.chosen {
				continue
			}
			k.stop()
			before, now := k.ended, make(chan struct{})
			ctx, stop := context.WithCancel(ctx)
			k.chosen, k.stop, k.ended = r, stop, now
			s.board.set(gk.String(), starting, "")
			group.Go(func() {
				defer close(now)
				<-before
				s.supervise(ctx, gk.String(), r)
			})
		}
		s.board.setListed()
	})
	return nil
}

// note takes over changes of selected kinds, and returns these kinds.
func (s *sources) note(kinds map[schema.GroupKind]*kind, changes []change) map[schema.GroupKind]*kind {
	changed := map[schema.GroupKind]*kind{}
	for _, c := range changes {
		if !s.kinds.has(c.gvk) {
			continue
		}
		gk := c.gvk.GroupKind()
		k := kinds[gk]
		if k == nil {
			k = &kind{versions: map[string]resource{}, stop: func() {}, ended: make(chan struct{})}
			close(k.ended) // nothing has begun
			kinds[gk] = k
			s.board.found(s.kinds.include.of(c.gvk))
		}
		delete(k.versions, c.gvk.Version)
		if c.served {
			k.versions[c.gvk.Version] = c.resource
		}
		changed[gk] = k
	}
	return changed
}

// best returns the highest version that is served: v2 before v1, and v1 before v1beta1.
func (k *kind) best() (best resource) {
	for _, r := range k.versions {
		if best.name == "" || version.CompareKubeAwareVersionStrings(r.gvk.Version, best.gvk.Version) > 0 {
			best = r
		}
	}
	return best
}

// supervise keeps a source until ctx ends. A kind that is not served or cannot be mirrored
// costs no request.
func (s *sources) supervise(ctx context.Context, name string, r resource) {
	switch {
	case r == resource{}:
		s.board.set(name, notServed, "")
		return
	case r.obstacle != "":
		s.board.set(name, notMirrorable, r.obstacle)
		return
	}
	err := s.apis.RunWhileServed(ctx, func(run context.Context) error {
		s.retry(run, name, r)
		if ctx.Err() == nil {
			s.board.set(name, notServed, "") // start has not been told yet
		}
		return nil
	}, r.gvk)
	if err != nil {
		s.board.set(name, failed, err.Error())
	}
}

// retry runs a source until ctx ends, which it does when the kind goes. It is a breaker: a
// source that fails again and again is left alone, and tried once after each rest.
func (s *sources) retry(ctx context.Context, name string, r resource) {
	failures, backoff := 0, pauses()
	for ctx.Err() == nil {
		s.board.set(name, starting, "")
		err := s.run(ctx, r.gvk)
		if err == nil || ctx.Err() != nil {
			continue
		}
		if was := s.board.set(name, failed, err.Error()); was == running || was == unused {
			failures, backoff = 0, pauses() // it has worked
		}
		if failures++; failures < s.maxFailures {
			pause(ctx, backoff.Step())
			continue
		}
		s.board.set(
			name,
			tripped,
			fmt.Sprintf("failed %d times in a row, tried again in %s: %v", failures, s.rest, err),
		)
		pause(ctx, s.rest)
	}
}

func pauses() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 30, Cap: time.Minute}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
