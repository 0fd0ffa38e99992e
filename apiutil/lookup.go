// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/reload"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// query is what a lookup is about. name is the kind or resource that is looked
// for; it tells lookups apart that read the same part of the server.
type query struct {
	reload.Query
	name string
}

// recheck is where a lookup goes that the snapshot does not settle. It reads the
// part of the server that q is about and asks the snapshot once more. find is the
// lookup.
//
// What is known is returned even if the server could not be read; that something
// is absent is returned only if it could.
func recheck[T any](
	ctx context.Context, m *DynamicRESTMapper, q query, find func(*snapshot.Snapshot) (T, bool, error),
) (T, error) {
	if m.knownAbsent(q) {
		answer, _, err := find(m.reloader.Snapshot())
		return answer, err
	}
	started := m.reloader.Snapshot().Clock()
	reading, cancel := m.reading(ctx, func() bool {
		_, _, err := find(m.reloader.Snapshot())
		return err == nil
	})
	defer cancel()
	failed, readErr := m.reloader.Read(reading, q.Query, func(s *snapshot.Snapshot) bool {
		_, settled, _ := find(s)
		return settled
	})
	s := m.reloader.Snapshot()
	answer, _, err := find(s)
	switch {
	case readErr != nil && !s.Read():
		// Nothing is known yet.
	case readErr != nil && ctx.Err() != nil:
		// The caller did not wait for the server, so nobody knows what it would have said.
	case !meta.IsNoMatchError(err):
		m.missed("found")
		return answer, err
	case readErr == nil && len(failed) == 0:
		m.missed("absent")
		m.rememberAbsent(q, s, started)
		return answer, err
	}
	m.missed("failed")
	var none T
	return none, lookupError(q, failed, readErr)
}

// reading returns the context of a read for a lookup that ends with ctx. Once the
// server has failed a read that began after the last reset, a kind that is known
// waits for it only so long: a server that does not answer at all must not cost
// every lookup a RequestTimeout, and one that has recovered answers sooner.
func (m *DynamicRESTMapper) reading(ctx context.Context, known func() bool) (context.Context, context.CancelFunc) {
	health := m.reloader.Health()
	if health.FailingSince.IsZero() || health.Clock < m.reloader.Snapshot().Clock() || !known() {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, 3*time.Second)
}

func lookupError(q query, failed map[schema.GroupVersion]error, err error) error {
	if err == nil {
		discoveryFailed := ErrResourceDiscoveryFailed(failed)
		err = &discoveryFailed
	}
	return fmt.Errorf("failed to look up %s: %w", q, err)
}

func (m *DynamicRESTMapper) missed(outcome string) {
	if m.options.Metrics != nil {
		m.options.Metrics.Miss(outcome)
	}
}

// knownAbsent says that a lookup found nothing less than NegativeTTL ago.
func (m *DynamicRESTMapper) knownAbsent(q query) bool {
	if m.options.NegativeTTL == 0 {
		return false
	}
	s := m.reloader.Snapshot()
	found, ok := m.absent.get(q.key())
	return ok && time.Now().Before(found.until) && found.generation == s.Generation() && found.clock == s.Clock()
}

// rememberAbsent notes that q found nothing in s, after a read before which clock
// was the number of the last reset.
func (m *DynamicRESTMapper) rememberAbsent(q query, s *snapshot.Snapshot, clock uint64) {
	if m.options.NegativeTTL > 0 && !listIsBehind(s, q) {
		m.absent.put(q.key(), absence{until: time.Now().Add(m.options.NegativeTTL), generation: s.Generation(), clock: clock})
	}
}

// listIsBehind says that a lookup without a version found a version of the group
// gone, and left its list unread for the next one (DESIGN.md, legacy servers).
func listIsBehind(s *snapshot.Snapshot, q query) bool {
	g := s.Group(q.Group)
	return g != nil && !g.Listed() && !s.Aggregated() && len(q.Versions) == 0
}

// key tells queries apart.
func (q query) key() string {
	return fmt.Sprintf("%t %q %q %q", q.ByResource, q.Group, q.Versions, q.name)
}

// String says what the query looks for, for an error.
func (q query) String() string {
	what := "kind"
	if q.ByResource {
		what = "resource"
	}
	switch {
	case q.ByResource && q.Group == "":
		return fmt.Sprintf("%s %q in any group", what, q.name)
	case len(q.Versions) == 0:
		return fmt.Sprintf("%s %q in group %q", what, q.name, q.Group)
	default:
		return fmt.Sprintf("%s %q in group %q, versions %q", what, q.name, q.Group, q.Versions)
	}
}

func kindQuery(gk schema.GroupKind, versions []string) query {
	return query{reload.Query{Group: gk.Group, Versions: specified(versions)}, gk.Kind}
}

func resourceQuery(resource schema.GroupVersionResource) query {
	versions := specified([]string{resource.Version})
	return query{reload.Query{Group: resource.Group, Versions: versions, ByResource: true}, resource.Resource}
}

// specified returns the versions to search, each once, without those that client-go
// takes for none (k8s.io/apimachinery/pkg/api/meta, DefaultRESTMapper).
func specified(versions []string) []string {
	var result []string
	for _, v := range versions {
		if v != "" && v != runtime.APIVersionInternal && !slices.Contains(result, v) {
			result = append(result, v)
		}
	}
	return result
}
