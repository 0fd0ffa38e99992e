// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// recheck answers a lookup that the snapshot does not answer. It makes the reads that the
// lookup still needs. find is the lookup.
//
// It returns what is known even if the server could not be read. It returns NoMatch
// only if the server could be read.
func recheck[T any](
	ctx context.Context, m *DynamicRESTMapper, q snapshot.Query, find func(*snapshot.Snapshot) (T, bool, error),
) (T, error) {
	defer m.hit()
	m.member.use()
	answer, err := read(ctx, m, q, find)
	if meta.IsNoMatchError(err) {
		m.noteAbsent(q)
	}
	return answer, err
}

// noteAbsent notes by name what a lookup did not find.
func (m *DynamicRESTMapper) noteAbsent(q snapshot.Query) {
	m.recent.Load().missed(q)
	if m.options.Logger.V(1).Enabled() {
		what := "kind"
		if q.ByResource {
			what = "resource"
		}
		m.reports.Add(func() {
			m.logger().V(1).Info("looked up what is not served", "group", q.Group, "versions", q.Versions, what, q.Name)
		})
	}
}

// read makes the reads of recheck.
func read[T any](
	ctx context.Context, m *DynamicRESTMapper, q snapshot.Query, find func(*snapshot.Snapshot) (T, bool, error),
) (T, error) {
	if m.knownAbsent(q) {
		answer, _, err := find(m.reloader.Snapshot())
		return answer, err
	}
	began := m.reloader.Snapshot()
	found := m.reloader.Lookup(ctx, q, func(s *snapshot.Snapshot) (known, current bool) {
		_, current, err := find(s)
		return !meta.IsNoMatchError(err), current
	})
	answer, _, err := find(found.Snapshot)
	switch {
	case found.Err != nil && (ctx.Err() != nil || !found.Snapshot.Read() && !q.InOneGroup()):
		// The caller did not wait for the server's answer; or only some groups are known.
	case !meta.IsNoMatchError(err):
		m.missed("found")
		return answer, err
	case found.Err == nil && len(found.Failed) == 0:
		m.missed("absent")
		if !found.Partial {
			m.rememberAbsent(q, found.Snapshot.Generation(), began)
		}
		return answer, err
	}
	m.missed("failed")
	var none T
	return none, lookupError(q, found.Failed, found.Err)
}

func lookupError(q snapshot.Query, failed map[schema.GroupVersion]error, err error) error {
	if err == nil {
		discoveryFailed := ErrResourceDiscoveryFailed(failed)
		err = &discoveryFailed
	}
	return fmt.Errorf("failed to look up %s: %w", textOf(q), err)
}

func (m *DynamicRESTMapper) missed(outcome string) {
	if m.options.Metrics != nil {
		m.options.Metrics.Miss(outcome)
	}
}

// textOf returns what the query looks for, for an error.
func textOf(q snapshot.Query) string {
	what := "kind"
	if q.ByResource {
		what = "resource"
	}
	switch {
	case q.ByResource && q.Group == "":
		return fmt.Sprintf("%s %q in any group", what, q.Name)
	case len(q.Versions) == 0:
		return fmt.Sprintf("%s %q in group %q", what, q.Name, q.Group)
	default:
		return fmt.Sprintf("%s %q in group %q, versions %q", what, q.Name, q.Group, q.Versions)
	}
}
