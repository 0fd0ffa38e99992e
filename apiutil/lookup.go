// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/share"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// recheckResource is recheck for a lookup by resource. all is whether every match counts, or
// only the best.
func recheckResource[T any](
	ctx context.Context, m *DynamicRESTMapper, resource schema.GroupVersionResource, all bool,
	find func(*snapshot.Snapshot, schema.GroupVersionResource) (T, bool, error),
) (T, error) {
	q := snapshot.ResourceQuery(resource)
	q.All = all
	return recheck(ctx, m, q, func(s *snapshot.Snapshot) (T, bool, error) { return find(s, resource) })
}

// recheck answers a lookup that the snapshot does not answer. It makes the reads that the
// lookup still needs. find is the lookup.
//
// It returns what is known even if the server could not be read. It returns NoMatch
// only if the server could be read.
func recheck[T any](
	ctx context.Context, m *DynamicRESTMapper, q snapshot.Query, find func(*snapshot.Snapshot) (T, bool, error),
) (T, error) {
	defer m.noteUse()
	answer, err := read(ctx, m, q, find)
	if meta.IsNoMatchError(err) && (m.recent.Load() != nil || m.options.Logger.V(levelHints).Enabled()) {
		q, told := boundedNames(q, err)
		m.reports.Add(func() { m.tellNoMatch(q, told) })
	}
	return answer, err
}

const (
	mostName     = 253 // bytes of a name that the log and the debug page keep
	mostVersions = 16  // that a lookup names
)

// shortName returns name, or its beginning if it is longer than any name of an API.
func shortName(name string) string {
	if len(name) <= mostName {
		return name
	}
	return strings.ToValidUTF8(strings.Clone(name[:mostName/4]), "") + "…"
}

// boundedNames returns a query and its NoMatch for the log and the debug page, which must not keep the long names
// of a caller. No API has such a name.
func boundedNames(q snapshot.Query, err error) (snapshot.Query, error) {
	long := func(name string) bool { return len(name) > mostName }
	if !long(q.Group) && !long(q.Name) && len(q.Versions) <= mostVersions && !slices.ContainsFunc(q.Versions, long) {
		return q, err
	}
	q.Group, q.Name = shortName(q.Group), shortName(q.Name)
	var versions []string
	for _, version := range q.Versions[:min(len(q.Versions), mostVersions)] {
		versions = append(versions, shortName(version))
	}
	q.Versions = versions
	if q.ByResource {
		return q, &meta.NoResourceMatchError{PartialResource: schema.GroupVersionResource{Group: q.Group, Resource: q.Name}}
	}
	return q, &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: q.Group, Kind: q.Name}, SearchedVersions: versions}
}

// read makes the reads of recheck.
func read[T any](
	ctx context.Context, m *DynamicRESTMapper, q snapshot.Query, find func(*snapshot.Snapshot) (T, bool, error),
) (T, error) {
	var absent absence
	if m.absent != nil {
		began := m.reloader.Snapshot()
		absent = absence{share.KeyOf("query", fmt.Appendf(nil, "%#v", q)), began.Generation(), began.LastReset()}
		if _, known := m.absent.Get(absent); known {
			answer, _, err := find(began)
			return answer, err
		}
	}
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
		if m.absent != nil && !found.Partial {
			absent.generation = found.Snapshot.Generation()
			m.absent.Add(absent, nil, m.options.NegativeTTL)
		}
		return answer, err
	}
	m.missed("failed")
	var none T
	return none, lookupError(q, found.Failed, found.Err)
}

// absence is that a lookup found nothing. It holds for NegativeTTL, unless something changes
// or is reset.
type absence struct {
	query      share.Key     // a hash: names may have any length
	generation uint64        // after the last read of the lookup
	reset      snapshot.Tick // before the lookup
}

// mostAbsences bounds the memory that lookups of more and more names can take.
const mostAbsences = 4096

func lookupError(q snapshot.Query, failed map[schema.GroupVersion]error, err error) error {
	if discoveryFailed := ErrResourceDiscoveryFailed(failed); err == nil {
		err = &discoveryFailed
	} else if len(failed) > 0 {
		err = fmt.Errorf("%w; %w", err, &discoveryFailed)
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
	switch {
	case q.ByResource && q.Group == "":
		return fmt.Sprintf("resource %q in any group", q.Name)
	case len(q.Versions) == 0:
		return fmt.Sprintf("%s %q in group %q", sought(q), q.Name, q.Group)
	default:
		return fmt.Sprintf("%s %q in group %q, versions %q", sought(q), q.Name, q.Group, q.Versions)
	}
}

func sought(q snapshot.Query) string {
	if q.ByResource {
		return "resource"
	}
	return "kind"
}
