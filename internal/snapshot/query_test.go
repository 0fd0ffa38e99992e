// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// method is one of the seven lookups of meta.RESTMapper.
type method int

const (
	kindFor method = iota
	kindsFor
	resourceFor
	resourcesFor
	restMapping
	restMappings
	resourceSingularizer
	methods // how many there are
)

func (m method) String() string {
	return [...]string{
		"kindFor", "kindsFor", "resourceFor", "resourcesFor", "restMapping", "restMappings", "resourceSingularizer",
	}[m]
}

// query is one lookup: a method and those of the other fields that it takes.
type query struct {
	method   method
	gvr      schema.GroupVersionResource
	gk       schema.GroupKind
	versions []string
	resource string
}

// answer is what a lookup returned.
type answer struct {
	value any
	err   error
}

func (a answer) String() string {
	if a.err != nil {
		return fmt.Sprintf("%v (%#v)", a.err, a.err)
	}
	return formatValue(a.value)
}

func formatValue(value any) string {
	switch v := value.(type) {
	case *meta.RESTMapping:
		return fmt.Sprintf("{%v, %v, %v}", v.Resource, v.GroupVersionKind, v.Scope.Name())
	case []*meta.RESTMapping:
		all := make([]string, 0, len(v))
		for _, m := range v {
			all = append(all, formatValue(m))
		}
		return strings.Join(all, " ")
	default:
		return fmt.Sprintf("%+v", v)
	}
}

// askLibrary puts q to client-go's mapper.
func (q query) askLibrary(m meta.RESTMapper) (a answer) {
	switch q.method {
	case kindFor:
		a.value, a.err = m.KindFor(q.gvr)
	case kindsFor:
		a.value, a.err = m.KindsFor(q.gvr)
	case resourceFor:
		a.value, a.err = m.ResourceFor(q.gvr)
	case resourcesFor:
		a.value, a.err = m.ResourcesFor(q.gvr)
	case restMapping:
		a.value, a.err = m.RESTMapping(q.gk, q.versions...)
	case restMappings:
		a.value, a.err = m.RESTMappings(q.gk, q.versions...)
	case resourceSingularizer:
		a.value, a.err = m.ResourceSingularizer(q.resource)
	}
	return a
}

// ask puts q to a snapshot twice, without its index of names and with it. That both answer
// the same counts as part of the answer.
func (q query) ask(s *Snapshot) (a answer, settled bool) {
	without := *s
	without.lazy = new(lazy)
	b, settledWithout := q.askOnce(&without)
	a, settled = q.askOnce(s.indexed())
	if !a.equal(b) || settled != settledWithout {
		a.err = fmt.Errorf("%v, settled: %v, and without the index of names %v, settled: %v", a, settled, b, settledWithout)
	}
	b.scribble()
	return a, settled
}

// indexed is s, which has its index of names from now on.
func (s *Snapshot) indexed() *Snapshot {
	if s.lazy != nil && s.lazy.byStem.Load() == nil {
		s.lazy.fill(s.groups)
	}
	return s
}

func (q query) askOnce(s *Snapshot) (a answer, settled bool) {
	switch q.method {
	case kindFor:
		a.value, settled, a.err = s.KindFor(q.gvr)
	case kindsFor:
		a.value, settled, a.err = s.KindsFor(q.gvr)
	case resourceFor:
		a.value, settled, a.err = s.ResourceFor(q.gvr)
	case resourcesFor:
		a.value, settled, a.err = s.ResourcesFor(q.gvr)
	case restMapping:
		a.value, settled, a.err = s.RESTMapping(q.gk, q.versions)
	case restMappings:
		a.value, settled, a.err = s.RESTMappings(q.gk, q.versions)
	case resourceSingularizer:
		a.value, settled, a.err = s.ResourceSingularizer(q.resource)
	}
	return a, settled
}

// scribble overwrites what a lookup returned, which is the caller's to do.
func (a answer) scribble() {
	switch v := a.value.(type) {
	case []schema.GroupVersionKind:
		clear(v[:cap(v)])
	case []schema.GroupVersionResource:
		clear(v[:cap(v)])
	case *meta.RESTMapping:
		if v != nil {
			*v = meta.RESTMapping{}
		}
	case []*meta.RESTMapping:
		for _, m := range v {
			*m = meta.RESTMapping{}
		}
		clear(v[:cap(v)])
	}
}
