// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"slices"
	"strings"
	"sync/atomic"
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
// would more than double the size of the index, so lookups derive them. Where two
// resources claim the same form, derivation would be wrong: such a table keeps all forms.
type Table struct {
	rows  []Resource
	kinds map[string]int32 // exact kind → row
	names map[string]int32 // plural or singular → row
	forms *forms           // nil unless two resources may claim the same form

	// lower is kind in lower case → row; nil until it is needed, because few lookups need
	// it. It follows from the rows alone.
	lower atomic.Pointer[map[string]int32]
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

// NewTable indexes resources, which are in the server's order. It leaves out
// subresources, and guesses a missing singular name from the kind as client-go does. It
// does not keep its argument.
func NewTable(resources []Resource) *Table {
	t := &Table{rows: topLevel(resources)}
	t.kinds = make(map[string]int32, len(t.rows))
	t.names = make(map[string]int32, 2*len(t.rows))
	for i, r := range t.rows {
		t.kinds[r.Kind] = int32(i)
		t.names[r.Singular] = int32(i)
		t.names[r.Name] = int32(i)
	}
	delete(t.names, "")
	if !t.regular() {
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

// regular reports whether no two forms of the rows can clash: all kinds differ, also in
// lower case, all names differ, and no name looks like one that is guessed for a list.
func (t *Table) regular() bool {
	names, lower := 0, make(map[string]struct{}, len(t.rows))
	for _, r := range t.rows {
		kind := strings.ToLower(r.Kind)
		if !plain(kind) || !plain(r.Name) || !plain(r.Singular) {
			return false
		}
		lower[kind] = struct{}{}
		if names++; r.Singular != r.Name {
			names++
		}
	}
	return len(lower) == len(t.rows) && len(t.kinds) == len(t.rows) && len(t.names) == names
}

// plain reports whether a form is not empty, is ASCII, and does not end as a list's does.
func plain(form string) bool {
	ascii := !strings.ContainsFunc(form, func(r rune) bool { return r > unicode.MaxASCII })
	return form != "" && ascii && !strings.HasSuffix(strings.TrimSuffix(form, "s"), "list")
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
			_, singular := guess(r.Kind)
			r.Singular = singular
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

// target returns where kind is served. kind may have any form that client-go knows.
func (t *Table) target(kind string) (target, bool) {
	if t.forms != nil {
		found, ok := t.forms.kinds[kind]
		return found, ok
	}
	if i, ok := t.kinds[kind]; ok {
		return t.rows[i].target(), true
	}
	return t.derivedTarget(kind)
}

// derivedTarget is target for FooList, List and the lower-case form of a kind.
func (t *Table) derivedTarget(kind string) (target, bool) {
	if kind == listSuffix {
		return target{resource: "lists"}, true
	}
	if item, ok := strings.CutSuffix(kind, listSuffix); ok {
		if i, ok := t.kinds[item]; ok {
			plural, _ := guess(kind)
			return target{resource: plural, namespaced: t.rows[i].Namespaced}, true
		}
	}
	if r := t.lastOfLowerKind(kind); r != nil {
		return r.target(), true
	}
	return target{}, false
}

// lastOfLowerKind returns the last row whose kind in lower case is lower, or nil.
func (t *Table) lastOfLowerKind(lower string) *Resource {
	if strings.ContainsFunc(lower, func(r rune) bool { return unicode.ToLower(r) != r }) {
		return nil // most kinds have an upper-case letter, and end here
	}
	if i, ok := t.lowerKinds()[lower]; ok {
		return &t.rows[i]
	}
	return nil
}

// lowerKinds returns the rows by kind in lower case. Of kinds that clash it has the last.
func (t *Table) lowerKinds() map[string]int32 {
	if known := t.lower.Load(); known != nil {
		return *known
	}
	lower := make(map[string]int32, len(t.rows))
	for i := range t.rows {
		lower[strings.ToLower(t.rows[i].Kind)] = int32(i)
	}
	t.lower.Store(&lower)
	return lower
}

// kindOf returns the kind that a resource name, plural or singular, stands for.
func (t *Table) kindOf(name string) (string, bool) {
	if t.forms != nil {
		kind, ok := t.forms.kindOf[name]
		return kind, ok
	}
	if i, ok := t.names[name]; ok {
		return t.rows[i].Kind, true
	}
	kind, _, ok := t.derivedName(name)
	return kind, ok
}

// resourceOf returns the one resource that a fully qualified query for name finds. Of
// several client-go takes the first in a map. We take the one with exactly that name.
func (t *Table) resourceOf(name string) (string, bool) {
	if t.forms != nil {
		all := t.forms.resources(name)
		if len(all) == 0 || slices.Contains(all, name) {
			return name, len(all) > 0
		}
		return all[0], true
	}
	if i, ok := t.names[name]; ok {
		return t.rows[i].Name, true
	}
	_, resource, ok := t.derivedName(name)
	return resource, ok
}

// has reports whether a resource has name as its plural or singular.
func (t *Table) has(name string) bool {
	_, ok := t.resourceOf(name)
	return ok
}

// derivedName returns the kind and the resource of a name that is guessed for List or
// for a FooList.
func (t *Table) derivedName(name string) (kind, resource string, ok bool) {
	item, ok := strings.CutSuffix(strings.TrimSuffix(name, "s"), "list")
	if !ok {
		return "", "", false
	}
	if item == "" {
		return listSuffix, "lists", true
	}
	if r := t.lastOfLowerKind(item); r != nil {
		return r.Kind + listSuffix, item + "lists", true
	}
	return "", "", false
}

// singularOf returns the singular of a plural resource name that the table has.
func (t *Table) singularOf(plural string) string {
	if t.forms != nil {
		return t.forms.singulars[plural]
	}
	if i, ok := t.names[plural]; ok {
		return t.rows[i].Singular
	}
	return strings.TrimSuffix(plural, "s") // of a list
}

// equal reports whether two tables were made of the same resources in the same order.
func (t *Table) equal(other *Table) bool {
	return t == other || t != nil && other != nil && slices.Equal(t.rows, other.rows)
}
