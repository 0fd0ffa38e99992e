// SPDX-License-Identifier: Apache-2.0

package served

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/engine"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Wait returns nil once the server serves all of the kinds, as a read that began
// after the call has found, and at once if none is named. It waits through outages and
// refusals. If ctx ends first, it returns an error that wraps context.Cause(ctx), names the
// kinds that are missing, and has the last failure of a read, if it failed.
// For a kind without a version, any version will do. Wait rechecks when the mapper
// learns of a change. It also asks the server itself, whatever Start does, so it may be called
// before a manager starts: at once, and then with pauses that grow from 1 to 30 seconds, or
// every minute while the watches of WatchAPIs are open. All who wait share what they ask.
func Wait(ctx context.Context, mapper *apiutil.DynamicRESTMapper, gvks ...schema.GroupVersionKind) error {
	_, err := await(ctx, engine.Of(mapper), gvks)
	return err
}

// await is Wait. It returns the mappings with which it found the
// kinds served, all in one snapshot.
func await(ctx context.Context, e *engine.Engine, gvks []schema.GroupVersionKind) ([]meta.RESTMapping, error) {
	asks, cancel := context.WithCancel(ctx)
	defer cancel()
	began, backoff, due := e.Reloader.LastSeq(), engine.PollBackoff(), time.After(0) // began: when the server was last asked
	age := time.Duration(0)                                                          // of answers that others have got and that will do
	asked := make(chan answered, 1)
	var err error // why the server could not be asked the last time, or nil
	for {
		changed := e.Reloader.Changed()
		mappings, missing := mappingsSince(e.Reloader.Snapshot(), began, gvks)
		if len(missing) == 0 {
			return mappings, nil
		}
		if ctx.Err() != nil {
			return nil, errors.Join(fmt.Errorf("waiting for %v to be served: %w", missing, discovery.Cause(ctx)), err)
		}
		select {
		case <-due:
			go func(age time.Duration) { asked <- ask(asks, e, age, gvks) }(age)
		case a := <-asked:
			began, err, age = a.began, a.err, backoff.Step()
			due = e.NextPoll(age, a.at) // the answer may be that of others, and old: the period begins with it
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
func ask(ctx context.Context, e *engine.Engine, age time.Duration, gvks []schema.GroupVersionKind) answered {
	all := answered{began: e.Reloader.LastSeq(), at: time.Now()}
	var errs []error
	for _, gvk := range gvks {
		q := queryOf(gvk)
		ask := func(ctx context.Context, began snapshot.Tick) error {
			found := e.Reloader.LookupSince(ctx, q, began)
			if found.Err != nil || len(found.Failed) > 0 {
				return e.LookupError(q, found.Failed, found.Err)
			}
			return nil
		}
		if age == 0 {
			errs = append(errs, ask(ctx, all.began))
			continue
		}
		about := engine.Question{GroupVersionKind: gvk}
		if known, _ := e.Reloader.Snapshot().Answers(&q); !known && gvk.Version != "" {
			about.Kind = "" // its path tells of all
		}
		a, err := e.Rounds.Ask(ctx, e.Reloader.LastSeq(), age, about, ask)
		errs = append(errs, err)
		if a.At.Before(all.at) {
			all.began = min(all.began, a.Began)
			all.at = a.At
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
