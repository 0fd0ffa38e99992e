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

// Wait returns nil once the server serves all of the kinds, as reads that began after the call have found. For a kind
// without a version, any version will do. If no kind is named, Wait returns at once.
//
// Wait waits through outages and refusals. If ctx ends first, it returns an error that wraps context.Cause(ctx), names
// the kinds that are missing, and has the error of the last read, if that failed.
//
// Wait looks again when the mapper learns of a change. It also asks the server itself, so it may be called before a
// manager starts: at once, then with pauses that grow from 1 to 30 seconds, or every minute while the watches of
// WatchAPIs are open. All callers that wait share these requests.
func Wait(ctx context.Context, mapper *apiutil.DynamicRESTMapper, gvks ...schema.GroupVersionKind) error {
	_, err := await(ctx, engine.Of(mapper), gvks)
	return err
}

// await is Wait. It returns the mappings with which it found the kinds served, all in one snapshot.
func await(ctx context.Context, e *engine.Engine, gvks []schema.GroupVersionKind) ([]meta.RESTMapping, error) {
	pollCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		began   = e.Reloader.LastSeq() // only what reads that began later have found counts
		maxAge  time.Duration          // of answers that other callers have got, and that will do
		backoff = engine.PollBackoff()
		due     = time.After(0)
		polled  = make(chan pollResult, 1)
		lastErr error // of the last poll
	)
	for {
		changed := e.Reloader.Changed()
		mappings, missing := mappingsSince(e.Reloader.Snapshot(), began, gvks)
		if len(missing) == 0 {
			return mappings, nil
		}
		if ctx.Err() != nil {
			err := fmt.Errorf("waiting for %v to be served: %w", missing, discovery.Cause(ctx))
			return nil, errors.Join(err, lastErr)
		}
		select {
		case <-due:
			go func(maxAge time.Duration) { polled <- poll(pollCtx, e, maxAge, gvks) }(maxAge)
		case result := <-polled:
			began, lastErr = result.began, result.err
			maxAge = backoff.Step()
			due = e.NextPoll(maxAge, result.at)
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// pollResult is how a poll has ended. What it has found is in the snapshot.
type pollResult struct {
	began snapshot.Seq // all of its reads began after it
	at    time.Time    // when it began; earlier than the call, if an answer of other callers was taken
	err   error        // of the reads that failed
}

// poll makes the reads that show whether the kinds are served, or takes the answers that other callers have got no
// longer than maxAge ago. It is no lookup, so NegativeTTL does not apply.
func poll(ctx context.Context, e *engine.Engine, maxAge time.Duration, gvks []schema.GroupVersionKind) pollResult {
	result := pollResult{began: e.Reloader.LastSeq(), at: time.Now()}
	var errs []error
	for _, gvk := range gvks {
		q := queryOf(gvk)
		read := func(ctx context.Context, began snapshot.Seq) error {
			found := e.Reloader.LookupSince(ctx, q, began)
			if found.Err != nil || len(found.Failed) > 0 {
				return e.LookupError(q, found.Failed, found.Err)
			}
			return nil
		}
		if maxAge == 0 {
			errs = append(errs, read(ctx, result.began))
			continue
		}
		question := engine.Question{GroupVersionKind: gvk}
		known, _ := e.Reloader.Snapshot().Answers(&q)
		if !known && gvk.Version != "" {
			question.Kind = "" // the version's own path tells of all its kinds at once
		}
		answer, err := e.Polls.Ask(ctx, e.Reloader.LastSeq(), maxAge, question, read)
		errs = append(errs, err)
		if answer.At.Before(result.at) {
			result.began = min(result.began, answer.Began)
			result.at = answer.At
		}
	}
	result.err = errors.Join(errs...)
	return result
}

// mappingsSince returns the mappings of those kinds that are served as a read has found that began after began, and the
// kinds of which none has found that.
func mappingsSince(
	s *snapshot.Snapshot, began snapshot.Seq, gvks []schema.GroupVersionKind,
) (served []meta.RESTMapping, missing []schema.GroupVersionKind) {
	s = s.WithLastReset(began)
	for _, gvk := range gvks {
		mapping, current, err := s.RESTMapping(gvk.GroupKind(), []string{gvk.Version})
		if err == nil && !current {
			// Of a kind without a version: another version that hangs says nothing against the one that was found.
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
