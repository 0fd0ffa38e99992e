// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/reload"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Lookup answers a lookup that the snapshot does not answer. It makes the reads that the lookup still needs. find is
// the lookup that q describes.
//
// It returns what is known even if the server could not be read. It returns NoMatch only if the server could be read.
func Lookup[T any](
	ctx context.Context, e *Engine, q snapshot.Query, find func(*snapshot.Snapshot) (T, bool, error),
) (T, error) {
	defer e.NoteUse()
	s, err := e.snapshotFor(ctx, q)
	if err != nil {
		var none T
		return none, err
	}
	answer, _, err := find(s)
	if meta.IsNoMatchError(err) {
		e.Reports.NoMatch(q, err)
	}
	return answer, err
}

// snapshotFor returns the snapshot that answers a lookup, also if that is by NoMatch. It makes the reads that the
// lookup still needs, unless NegativeTTL spares them. It returns an error if nothing is known and the server could
// not be read.
func (e *Engine) snapshotFor(ctx context.Context, q snapshot.Query) (*snapshot.Snapshot, error) {
	began := e.Reloader.Snapshot()
	if e.absences.has(q, began) {
		return began, nil
	}
	found := e.Reloader.Lookup(ctx, q)
	unread := found.Err != nil || len(found.Failed) > 0
	switch {
	case found.Answered && !mayMissMore(ctx, q, found):
		e.Reports.Missed("found")
		return found.Snapshot, nil
	case found.Answered || unread:
		e.Reports.Missed("failed")
		return nil, e.LookupError(q, found.Failed, found.Err)
	default:
		e.Reports.Missed("absent")
		if !found.MayFindMore {
			e.absences.add(q, began, found.Snapshot)
		}
		return found.Snapshot, nil
	}
}

// mayMissMore reports whether a lookup that has an answer must not return it after an error: the caller did not wait
// for the server's answer, or only some of the groups are known that may have a better one.
func mayMissMore(ctx context.Context, q snapshot.Query, found reload.Finding) bool {
	if found.Err == nil {
		return false
	}
	return ctx.Err() != nil || !found.Snapshot.HasDocument() && !q.ExactGroup()
}

// LookupError is the error of a lookup whose answer may be in versions that could not be read, or that could not read
// the document or a list.
func (e *Engine) LookupError(q snapshot.Query, failed map[schema.GroupVersion]error, err error) error {
	switch {
	case err == nil:
		err = e.Options.DiscoveryFailed(failed)
	case len(failed) > 0:
		err = fmt.Errorf("%w; %w", err, e.Options.DiscoveryFailed(failed))
	}
	return fmt.Errorf("failed to look up %s: %w", &q, err)
}
