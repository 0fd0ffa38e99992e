// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// RunWhileServed runs run while the server serves all of the kinds. It waits for the
// kinds, and then calls run with a context. It cancels the context when one of the kinds
// goes, or is served with another scope or resource name. It waits for run to return, and
// begins again. If you name a kind without a version, RunWhileServed watches the version
// that the server preferred when run began, because run may depend on it: when that
// version goes, the kind counts as gone. RunWhileServed calls run in the caller's
// goroutine, and never twice at once. It returns:
//
//   - nil when ctx ends, after run has returned;
//   - run's error, even if it is nil, if run returns by itself. A nil is logged, because
//     run should wait for what it started;
//   - the error that run returns after its context was cancelled, unless that is only the
//     cancellation.
//
// It fits controller-runtime's manager in one line:
//
//	mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
//		return mapper.RunWhileServed(ctx, runWidgets, widgetKind)
//	}))
//
// If run builds a controller, it needs a cache of its own, whose informers end with it, and
// a name that may come back. The package latekinds in this repository's module manager does
// that for a controller's SetupWithManager.
//
// RunWhileServed notices changes in the same ways as WaitForKinds. Before it stops run,
// it confirms with a live read that a kind has gone.
func (m *DynamicRESTMapper) RunWhileServed(
	ctx context.Context, run func(context.Context) error, gvks ...schema.GroupVersionKind,
) error {
	for ctx.Err() == nil {
		served, err := m.awaitServed(ctx, gvks)
		if err != nil || ctx.Err() != nil {
			return nil //nolint:nilerr // It fails only when ctx ends.
		}
		stopped, err := m.runOnce(ctx, run, served)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // As documented.
		}
		if !stopped && err == nil {
			m.logEnd(ctx, gvks)
		}
		if !stopped || err != nil && !onlyCanceled(err) {
			return err
		}
	}
	return nil
}

// onlyCanceled reports whether err, however wrapped, is the cancellation of a context and
// nothing else.
func onlyCanceled(err error) bool {
	switch joined := err.(type) { //nolint:errorlint // This is what walks the tree.
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(joined.Unwrap(), func(err error) bool { return !onlyCanceled(err) })
	case interface{ Unwrap() error }:
		if inner := joined.Unwrap(); inner != nil {
			return onlyCanceled(inner)
		}
	}
	return errors.Is(err, context.Canceled)
}

// runOnce runs run until it returns. stopped reports whether its context ended,
// because the kinds are no longer served as in served, or because ctx ended.
func (m *DynamicRESTMapper) runOnce(ctx context.Context, run func(context.Context) error, served []meta.RESTMapping) (stopped bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		m.awaitGone(ctx, served)
		cancel()
	}()
	defer func() { // even if run panics
		cancel()
		<-gone
	}()
	err = run(ctx)
	return ctx.Err() != nil, err
}

// awaitGone returns when a live read has confirmed that the kinds are no longer served
// as in served, or when ctx ends. It reads their versions live every mostPoll, because a
// kind of an APIService may go without an event, and without a word in the document.
func (m *DynamicRESTMapper) awaitGone(ctx context.Context, served []meta.RESTMapping) {
	var asking sync.WaitGroup
	defer asking.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	backoff, due := pollBackoff(), time.After(mostPoll)
	for ctx.Err() == nil {
		changed := m.reloader.Changed()
		if !stillServed(m.reloader.Snapshot(), served) {
			if m.confirmGone(ctx, served) {
				return
			}
			pause(ctx, backoff.Step())
			continue
		}
		backoff = pollBackoff()
		select {
		case <-due:
			due = time.After(mostPoll)
			asking.Add(1)
			go func() { // in the background, because the group of one of the kinds may hang
				defer asking.Done()
				m.confirmGone(ctx, served)
			}()
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// confirmGone reads the versions of the mappings live, side by side, and reports whether
// one of the mappings is no longer served. If a version can't be read, its mapping is not
// gone.
func (m *DynamicRESTMapper) confirmGone(ctx context.Context, served []meta.RESTMapping) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	versions := map[schema.GroupVersion][]meta.RESTMapping{}
	for _, mapping := range served {
		gv := mapping.GroupVersionKind.GroupVersion()
		versions[gv] = append(versions[gv], mapping)
	}
	gone := make(chan bool, len(versions))
	for gv, mappings := range versions {
		go func() {
			s, err := m.reloader.ReadLive(ctx, gv)
			gone <- err == nil && !stillServed(s, mappings)
		}()
	}
	for range versions {
		if <-gone {
			return true
		}
	}
	return false
}

// stillServed reports whether s has all of the mappings, each in its version.
func stillServed(s *snapshot.Snapshot, mappings []meta.RESTMapping) bool {
	return !slices.ContainsFunc(mappings, func(was meta.RESTMapping) bool {
		now, err := mappingIn(s, &was)
		return err != nil || !sameMapping(now, &was)
	})
}

// logEnd logs that run has returned nil by itself and is not called again. That happens
// if run builds a controller and does not wait for it, and nobody else reports it.
// Without a Logger the line goes to klog, because you must see it.
func (m *DynamicRESTMapper) logEnd(ctx context.Context, gvks []schema.GroupVersionKind) {
	logger := m.options.Logger
	if logger.GetSink() == nil {
		logger = klog.FromContext(ctx)
	}
	m.named(logger).Info("RunWhileServed has ended: run returned nil while its kinds were served, and is not called again. "+
		"It should block until its context ends", "kinds", gvks)
}
