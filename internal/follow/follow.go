// SPDX-License-Identifier: Apache-2.0

// Package follow is for clients and caches that keep a mapping which they got from a mapper of ours. A client or a
// cache of controller-runtime's is right until the scope or the plural of a kind changes; then another one is needed.
// This package tells when: which mapping the mapper knows for a kind now, and whether an answer of the server
// contradicts the mapping that was used.
//
// It knows the mapper by a Source, which FollowedOf returns. So the mapper exports nothing for it.
//
//	follow.go                       the mapper as clients and caches see it
//	      ↓
//	memory.go                       with which mapping requests were answered
//	reply.go                        what an answer of the server says about a mapping
//	source.go                       what a mapper is asked
//	      ↓
//	pinned.go                       a mapper with one mapping, and whether two mappings differ
//	kinds.go, namespace.go          which kind and which namespace a request is for
//	      ↓
//	representation.go               the Go type of objects
//	map.go, watch.go, defaults.go   what clients and caches share besides
package follow

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Mapper has the mappings that a client or a cache uses. Make one with Of.
type Mapper struct {
	meta.RESTMapper // what the program has given: ours, or what wraps it. It has the last word
	*Followed

	wait    Wait    // for Confirm
	memory  *memory // of this one, or of all that follow
	wrapped bool    // RESTMapper is not ours
}

// maxWrappers is how many mappers may wrap each other. Without a bound, one that wraps itself would never end.
const maxWrappers = 16

// Of returns the mapper for a client, or for a cache, that was given one: ours, or one that wraps ours and says so
// with a method Unwrap() meta.RESTMapper. It returns nil for any other mapper.
func Of(mapper meta.RESTMapper, wait Wait) *Mapper {
	inner := mapper
	for range maxWrappers {
		if followed := FollowedOf(inner); followed != nil {
			return newMapper(mapper, followed, wait, inner != mapper)
		}
		wrapper, ok := inner.(interface{ Unwrap() meta.RESTMapper })
		if !ok {
			return nil
		}
		inner = wrapper.Unwrap()
	}
	return nil
}

func newMapper(mapper meta.RESTMapper, followed *Followed, wait Wait, wrapped bool) *Mapper {
	m := &Mapper{RESTMapper: mapper, Followed: followed, wait: wait, memory: &followed.sharedMemory, wrapped: wrapped}
	if followed.Separate || wrapped { // what wraps ours may map otherwise
		m.memory = &memory{}
	}
	return m
}

// Mapping returns the mapping of a kind. If the kind is not found, it is the one with which a request was answered
// last: so the next request is sent, and gets the server's own answer. Such a kind is looked up once in a generation,
// because each lookup reads the server.
func (m *Mapper) Mapping(gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	before := m.memory.Get(gvk)
	generation := m.Generation()
	if before.state == missing && before.generation == generation {
		return before.mapping, nil
	}
	now, err := m.RESTMapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		if before.state == unused {
			return nil, err
		}
		m.memory.Store(gvk, record{missing, before.mapping, generation})
		return before.mapping, nil
	}
	m.noteScope(now)
	if before.state == missing {
		m.memory.Store(gvk, record{state: answered, mapping: now})
	}
	return now, nil
}

// KnownMapping returns the mapping that a kind is known to have now, and the errors of Known. Of a mapper of ours it is
// no lookup.
func (m *Mapper) KnownMapping(gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	now, err := m.Known(gvk)
	if err == nil && m.wrapped {
		now, err = m.RESTMapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	}
	if err != nil {
		return nil, err
	}
	m.noteScope(now)
	return now, nil
}

// Remember notes that a request with a mapping was answered.
func (m *Mapper) Remember(used *meta.RESTMapping) {
	gvk := used.GroupVersionKind
	if m.memory.Get(gvk).isNews(used) {
		m.memory.Store(gvk, record{state: answered, mapping: used})
	}
}

// Remembers reports whether a request for a kind was ever answered.
func (m *Mapper) Remembers(gvk schema.GroupVersionKind) bool {
	return m.memory.Get(gvk).state != unused
}

// NewMapping returns the mapping that a kind has now, if an answer contradicts the one that was used, and the kind has
// another one by now. Otherwise it returns nil. What is known costs no read. The error is NoMatch if a live read shows
// that the kind is not served, and another one if nothing could be found out.
func (m *Mapper) NewMapping(ctx context.Context, used *meta.RESTMapping, reply Reply) (*meta.RESTMapping, error) {
	gvk := used.GroupVersionKind
	before := m.memory.Get(gvk)
	if !before.contradictedBy(reply) {
		return nil, nil
	}
	known, err := m.Known(gvk)
	if err != nil || !Differ(known, used) {
		if _, err := m.Confirm(ctx, gvk, m.wait); err != nil {
			return nil, err
		}
	}
	if before.state == missing { // a read has found it, so that Mapping looks it up again
		m.memory.Store(gvk, record{state: answered, mapping: before.mapping})
	}
	now, err := m.Mapping(gvk)
	if err != nil || !Differ(now, used) {
		return nil, err
	}
	return now, nil
}

// Refuses returns why a request must not be sent with a mapping, or "". namespace is that of a write; of a read it is
// "".
func (m *Mapper) Refuses(used *meta.RESTMapping, namespace string) (why string) {
	if namespace != "" && m.reachesClusterScoped(used) {
		return fmt.Sprintf(
			"%s is cluster-scoped now and was namespaced before, so there is no %s in namespace %q any more; "+
				"nothing was sent, because the write would reach the cluster-scoped object",
			used.Resource.GroupResource(),
			used.GroupVersionKind.Kind,
			namespace,
		)
	}
	if m.reachesOtherKind(used) {
		return fmt.Sprintf("%s is the resource of another kind than %s now, and nothing was sent",
			used.Resource.GroupResource(), used.GroupVersionKind.Kind)
	}
	return ""
}

// reachesClusterScoped reports whether a write for a namespace would reach a cluster-scoped object of a kind that was
// namespaced.
func (m *Mapper) reachesClusterScoped(used *meta.RESTMapping) bool {
	return used.Scope.Name() == meta.RESTScopeNameRoot && m.WasNamespaced(used.GroupVersionKind.GroupKind())
}

// reachesOtherKind reports whether a request would reach another kind, which has the resource now.
func (m *Mapper) reachesOtherKind(used *meta.RESTMapping) bool {
	gvk := used.GroupVersionKind
	if m.wrapped && m.memory.Get(gvk).state != missing {
		return false // what wraps the mapper knows better
	}
	kinds := m.KindsAt(used.Resource)
	isUsed := func(kind string) bool { return kind == gvk.Kind || strings.ToLower(kind) == gvk.Kind }
	return len(kinds) > 0 && !slices.ContainsFunc(kinds, isUsed)
}

// WasNamespaced reports whether a kind was namespaced for anybody who follows the mapper.
func (m *Mapper) WasNamespaced(kind schema.GroupKind) bool {
	return m.namespaced.Get(inLowerCase(kind))
}

// noteScope notes the scope of a mapping that somebody is handed.
func (m *Mapper) noteScope(mapping *meta.RESTMapping) {
	gk := mapping.GroupVersionKind.GroupKind()
	if mapping.Scope.Name() != meta.RESTScopeNameRoot && !m.WasNamespaced(gk) {
		m.namespaced.Store(inLowerCase(gk), true)
	}
}

// inLowerCase returns a kind as a mapper takes it, too (newDiscoveryRESTMapper in k8s.io/client-go/restmapper).
func inLowerCase(kind schema.GroupKind) schema.GroupKind {
	kind.Kind = strings.ToLower(kind.Kind)
	return kind
}
