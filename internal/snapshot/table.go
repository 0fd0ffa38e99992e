// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is what a lookup or a subscriber needs to know of one resource. Short names,
// categories and subresources are not kept.
type Resource struct {
	Name       string // plural, as in the URL
	Singular   string // the server's, or guessed from the kind if the server has none
	Kind       string
	Namespaced bool
	Verbs      Verbs
}

// Table indexes the resources of one group-version by kind and by name. It does
// not know its group or version, so that versions that serve the same resources
// share one.
//
// client-go derives further forms from each resource: the kind in lower case, the kind
// with "List" appended, and the plural and singular guessed for that. To keep them all
// would more than double the size of the index. So a lookup that asks for what looks like
// such a form goes through the rows, and they are kept only if a resource looks like one itself.
type Table struct {
	rows  []Resource
	kinds map[string]int32 // exact kind → the last row of it; nil for a few rows of different kinds
	names map[string]int32 // plural or singular → row; nil if two forms may be the same name
	forms *forms           // nil unless lookups of the rows themselves need them
}

// target is where a kind is served, and with which verbs.
type target struct {
	resource   string
	namespaced bool
	verbs      Verbs // none for a list's kind
}

func (r *Resource) target() target {
	return target{resource: r.Name, namespaced: r.Namespaced, verbs: r.Verbs}
}

const listSuffix = "List"

// fewKinds is how many kinds are found faster, and kept in less memory, without a map.
const fewKinds = 8

// NewTable indexes resources, which are in the server's order. It leaves out
// subresources, and guesses a missing singular name from the kind as client-go does. It
// does not keep its argument.
func NewTable(resources []Resource) *Table {
	t := &Table{rows: topLevel(resources)}
	t.kinds = make(map[string]int32, len(t.rows))
	t.names = make(map[string]int32, 2*len(t.rows))
	derived, clash := false, false
	for i, r := range t.rows {
		t.kinds[r.Kind] = int32(i)
		derived = derived || isDerivedKind(r.Kind)
		for _, name := range []string{r.Singular, r.Name} {
			other, taken := t.names[name]
			clash = clash || taken && other != int32(i) || isDerivedName(name)
			t.names[name] = int32(i)
		}
	}
	delete(t.names, "") // no query has an empty name
	if clash {
		t.names = nil
	}
	if len(t.rows) <= fewKinds && len(t.rows) == len(t.kinds) {
		t.kinds = nil
	}
	if derived || clash {
		t.forms = spell(t.rows)
	}
	return t
}

// NewTableLike is NewTable, but returns other if that was made of the same resources.
// other may be nil.
func NewTableLike(other *Table, resources []Resource) *Table {
	if other != nil && slices.Equal(topLevel(resources), other.rows) {
		return other
	}
	return NewTable(resources)
}

// topLevel returns copies of the resources that are not subresources, with singular
// names filled in.
func topLevel(resources []Resource) []Resource {
	rows := make([]Resource, 0, len(resources))
	for _, r := range resources {
		if strings.Contains(r.Name, "/") {
			continue
		}
		if r.Singular == "" {
			_, r.Singular = guess(r.Kind)
		}
		rows = append(rows, r)
	}
	return slices.Clip(rows)
}

// guess returns the plural and singular names that client-go guesses for a kind.
func guess(kind string) (plural, singular string) {
	p, s := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: kind})
	return p.Resource, s.Resource
}

// isDerivedKind reports whether kind may be derived from another: it is FooList, List, or in
// lower case.
func isDerivedKind(kind string) bool {
	upper := func(r rune) bool { return unicode.ToLower(r) != r }
	return strings.HasSuffix(kind, listSuffix) || !strings.ContainsFunc(kind, upper)
}

// isDerivedName reports whether name may be one that is guessed for List or for a FooList.
func isDerivedName(name string) bool {
	return strings.HasSuffix(strings.TrimSuffix(name, "s"), "list")
}

// target returns where kind is served. kind may have any form that client-go knows.
func (t *Table) target(kind string) (target, bool) {
	if t.forms != nil && isDerivedKind(kind) {
		found, ok := t.forms.kinds[kind]
		return found, ok
	}
	if r := t.spelled(kind); r != nil {
		return r.target(), true
	}
	if of, ok := strings.CutSuffix(kind, listSuffix); ok {
		r := t.spelled(of)
		plural, _ := guess(kind)
		return target{resource: plural, namespaced: r != nil && r.Namespaced}, r != nil || of == ""
	}
	if r := t.lowered(kind); r != nil {
		return r.target(), true
	}
	return target{}, false
}

// spelled returns the last row with exactly that kind, or nil.
func (t *Table) spelled(kind string) *Resource {
	if t.kinds != nil {
		if i, ok := t.kinds[kind]; ok {
			return &t.rows[i]
		}
		return nil
	}
	for i := range t.rows {
		if r := &t.rows[i]; r.Kind == kind {
			return r
		}
	}
	return nil
}

// lowered returns the last row with that kind in lower case, or nil. It takes no memory for
// what hardly anybody looks up.
func (t *Table) lowered(kind string) *Resource {
	if !isDerivedKind(kind) {
		return nil
	}
	for i := len(t.rows) - 1; i >= 0; i-- {
		if r := &t.rows[i]; strings.ToLower(r.Kind) == kind {
			return r
		}
	}
	return nil
}

// find returns a resource that has a name, plural or singular, with the kind that the name
// stands for; one with exactly that plural, if there is one. If the name stands for a kind
// alone, because another row has the same plural and another singular, it returns that
// without names.
func (t *Table) find(name string) *Resource {
	if i, ok := t.names[name]; ok {
		return &t.rows[i]
	}
	switch {
	case t.names != nil && !isDerivedName(name):
		return nil
	case t.forms == nil:
		return t.listNamed(strings.TrimSuffix(name, "s"))
	}
	found := t.forms.find(name)
	if len(found) == 0 {
		return nil
	}
	exact := slices.IndexFunc(found, func(r Resource) bool { return r.Name == name })
	return &found[max(exact, 0)]
}

// listNamed returns the resource that is guessed for List, or for a FooList, by its singular
// name, where no row has a form of another.
func (t *Table) listNamed(singular string) *Resource {
	kind := ""
	if of := strings.TrimSuffix(singular, "list"); of != "" {
		r := t.lowered(of)
		if r == nil {
			return nil
		}
		kind = r.Kind
	}
	return &Resource{Name: singular + "s", Singular: singular, Kind: kind + listSuffix}
}

// named reports whether r is a resource, and not a kind alone.
func (r *Resource) named() bool { return r.Name != "" || r.Singular != "" }

// has reports whether a resource has name as its plural or singular.
func (t *Table) has(name string) bool {
	r := t.find(name)
	return r != nil && r.named()
}

// equal reports whether two tables were made of the same resources in the same order.
func (t *Table) equal(other *Table) bool {
	return t == other || t != nil && other != nil && slices.Equal(t.rows, other.rows)
}

// forms is the full index that client-go builds for one group-version
// (newDiscoveryRESTMapper in k8s.io/client-go/restmapper, on top of
// meta.DefaultRESTMapper). If forms clash, the last one added wins.
type forms struct {
	kinds     map[string]target
	kindOf    map[string]string // plural or singular → kind
	singulars map[string]string // plural → singular
}

// spell adds every form of every row in client-go's order.
func spell(rows []Resource) *forms {
	f := &forms{
		kinds:     make(map[string]target, 3*len(rows)+1),
		kindOf:    make(map[string]string, 4*len(rows)+2),
		singulars: make(map[string]string, 2*len(rows)+1),
	}
	for _, r := range rows {
		f.add(strings.ToLower(r.Kind), r.Singular, r.target())
		f.add(r.Kind, r.Singular, r.target())
		f.addGuessed(r.Kind+listSuffix, r.Namespaced)
	}
	f.addGuessed(listSuffix, false)
	delete(f.kindOf, "") // no query has an empty name
	return f
}

func (f *forms) addGuessed(kind string, namespaced bool) {
	plural, singular := guess(kind)
	f.add(kind, singular, target{resource: plural, namespaced: namespaced})
}

func (f *forms) add(kind, singular string, to target) {
	f.singulars[to.resource] = singular
	f.kindOf[singular] = kind
	f.kindOf[to.resource] = kind
	f.kinds[kind] = to
}

func (f *forms) equal(other *forms) bool {
	return maps.Equal(f.kinds, other.kinds) && maps.Equal(f.kindOf, other.kindOf) && maps.Equal(f.singulars, other.singulars)
}

// find returns all of which (*Table).find returns one, sorted by plural.
func (f *forms) find(name string) (found []Resource) {
	kind, ok := f.kindOf[name]
	if !ok {
		return nil
	}
	for plural, singular := range f.singulars {
		if plural == name || singular == name {
			found = append(found, Resource{Name: plural, Singular: singular, Kind: kind})
		}
	}
	if len(found) == 0 {
		return []Resource{{Kind: kind}}
	}
	slices.SortFunc(found, func(a, b Resource) int { return cmp.Compare(a.Name, b.Name) })
	return found
}
