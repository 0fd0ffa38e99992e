// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/share"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Lookup answers a lookup that the snapshot does not answer. It makes the reads that the lookup still
// needs. find is the lookup.
//
// It returns what is known even if the server could not be read. It returns NoMatch only if the server
// could be read.
func Lookup[T any](
	ctx context.Context, e *Engine, q snapshot.Query, find func(*snapshot.Snapshot) (T, bool, error),
) (T, error) {
	defer e.NoteUse()
	answer, err := lookup(ctx, e, q, find)
	if meta.IsNoMatchError(err) {
		e.Reports.NoMatch(q, err)
	}
	return answer, err
}

// lookup makes the reads of Lookup, unless NegativeTTL spares them.
func lookup[T any](
	ctx context.Context, e *Engine, q snapshot.Query, find func(*snapshot.Snapshot) (T, bool, error),
) (T, error) {
	var absent absence
	if e.absent != nil {
		began := e.Reloader.Snapshot()
		absent = absence{share.KeyOf("query", fmt.Appendf(nil, "%#v", q)), began.Generation(), began.LastReset()}
		if _, known := e.absent.Get(absent); known {
			answer, _, err := find(began)
			return answer, err
		}
	}
	found := e.Reloader.Lookup(ctx, q)
	answer, _, err := find(found.Snapshot)
	switch {
	case found.Err != nil && (ctx.Err() != nil || !found.Snapshot.HasDocument() && !q.ExactGroup()):
		// The caller did not wait for the server's answer; or only some groups are known.
	case !meta.IsNoMatchError(err):
		e.Reports.Missed("found")
		return answer, err
	case found.Err == nil && len(found.Failed) == 0:
		e.Reports.Missed("absent")
		if e.absent != nil && !found.MayFindMore {
			absent.generation = found.Snapshot.Generation()
			e.absent.Add(absent, nil, e.Options.NegativeTTL)
		}
		return answer, err
	}
	e.Reports.Missed("failed")
	var none T
	return none, e.LookupError(q, found.Failed, found.Err)
}

// LookupError is the error of a lookup whose answer may be in versions that could not be read, or that
// could not read the document or a list.
func (e *Engine) LookupError(q snapshot.Query, failed map[schema.GroupVersion]error, err error) error {
	switch {
	case err == nil:
		err = e.Options.DiscoveryFailed(failed)
	case len(failed) > 0:
		err = fmt.Errorf("%w; %w", err, e.Options.DiscoveryFailed(failed))
	}
	return fmt.Errorf("failed to look up %s: %w", &q, err)
}

// FailedVersions returns the versions whose last read failed, with the errors.
func FailedVersions(s *snapshot.Snapshot) map[schema.GroupVersion]error {
	failed := map[schema.GroupVersion]error{}
	for _, g := range s.Groups() {
		for _, v := range g.Versions() {
			if v.Err != nil {
				failed[schema.GroupVersion{Group: g.Name(), Version: v.Name}] = v.Err
			}
		}
	}
	return failed
}
