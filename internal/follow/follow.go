// SPDX-License-Identifier: Apache-2.0

// Package follow is for those who keep a mapping that they got from a mapper of ours, as a client and a
// cache do. A client or a cache of controller-runtime's is right until a kind moves to another path; then
// another one is needed. This package tells when: what the mapper knows of a kind now, and whether an
// answer of the server speaks against the mapping that was used.
//
// It knows the mapper by a Source, which FollowedOf returns. So the mapper exports nothing for it.
//
//	follow.go                       the mapper as it is followed, and whether a mapping is right
//	      ↓
//	doubt.go                        how strongly an answer speaks against a mapping
//	kinds.go, namespace.go          which kind and which namespace a request is for
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

// Wait is how long a caller waits for a live read.
type Wait int

const (
	// WaitBriefly is for a client, which has an answer of the server already when it asks whether its mapping is right:
	// for two seconds, and not at all if no read is allowed now.
	WaitBriefly Wait = iota
	// WaitUntilRead is for a cache, which has nothing else to do: until a read is allowed and has ended.
	WaitUntilRead
)

// Source is what a mapper of ours tells those who follow it. No method is a lookup or a use.
type Source interface {
	// Known returns the mapping of a kind as the mapper knows it now. It reads nothing. The error is
	// NoMatch if the kind is known not to be served, and another one if that is not known.
	Known(schema.GroupVersionKind) (*meta.RESTMapping, error)

	// KindsAt returns the kinds that are known to have a resource. It reads nothing.
	KindsAt(schema.GroupVersionResource) []string

	// Confirm reads the version of a kind live, and returns the mapping that a read shows which began after the call.
	// The error is NoMatch if that read shows that the kind is not served, and another one if there was no such read.
	// Callers share reads, whose number is bounded: four in a row, and then one in four seconds. Those that wait briefly
	// and the others have bounds of their own.
	Confirm(ctx context.Context, gvk schema.GroupVersionKind, wait Wait) (*meta.RESTMapping, error)

	// Poll asks the server whether kinds that are not served are served now: if they are all in one version, by a live read
	// of that, otherwise by a refresh of the discovery document, for all of them. What it finds is known afterwards. A
	// question that was asked a moment ago, by whomever, is not asked again.
	Poll(ctx context.Context, kinds []schema.GroupVersionKind) error

	// Watching reports whether watches tell the mapper of changes of the served API.
	Watching() bool

	// Hint says in which other versions or groups the kind of a NoMatch error is served, or "". It reads nothing.
	Hint(err error) string

	// Changed returns a channel that is closed when the mapper next learns anything. To miss nothing, get
	// the channel first and then ask.
	Changed() <-chan struct{}

	// Generation moves when the served API changes, and with each reset.
	Generation() uint64
}

// Followed is a mapper of ours, and what all that follow it share.
type Followed struct {
	Source
	Count func(who string) // is called when a "client" or a "cache" has followed a kind
	// ReportWaiting is called when the number of caches that wait for a kind has changed. It may be nil.
	ReportWaiting func(gvk schema.GroupVersionKind, caches int)
	waiting       waiting

	Apart bool // each that follows remembers by itself: they have nothing to do with each other

	last       memory
	namespaced Map[schema.GroupKind, bool] // somebody was handed such a mapping of the kind, which is in lower case
}

type memory = Map[schema.GroupVersionKind, remembered]

// remembered is the mapping with which a request for a kind was answered.
type remembered struct {
	*meta.RESTMapping        // nil: there was none
	gone              bool   // the last lookup did not find the kind
	generation        uint64 // in which that was
}

// FollowedOf returns what a mapper of ours is followed by, and nil for any other mapper. Package apiutil sets it when a
// program starts, and nobody else.
var FollowedOf = func(meta.RESTMapper) *Followed { return nil } //nolint:gochecknoglobals // See the package's doc.

// Mapper has the mappings that a client or a cache uses. Make one with Of.
type Mapper struct {
	meta.RESTMapper // what the program has given: ours, or what wraps it. It has the last word
	*Followed
	wait    Wait
	last    *memory // of this one, or of all that follow
	wrapped bool    // RESTMapper is not ours
}

// Of returns the mapper for a client, or for a cache, that was given one: ours, or one that wraps ours and says so with a method Unwrap() meta.RESTMapper. It returns nil for any other mapper.
func Of(mapper meta.RESTMapper, wait Wait) *Mapper {
	inner := mapper
	for range 16 { // wrappers in wrappers, at most
		if followed := FollowedOf(inner); followed != nil {
			m := &Mapper{RESTMapper: mapper, Followed: followed, wait: wait, last: &followed.last, wrapped: inner != mapper}
			if followed.Apart || m.wrapped { // what wraps ours may map otherwise
				m.last = &memory{}
			}
			return m
		}
		wrapper, ok := inner.(interface{ Unwrap() meta.RESTMapper })
		if !ok {
			return nil
		}
		inner = wrapper.Unwrap()
	}
	return nil
}

// Mapping returns the mapping of a kind. If the kind is not found, it is the one with which a request was
// answered last: so the next one is sent, and gets the server's own answer. Such a kind is looked up once in
// a generation, because each lookup reads the server.
func (m *Mapper) Mapping(gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	before, generation := m.last.Get(gvk), m.Generation()
	if before.gone && before.generation == generation {
		return before.RESTMapping, nil
	}
	now, err := m.RESTMapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	switch {
	case err == nil:
		m.note(now)
		if before.gone {
			m.last.Store(gvk, remembered{RESTMapping: now})
		}
	case before.RESTMapping != nil:
		m.last.Store(gvk, remembered{before.RESTMapping, true, generation})
		now, err = before.RESTMapping, nil
	}
	return now, err
}

// Now returns the mapping that a kind is known to have now, and the errors of Known. Of a mapper of ours it
// is no lookup.
func (m *Mapper) Now(gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	now, err := m.Known(gvk)
	if err == nil && m.wrapped {
		now, err = m.RESTMapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	}
	if err == nil {
		m.note(now)
	}
	return now, err
}

// note notes that somebody is handed a mapping.
func (m *Mapper) note(mapping *meta.RESTMapping) {
	gk := mapping.GroupVersionKind.GroupKind()
	if mapping.Scope.Name() != meta.RESTScopeNameRoot && !m.WasNamespaced(gk) {
		m.namespaced.Store(inLowerCase(gk), true)
	}
}

// Remember notes that a request with a mapping was answered.
func (m *Mapper) Remember(used *meta.RESTMapping) {
	before := m.last.Get(used.GroupVersionKind)
	if before.RESTMapping == nil || !before.gone && Differ(before.RESTMapping, used) {
		m.last.Store(used.GroupVersionKind, remembered{RESTMapping: used})
	}
}

// Remembers reports whether a request for a kind was ever answered.
func (m *Mapper) Remembers(gvk schema.GroupVersionKind) bool {
	return m.last.Get(gvk).RESTMapping != nil
}

// Refuses returns why a request must not be sent with a mapping, or "": it would reach another kind that has
// the resource now, or, being a write for a namespace, what is cluster-scoped of a kind that WasNamespaced. Of a
// read, namespace is "".
func (m *Mapper) Refuses(used *meta.RESTMapping, namespace string) (why string) {
	gvk, resource := used.GroupVersionKind, used.Resource
	if namespace != "" && used.Scope.Name() == meta.RESTScopeNameRoot && m.WasNamespaced(gvk.GroupKind()) {
		return fmt.Sprintf("%s is cluster-scoped now and was namespaced before, so there is no %s in namespace %q any more; "+
			"nothing was sent, because the write would reach the cluster-scoped object", resource.GroupResource(), gvk.Kind, namespace)
	}
	if m.wrapped && !m.last.Get(gvk).gone {
		return "" // what wraps the mapper knows better
	}
	is := func(kind string) bool { return kind == gvk.Kind || strings.ToLower(kind) == gvk.Kind }
	if kinds := m.KindsAt(resource); len(kinds) > 0 && !slices.ContainsFunc(kinds, is) {
		return fmt.Sprintf("%s is the resource of another kind than %s now, and nothing was sent", resource.GroupResource(), gvk.Kind)
	}
	return ""
}

// WasNamespaced reports whether a kind was namespaced for anybody who follows the mapper.
func (m *Mapper) WasNamespaced(kind schema.GroupKind) bool {
	return m.namespaced.Get(inLowerCase(kind))
}

// inLowerCase returns a kind as a mapper takes it, too (newDiscoveryRESTMapper in k8s.io/client-go/restmapper).
func inLowerCase(kind schema.GroupKind) schema.GroupKind {
	kind.Kind = strings.ToLower(kind.Kind)
	return kind
}

// Moved returns the mapping that a kind has now, if an answer speaks against the one that was used, and it is
// another; otherwise nil. What is known costs no read. The error is NoMatch if a live read shows that the
// kind is not served, and another one if nothing could be found out.
func (m *Mapper) Moved(ctx context.Context, used *meta.RESTMapping, doubt Doubt) (*meta.RESTMapping, error) {
	gvk := used.GroupVersionKind
	before := m.last.Get(gvk)
	if before.gone && doubt == Slight {
		doubt = Contradiction // nothing speaks for the path
	}
	if doubt != Contradiction {
		return nil, nil
	}
	if known, err := m.Known(gvk); err != nil || !Differ(known, used) {
		if _, err := m.Confirm(ctx, gvk, m.wait); err != nil {
			return nil, err
		}
	}
	if before.gone {
		m.last.Store(gvk, remembered{RESTMapping: before.RESTMapping})
	}
	now, err := m.Mapping(gvk)
	if err != nil || !Differ(now, used) {
		return nil, err
	}
	return now, nil
}

// Differ reports whether two mappings of a kind lead to different paths.
func Differ(a, b *meta.RESTMapping) bool {
	return a.Resource != b.Resource || a.Scope.Name() != b.Scope.Name()
}

// Sole is a mapper that has one mapping, and asks another mapper for all other kinds. A cache that was made
// with it never learns of another path.
type Sole struct {
	meta.RESTMapper
	Mapping *meta.RESTMapping
}

// RESTMapping returns the mapping, also that of the kind's list.
func (s Sole) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	own := s.Mapping.GroupVersionKind
	if slices.Equal(versions, []string{own.Version}) {
		switch gk {
		case own.GroupKind():
			return s.Mapping, nil
		case schema.GroupKind{Group: own.Group, Kind: own.Kind + "List"}:
			return &meta.RESTMapping{Resource: s.Mapping.Resource, GroupVersionKind: gk.WithVersion(own.Version), Scope: s.Mapping.Scope}, nil
		}
	}
	return s.RESTMapper.RESTMapping(gk, versions...)
}
