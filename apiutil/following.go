// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"context"
	"slices"
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

// Use tells the mapper that a client or an informer uses a kind. The mapper then logs when
// the kind's resource or scope changes, and tells of other changes at level 1. The fork's
// clients and informers call it: a mapper cannot find out itself which kinds are in use,
// because stock's client asks it only once.
func (m *DynamicRESTMapper) Use(gvk schema.GroupVersionKind) {
	if now, err := mappingIn(m.reloader.Snapshot(), gvk); err == nil {
		m.used.LoadOrStore(gvk, now)
	}
}

// logInUse logs each kind in use whose mapping has changed. A kind that is gone is compared
// when it comes back. logInUse reports whether any kind is known to be in use. Only reports
// call it.
func (m *DynamicRESTMapper) logInUse(s *snapshot.Snapshot) (used bool) {
	for gvk, value := range m.used.Range {
		used = true
		was := value.(*meta.RESTMapping)
		now, err := mappingIn(s, was.GroupVersionKind)
		if err != nil || sameMapping(now, was) {
			continue
		}
		m.used.Store(gvk, now)
		m.logger().Info("the mapping of a kind in use has changed", "kind", now.GroupVersionKind.String(),
			"oldResource", was.Resource.Resource, "oldScope", was.Scope.Name(), "resource", now.Resource.Resource, "scope", now.Scope.Name())
	}
	return used
}

// Memory returns two maps for what clients and informers remember of the kinds that a mapper
// has mapped for them: for a kind that is gone, the last mapping. All that ask this mapper
// get the same ofAll. For their own they get that, too, so that a kind that is gone costs its
// lookups once, and not once a client. But what wraps this mapper may map otherwise, and a
// mapper of a Fleet has clients that have nothing to do with each other: each gets its own.
// The fork's clients and informers call it.
func (m *DynamicRESTMapper) Memory(of meta.RESTMapper) (own, ofAll *sync.Map) {
	if of == meta.RESTMapper(m) && m.member == nil {
		return &m.memory, &m.memory
	}
	return &sync.Map{}, &m.memory
}

// Knows reports whether the mapper knows a kind now. It is no lookup, and reads nothing.
// The fork's clients and informers call it.
func (m *DynamicRESTMapper) Knows(gvk schema.GroupVersionKind) bool {
	_, err := mappingIn(m.reloader.Snapshot(), gvk)
	return err == nil
}

// Gone reports whether a read of a kind's version, which begins after the call, shows that the kind is
// not served. The fork's informers call it.
func (m *DynamicRESTMapper) Gone(ctx context.Context, gvk schema.GroupVersionKind) bool {
	s, err := m.reloader.ReadLive(ctx, gvk.GroupVersion())
	if err == nil {
		_, err = mappingIn(s, gvk)
	}
	return meta.IsNoMatchError(err)
}

// Resets returns a number that moves with each Reset and ResetGroup. Who remembers that a kind is
// gone looks it up again when it has moved. The fork's clients and informers call it.
func (m *DynamicRESTMapper) Resets() uint64 { return uint64(m.reloader.Snapshot().LastResetOfAny()) }

// Replaced reports whether other kinds than that of a mapping, and not that one, are known to have
// its resource. It reads nothing. The fork's clients call it.
func (m *DynamicRESTMapper) Replaced(mapping *meta.RESTMapping) bool {
	kinds := m.reloader.Snapshot().KindsAt(mapping.Resource)
	return len(kinds) > 0 && !slices.Contains(kinds, mapping.GroupVersionKind.Kind)
}

// Changed returns a channel that is closed when the mapper next learns anything of the
// server. Waiting for it is no lookup and no use. The fork's informers call it.
func (m *DynamicRESTMapper) Changed() <-chan struct{} { return m.reloader.Changed() }
