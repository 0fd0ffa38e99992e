// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/follow"
	"github.com/freshmapper/freshmapper/internal/reload"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// WaitForKinds returns nil once the server serves all of the kinds, as a read that began
// after the call has found, and at once if none is named. It waits through outages and
// refusals. If ctx ends first, it returns an error that wraps context.Cause(ctx), names the
// kinds that are missing, and has the last failure of a read, if it failed.
// For a kind without a version, any version will do. WaitForKinds rechecks when the mapper
// learns of a change. It also asks the server itself, whatever Start does, so it may be called
// before a manager starts: at once, and then with pauses that grow from 1 to 30 seconds, or
// every minute while the watches of WatchAPIs are open. All who wait share what they ask.
func (m *DynamicRESTMapper) WaitForKinds(ctx context.Context, gvks ...schema.GroupVersionKind) error {
	_, err := m.awaitServed(ctx, gvks)
	return err
}

// IsServed reports whether the server serves a kind: what a program asks once, when it starts, to decide
// which controllers it has. For a kind without a version, any version will do.
//
// The answer is that of a read which began after the call, of two requests mostly. A CustomResourceDefinition
// that is not Established yet is not served. In an outage, and if anything else keeps the mapper from finding out,
// IsServed returns an error, for which meta.IsNoMatchError is false; a group-version whose APIService does not answer
// is an error, too, and others do not matter. It does not try again: the error comes at once, or after RequestTimeout
// in all if the server is silent, or when ctx ends.
//
// Each call costs requests: in a reconciler, look the kind up, and ask meta.IsNoMatchError.
// The answer is that of a moment: the kind may come a second later, and go. WaitForKinds waits for it,
// RunWhileServed and the package latekinds follow it.
func (m *DynamicRESTMapper) IsServed(ctx context.Context, gvk schema.GroupVersionKind) (bool, error) {
	defer m.noteUse()
	silent := discovery.NotAwaited(snapshot.ReadVersion(gvk.Group, gvk.Version), m.options.RequestTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, m.options.RequestTimeout, silent)
	defer cancel()
	q, find := lookupOf(gvk)
	found := m.reloader.LookupSince(ctx, m.reloader.Now(), q, find)
	known, current := find(found.Snapshot)
	switch {
	case current:
		return true, nil
	case found.Err != nil || len(found.Failed) > 0:
		return false, lookupError(q, found.Failed, found.Err)
	case known:
		return false, lookupError(q, nil, errors.New("it was served, and no read confirms that"))
	}
	return false, nil
}

// lookupOf returns the lookup of a kind, in its version or in any.
func lookupOf(gvk schema.GroupVersionKind) (snapshot.Query, reload.Finder) {
	versions := []string{gvk.Version}
	q := snapshot.KindQuery(gvk.GroupKind(), versions)
	q.Thorough = true
	return q, func(s *snapshot.Snapshot) (known, current bool) {
		_, current, err := s.RESTMapping(gvk.GroupKind(), versions)
		return err == nil, current
	}
}

// awaitServed is WaitForKinds. It returns the mappings with which it found the
// kinds served, all in one snapshot.
func (m *DynamicRESTMapper) awaitServed(ctx context.Context, gvks []schema.GroupVersionKind) ([]meta.RESTMapping, error) {
	asks, cancel := context.WithCancel(ctx)
	defer cancel()
	began, backoff, due := m.reloader.Now(), pollBackoff(), time.After(0) // began: when the server was last asked
	age := time.Duration(0)                                               // of answers that others have got and that will do
	asked := make(chan answered, 1)
	var err error // why the server could not be asked the last time, or nil
	for {
		changed := m.reloader.Changed()
		mappings, missing := mappingsSince(m.reloader.Snapshot(), began, gvks)
		if len(missing) == 0 {
			return mappings, nil
		}
		if ctx.Err() != nil {
			return nil, errors.Join(fmt.Errorf("waiting for %v to be served: %w", missing, discovery.Cause(ctx)), err)
		}
		select {
		case <-due:
			go func(age time.Duration) { asked <- m.ask(asks, age, gvks) }(age)
		case a := <-asked:
			began, err, age = a.began, a.err, backoff.Step()
			due = m.due(age, a.at) // the answer may be that of others, and old: the period begins with it
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// answered is when what was asked began to be read, and why it could not be.
type answered struct {
	began snapshot.Tick
	at    time.Time
	err   error
}

// ask makes the reads that show whether the kinds are served, or takes those that others have made no longer than
// age ago. The results are in the snapshot afterwards. This is no lookup, so NegativeTTL does not apply.
func (m *DynamicRESTMapper) ask(ctx context.Context, age time.Duration, gvks []schema.GroupVersionKind) answered {
	all := answered{began: m.reloader.Now(), at: time.Now()}
	var errs []error
	for _, gvk := range gvks {
		q, find := lookupOf(gvk)
		ask := func(ctx context.Context, began snapshot.Tick) error {
			found := m.reloader.LookupSince(ctx, began, q, find)
			if found.Err != nil || len(found.Failed) > 0 {
				return lookupError(q, found.Failed, found.Err)
			}
			return nil
		}
		if age == 0 {
			errs = append(errs, ask(ctx, all.began))
			continue
		}
		about := question{GroupVersionKind: gvk}
		if known, _ := find(m.reloader.Snapshot()); !known && gvk.Version != "" {
			about.Kind = "" // its path tells of all
		}
		a, err := m.shared(ctx, age, about, ask)
		if errs = append(errs, err); a.at.Before(all.at) {
			all.began, all.at = min(all.began, a.began), a.at
		}
	}
	all.err = errors.Join(errs...)
	return all
}

// mappingsSince returns the mappings of those kinds that are served as a read has found
// that began after began, and the others.
func mappingsSince(s *snapshot.Snapshot, began snapshot.Tick, gvks []schema.GroupVersionKind) (served []meta.RESTMapping, missing []schema.GroupVersionKind) {
	s = s.Since(began)
	for _, gvk := range gvks {
		mapping, current, err := s.RESTMapping(gvk.GroupKind(), []string{gvk.Version})
		if err == nil && !current { // a version that hangs says nothing against the one that was found
			mapping, current, err = s.RESTMapping(gvk.GroupKind(), []string{mapping.GroupVersionKind.Version})
		}
		if err == nil && current {
			served = append(served, *mapping)
		} else {
			missing = append(missing, gvk)
		}
	}
	return served, missing
}

// RunWhileServed runs run while the server serves all of the kinds. It waits for the
// kinds, and then calls run with a context. It cancels the context when one of the kinds
// goes, or is served with another scope or resource name. It waits for run to return, and
// begins again. If you name a kind without a version, RunWhileServed watches the version
// that the server preferred when run began, because run may depend on it: when that
// version goes, the kind counts as gone. RunWhileServed calls run in the caller's
// goroutine, and never twice at once. It returns:
//
//   - nil when ctx ends, after run has returned, whatever that returned;
//   - what run returns by itself while its context is live. A nil is logged, because run
//     should wait for what it started;
//   - the error that run returns after a kind has gone, unless that is only the cancellation
//     of its context: then it waits again.
//
// A failure of the server never stops run, never ends the wait, and is not returned.
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
// it confirms with two live reads, a second apart, that a kind has gone.
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
			m.named(cmp.Or(m.options.Logger, klog.FromContext(ctx))).Info("RunWhileServed has ended: run returned nil while its kinds were served, "+
				"and is not called again. It should block until its context ends", "kinds", gvks) // nobody else reports it
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
	return !anyError(err, func(err error) bool { return !errors.Is(err, context.Canceled) })
}

// runOnce runs run until it returns. stopped reports whether its context ended,
// because the kinds are no longer served as in served, or because ctx ended.
func (m *DynamicRESTMapper) runOnce(ctx context.Context, run func(context.Context) error, served []meta.RESTMapping) (stopped bool, err error) {
	versions := map[schema.GroupVersion][]meta.RESTMapping{}
	for _, mapping := range served {
		gv := mapping.GroupVersionKind.GroupVersion()
		versions[gv] = append(versions[gv], mapping)
	}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel() // even if run panics
	for gv, mappings := range versions {
		watching.Add(1)
		go func() { // one for each version, because one of them may hang
			defer watching.Done()
			defer cancel()
			m.awaitGone(ctx, gv, mappings)
		}()
	}
	err = run(ctx)
	return ctx.Err() != nil, err
}

// awaitGone returns when two live reads have confirmed that a version no longer serves its
// mappings, or when ctx ends. The version is read every mostPoll, once for all, because a kind of
// an APIService may go without an event, and without a word in the document.
func (m *DynamicRESTMapper) awaitGone(ctx context.Context, gv schema.GroupVersion, mappings []meta.RESTMapping) {
	live := question{GroupVersionKind: gv.WithKind(""), live: true}
	backoff, due := pollBackoff(), m.due(mostPoll, time.Now())
	for ctx.Err() == nil {
		changed := m.reloader.Changed()
		if stillServed(m.reloader.Snapshot(), mappings) {
			backoff = pollBackoff()
			select {
			case <-due:
				_, _ = m.shared(ctx, mostPoll, live, func(ctx context.Context, _ snapshot.Tick) error {
					_, err := m.reloader.ReadLive(ctx, gv)
					return err
				})
				due = m.due(mostPoll, time.Now())
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		if m.reloader.Absent(ctx, gv, func(s *snapshot.Snapshot) bool { return stillServed(s, mappings) }) {
			return
		}
		discovery.Sleep(ctx, backoff.Step())
	}
}

// stillServed reports whether s has all of the mappings, each in its version.
func stillServed(s *snapshot.Snapshot, mappings []meta.RESTMapping) bool {
	return !slices.ContainsFunc(mappings, func(was meta.RESTMapping) bool {
		now, err := mappingIn(s, was.GroupVersionKind)
		return err != nil || follow.Differ(now, &was)
	})
}
