// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"context"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// AsStock returns what to ask a RESTMapper for the mapping of a kind in a version, for a
// client that does not follow that mapper. If the question reaches a mapper of ours, it
// answers as stock's mapper would: with the first mapping that it has given to such a
// client, also of a kind that is gone. To any other mapper it is a question like all others.
// The fork's clients and informers call it.
//
// A program may wrap our mapper or combine it with others as it likes, and no argument of a
// RESTMapper's methods says who asks. But nearly all pass this slice on. So the mark that
// only our mapper looks for is in the array of the slice, behind its end. Who passes on a copy
// is answered like anybody else; to be followed, it says what it wraps (Unwrap).
func AsStock(version string) []string { return []string{version, stocksMark}[:1] }

const stocksMark = "as stock"

func isAsStock(versions []string) bool {
	return len(versions) == 1 && cap(versions) == 2 && versions[:2][1] == stocksMark
}

// firstMapping returns the first mapping of a kind that it has found.
func (m *DynamicRESTMapper) firstMapping(ctx context.Context, gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	m.member.use()
	first, ok := m.first.Load(gvk)
	if !ok {
		mapping, err := m.RESTMappingWithContext(ctx, gvk.GroupKind(), gvk.Version)
		switch {
		case err == nil:
			first = mapping
		case meta.IsNoMatchError(err): // stock's has the list of a kind for as long as the kind
			if first, ok = m.first.Load(gvk.GroupVersion().WithKind(strings.TrimSuffix(gvk.Kind, "List"))); ok {
				first = ListOf(first.(*meta.RESTMapping))
			}
		}
		if err != nil && !ok {
			return nil, err
		}
		first, _ = m.first.LoadOrStore(gvk, first)
	}
	mapping := *first.(*meta.RESTMapping)
	return &mapping, nil
}

// ListOf returns the mapping of the list of a kind, as a mapper has it beside that of the
// kind: with its scope, and a resource that is guessed. So what is sent for a kind that is
// only called like a list never reaches the other kind. The fork's clients and informers call it.
func ListOf(kind *meta.RESTMapping) *meta.RESTMapping {
	gvk := kind.GroupVersionKind
	gvk.Kind += "List"
	resource, _ := meta.UnsafeGuessKindToResource(gvk)
	return &meta.RESTMapping{Resource: resource, GroupVersionKind: gvk, Scope: kind.Scope}
}

// usage is what a client of a kind depends on. The log tells of the changes of kinds in use, and
// of no others. A mapper cannot find out itself which those are: a client asks it for a kind
// before each request, and stock's client only once.
type usage struct {
	resource, preferred string
	scope               meta.RESTScopeName
}

// usageIn returns the zero usage if the kind is not served.
func usageIn(s *snapshot.Snapshot, gvk schema.GroupVersionKind) usage {
	mapping, _, err := s.RESTMapping(gvk.GroupKind(), []string{gvk.Version})
	if err != nil {
		return usage{}
	}
	now := usage{resource: mapping.Resource.Resource, scope: mapping.Scope.Name()}
	if preferred, _, err := s.RESTMapping(gvk.GroupKind(), nil); err == nil {
		now.preferred = preferred.GroupVersionKind.Version
	}
	return now
}

// Use tells the mapper that a client or an informer uses a kind. The mapper then logs when
// the kind's mapping changes. The fork's clients and informers call it.
func (m *DynamicRESTMapper) Use(gvk schema.GroupVersionKind) {
	if now := usageIn(m.reloader.Snapshot(), gvk); now != (usage{}) {
		m.used.LoadOrStore(gvk, now)
	}
}

// logInUse logs each kind in use whose mapping has changed. A kind that is gone has no
// mapping. It is compared again when it comes back. logInUse reports whether any kind is
// known to be in use. Only change calls it.
func (m *DynamicRESTMapper) logInUse() (used bool) {
	s := m.reloader.Snapshot()
	for key, value := range m.used.Range {
		used = true
		gvk, was := key.(schema.GroupVersionKind), value.(usage)
		now := usageIn(s, gvk)
		if now == was || now == (usage{}) {
			continue
		}
		m.used.Store(gvk, now)
		m.logger().Info("the mapping of a kind in use has changed", "kind", gvk.String(),
			"oldResource", was.resource, "oldScope", was.scope, "oldPreferredVersion", was.preferred,
			"resource", now.resource, "scope", now.scope, "preferredVersion", now.preferred)
	}
	return used
}

// Memory returns a map for what clients and informers remember of the kinds that a mapper
// has mapped for them: for a kind that is gone, the last mapping. All that ask for the
// memory of this mapper share one. So a kind that is gone costs its lookups once, and not
// once a client. What wraps this mapper may map otherwise: it gets a memory of its own.
// The fork's clients and informers call it.
func (m *DynamicRESTMapper) Memory(of meta.RESTMapper) *sync.Map {
	if of == meta.RESTMapper(m) {
		return &m.memory
	}
	return &sync.Map{}
}

// Knows reports whether the mapper knows a kind now. It is no lookup, and reads nothing.
// The fork's clients and informers call it.
func (m *DynamicRESTMapper) Knows(gvk schema.GroupVersionKind) bool {
	return usageIn(m.reloader.Snapshot(), gvk) != (usage{})
}

// Changed returns a channel that is closed when the mapper next learns anything of the
// server. Waiting for it is no lookup and no use. The fork's informers call it.
func (m *DynamicRESTMapper) Changed() <-chan struct{} { return m.reloader.Changed() }
