// SPDX-License-Identifier: Apache-2.0

package served

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/engine"
	"github.com/freshmapper/freshmapper/internal/follow"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// RunWhile runs run while the server serves all of the kinds. It waits for the kinds, and then calls run with a
// context. It cancels the context when one of the kinds is no longer served, or is served with another scope or
// resource name, which two live reads, a second apart, have to confirm. Then it waits for run to return, and begins
// again.
//
// RunWhile calls run in the caller's goroutine, and never twice at once. It returns:
//
//   - nil when ctx ends, after run has returned, whatever that returned;
//   - what run returns by itself while its context is not canceled. A nil is logged, because run should wait for what
//     it started;
//   - the error that run returns after its context was canceled, unless that is only the cancellation: then RunWhile
//     waits for the kinds again.
//
// A failure of the server never stops run, never ends the wait, and is not returned.
//
// It fits controller-runtime's manager in one line:
//
//	mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
//		return served.RunWhile(ctx, mapper, runWidgets, widgetKind)
//	}))
//
// If run builds a controller, it needs a cache of its own, whose informers end with it, and a name that may be used
// again. A controller of a manager of package fresh needs no RunWhile: its sources wait for their kinds.
//
// If you name a kind without a version, RunWhile takes the version that the server prefers when run begins, because run
// may depend on it: when that version is removed, the kind counts as removed. RunWhile notices changes in the same ways
// as Wait.
func RunWhile(
	ctx context.Context, mapper *apiutil.DynamicRESTMapper,
	run func(context.Context) error, gvks ...schema.GroupVersionKind,
) error {
	e := engine.Of(mapper)
	for ctx.Err() == nil {
		served, err := await(ctx, e, gvks)
		if err != nil || ctx.Err() != nil {
			return nil //nolint:nilerr // It fails only when ctx ends.
		}
		stopped, err := runOnce(ctx, e, run, served)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // As documented.
		}
		if !stopped {
			if err == nil {
				logEnd(ctx, e, gvks)
			}
			return err
		}
		if err != nil && !onlyCanceled(err) {
			return err
		}
	}
	return nil
}

// logEnd logs that run has returned nil, which nobody else reports.
func logEnd(ctx context.Context, e *engine.Engine, gvks []schema.GroupVersionKind) {
	log := e.Reports.Named(cmp.Or(e.Options.Logger, klog.FromContext(ctx)))
	log.Info("RunWhile has ended: run returned nil while its kinds were served, and is not called again. "+
		"It should block until its context ends", "kinds", gvks)
}

// onlyCanceled reports whether err, however wrapped, is the cancellation of a context and
// nothing else.
func onlyCanceled(err error) bool {
	return !engine.AnyError(err, func(err error) bool { return !errors.Is(err, context.Canceled) })
}

// runOnce runs run until it returns. stopped reports whether its context ended before that: because the kinds are no
// longer served as in served, or because ctx ended.
func runOnce(
	ctx context.Context, e *engine.Engine, run func(context.Context) error, served []meta.RESTMapping,
) (stopped bool, err error) {
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
			awaitRemoval(ctx, e, gv, mappings)
		}()
	}
	err = run(ctx)
	return ctx.Err() != nil, err
}

// awaitRemoval returns when two live reads have confirmed that a version no longer serves its mappings, or when ctx
// ends. The version is read every MaxPollPause, once for all callers: a kind of an APIService may be removed without an
// event, and without a change of the document.
func awaitRemoval(ctx context.Context, e *engine.Engine, gv schema.GroupVersion, mappings []meta.RESTMapping) {
	served := func(s *snapshot.Snapshot) bool { return stillServed(s, mappings) }

	backoff := engine.PollBackoff()
	due := e.NextPoll(engine.MaxPollPause, time.Now())
	for ctx.Err() == nil {
		changed := e.Reloader.Changed()
		if !served(e.Reloader.Snapshot()) {
			if e.Reloader.Absent(ctx, gv, served) {
				return
			}
			discovery.Sleep(ctx, backoff.Step())
			continue
		}
		backoff = engine.PollBackoff()
		select {
		case <-due:
			_ = e.PollVersion(ctx, gv, engine.MaxPollPause) // an error says nothing
			due = e.NextPoll(engine.MaxPollPause, time.Now())
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// stillServed reports whether s has all of the mappings, each in its version.
func stillServed(s *snapshot.Snapshot, mappings []meta.RESTMapping) bool {
	return !slices.ContainsFunc(mappings, func(was meta.RESTMapping) bool {
		gvk := was.GroupVersionKind
		now, _, err := s.RESTMapping(gvk.GroupKind(), []string{gvk.Version})
		return err != nil || follow.Differ(now, &was)
	})
}
