// SPDX-License-Identifier: Apache-2.0

package lincheck

import (
	"net/http"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// reference is a mapper that keeps the promises in the simplest way: it shares no
// reads, and reads whatever a miss is about. It must break no rule, which shows
// that the rules can be kept. With one of its faults it is a mutant, which the
// checker has to catch.
type reference struct {
	meta.RESTMapper // nil: what the histories do not call
	transport       http.RoundTripper
	faults          mutation
	document        chan struct{} // one at a time reads it; not a mutex, which would stop virtual time

	mu         sync.Mutex // held for work in memory only
	tick       int
	reset      int
	groupReset map[string]int
	settled    map[string]int // when the first live read of a group since its reset began, or 0
	facts      facts
	listed     map[string]string // a group as the document had it last
}

// known is what is known about a group-version, and since which read.
type known struct {
	tick  int
	live  bool
	kinds map[string]bool // a kind and whether it is namespaced; empty: not served
}

// A mutation is a fault in a mapper.
type mutation struct {
	ignoresResets    bool
	errorIsAbsence   bool
	oldDocumentWins  bool // what the document repeats replaces what was read live
	believesDocument bool // what the document does not have is NoMatch
	keepsAbsence     bool // what was absent once needs no new read
	documentSettles  bool // a ResetGroup is settled by the document
	lastVersion      bool // the last version that serves a kind is taken for the first
	hitsNothing      bool // what is known is read again
}

func newReference(faults mutation) Maker {
	return func(_ *rest.Config, transport http.RoundTripper) (Mapper, error) {
		return &reference{
			transport: transport, faults: faults, document: make(chan struct{}, 1),
			groupReset: map[string]int{}, settled: map[string]int{}, facts: facts{}, listed: map[string]string{},
		}, nil
	}
}

func (m *reference) Reset() {
	if m.faults.ignoresResets {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tick++
	m.reset = m.tick
}

func (m *reference) ResetGroup(group string) {
	if m.faults.ignoresResets {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tick++
	m.groupReset[group], m.settled[group] = m.tick, 0
}

func (m *reference) next() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tick++
	return m.tick
}

func (m *reference) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	list, err := m.RESTMappings(gk, versions...)
	if err != nil {
		return nil, err
	}
	if m.faults.lastVersion {
		return list[len(list)-1], nil
	}
	return list[0], nil
}

func (m *reference) RESTMappings(gk schema.GroupKind, versions ...string) ([]*meta.RESTMapping, error) {
	list, err := m.lookup(gk, versions)
	if err == nil && len(list) == 0 {
		err = &meta.NoKindMatchError{GroupKind: gk, SearchedVersions: versions}
	}
	return list, err
}

func (m *reference) KindFor(resource schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	kind := strings.ToUpper(resource.Resource[:1]) + strings.TrimSuffix(resource.Resource[1:], "s")
	var versions []string
	if resource.Version != "" {
		versions = []string{resource.Version}
	}
	op := Op{Kind: OpKindFor, Group: resource.Group, Versions: versions}
	for _, group := range op.groups() {
		list, err := m.lookup(schema.GroupKind{Group: groupNames[group], Kind: kind}, versions)
		if err != nil {
			return schema.GroupVersionKind{}, err
		}
		if len(list) > 0 {
			return list[0].GroupVersionKind, nil
		}
	}
	return schema.GroupVersionKind{}, &meta.NoResourceMatchError{PartialResource: resource}
}

// lookup answers from what counts after the resets; else it reads. What it has
// read itself is asked first: others may publish a later state of one version,
// beside which the older state of another means nothing.
func (m *reference) lookup(gk schema.GroupKind, versions []string) ([]*meta.RESTMapping, error) {
	list, absent := m.find(gk, versions, true)
	if len(list) > 0 && !m.faults.hitsNothing || m.faults.keepsAbsence && absent {
		return list, nil
	}
	own := facts{}
	err := m.read(gk, versions, own)
	if list := own.find(gk, versions); len(list) > 0 {
		return list, nil
	}
	if list, _ = m.find(gk, versions, err == nil); len(list) > 0 || err == nil || m.faults.errorIsAbsence {
		return list, nil
	}
	return nil, err
}

type facts map[schema.GroupVersion]known

func (f facts) find(gk schema.GroupKind, versions []string) (list []*meta.RESTMapping) {
	if len(versions) == 0 {
		versions = versionNames[:]
	}
	for _, version := range versions {
		gv := schema.GroupVersion{Group: gk.Group, Version: version}
		if namespaced, served := f[gv].kinds[gk.Kind]; served {
			list = append(list, mapping(gv.WithKind(gk.Kind), namespaced))
		}
	}
	return list
}

// find also reports whether all the versions asked for are known not to serve the kind.
func (m *reference) find(gk schema.GroupKind, versions []string, resets bool) (list []*meta.RESTMapping, absent bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	counting := facts{}
	for gv, fact := range m.facts {
		if gv.Group == gk.Group && (!resets || m.counts(gv.Group, fact)) {
			counting[gv] = fact
		}
	}
	unread := func(version string) bool {
		_, ok := counting[schema.GroupVersion{Group: gk.Group, Version: version}]
		return !ok
	}
	list = counting.find(gk, versions)
	return list, len(list) == 0 && len(versions) > 0 && !slices.ContainsFunc(versions, unread)
}

func (m *reference) counts(group string, fact known) bool {
	if fact.tick <= m.reset || fact.tick <= m.groupReset[group] {
		return false
	}
	settled := m.settled[group] // the document counts again after a live read
	return fact.live || m.groupReset[group] == 0 || m.faults.documentSettles || 0 < settled && settled < fact.tick
}

func mapping(gvk schema.GroupVersionKind, namespaced bool) *meta.RESTMapping {
	scope := meta.RESTScopeRoot
	if namespaced {
		scope = meta.RESTScopeNamespace
	}
	return &meta.RESTMapping{GroupVersionKind: gvk, Scope: scope}
}
