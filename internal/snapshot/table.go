// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// Verbs is a set of those verbs that an API server has for resources (toDiscoveryKubeVerb
// in k8s.io/apiserver/pkg/endpoints). It knows no others, so a Resource takes no more
// memory for it, whatever a server sends.
type Verbs uint16

// With returns v with verb, if that is one of the verbs.
func (v Verbs) With(verb string) Verbs {
	switch verb { // much faster than a search, and most of a document is verbs
	case "create":
		v |= 1 << 0
	case "delete":
		v |= 1 << 1
	case "deletecollection":
		v |= 1 << 2
	case "get":
		v |= 1 << 3
	case "list":
		v |= 1 << 4
	case "patch":
		v |= 1 << 5
	case "proxy":
		v |= 1 << 6
	case "update":
		v |= 1 << 7
	case "watch":
		v |= 1 << 8
	}
	return v
}

// Names lists the verbs of v, sorted. The slice is the caller's.
func (v Verbs) Names() []string {
	var names []string
	all := []string{"create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"}
	for _, verb := range all {
		if v.With(verb) == v {
			names = append(names, verb)
		}
	}
	return names
}

// Table indexes the resources of one group-version by kind and by name. It does
// not know its group or version, so that versions that serve the same resources
// share one.
//
// client-go derives further forms from each resource (newDiscoveryRESTMapper in
// k8s.io/client-go/restmapper): the kind in lower case, the kind with "List" appended, and the
// plural and singular guessed for that. To keep them all would more than double the size of the
// index. So a lookup that finds nothing in it, and asks for what looks like such a form, goes
// through the rows. Where two resources of one version claim one name, which no server allows, the
// last of them counts.
type Table struct {
	rows []Resource
	// The last row of a kind, as it is spelled, and of a name, plural or singular. Nil for a few rows.
	rowOfKind, rowOfName map[string]int32

	resourceList *metav1.APIResourceList // see WithResourceList; nil unless the mapper has a discovery cache
}

const listSuffix = "List"

// fewRows is how many rows are searched as fast without maps, which take more memory than they.
const fewRows = 8

// NewTable indexes resources, which are in the server's order. It leaves out
// subresources, and guesses a missing singular name from the kind as client-go does. It
// does not keep its argument.
func NewTable(resources []Resource) *Table {
	t := &Table{rows: topLevel(resources)}
	if len(t.rows) <= fewRows {
		return t
	}
	t.rowOfKind = make(map[string]int32, len(t.rows))
	t.rowOfName = make(map[string]int32, 2*len(t.rows))
	for i, r := range t.rows {
		t.rowOfKind[r.Kind] = int32(i)
		t.rowOfName[r.Singular] = int32(i)
	}
	for i, r := range t.rows { // a resource's own name counts before the singular of another
		t.rowOfName[r.Name] = int32(i)
	}
	return t
}

// ReuseTable is NewTable, but returns other if that was made of the same resources.
// other may be nil.
func ReuseTable(other *Table, resources []Resource) *Table {
	if other != nil && slices.Equal(topLevel(resources), other.rows) {
		return other
	}
	return NewTable(resources)
}

// WithResourceList returns a table that answers as t does and also has what the server sent: short names, categories
// and subresources, which no lookup needs and a discovery cache returns. resources may be nil. The table keeps it.
func (t *Table) WithResourceList(resources *metav1.APIResourceList) *Table {
	if resources == nil {
		return t
	}
	next := *t
	next.resourceList = resources
	return &next
}

// ResourceList returns what the server sent, if the table has that. Nobody may change it. t may be nil.
func (t *Table) ResourceList() *metav1.APIResourceList {
	if t == nil {
		return nil
	}
	return t.resourceList
}

// sameResourceList reports whether both tables have the same list, or none. t and other may be nil.
func (t *Table) sameResourceList(other *Table) bool {
	a, b := t.ResourceList(), other.ResourceList()
	return a == b || equality.Semantic.DeepEqual(a, b)
}

// mayShare reports whether a mapper may keep other, a table of the document, instead of t, because both give the same
// answers. A table with a resource list belongs to one mapper, and the document may have an older list. t and other
// may be nil.
func (t *Table) mayShare(other *Table) bool {
	return other != nil && t.ResourceList() == nil && other.sameAnswers(t)
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
			_, singular := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: r.Kind})
			r.Singular = singular.Resource
		}
		rows = append(rows, r)
	}
	return slices.Clip(rows)
}

// allRows returns the resources; t may be nil.
func (t *Table) allRows() []Resource {
	if t == nil {
		return nil
	}
	return t.rows
}

// kindNames lists the kinds of the table, each once, in server order; t may be nil.
func (t *Table) kindNames() iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range t.allRows() {
			r := &t.rows[i]
			if t.byKind(r.Kind) != r {
				continue // a later row has the same kind
			}
			if !yield(r.Kind) {
				return
			}
		}
	}
}

// findKind returns where kind is served, or nil. kind may have any form that client-go knows. t may be
// nil.
func (t *Table) findKind(kind string) *Resource {
	if t == nil {
		return nil
	}
	if r := t.byKind(kind); r != nil {
		return r
	}
	of, isList := strings.CutSuffix(kind, listSuffix)
	if !isList {
		return t.byLowerCaseKind(kind)
	}
	namespaced := false
	if of != "" { // each version has the kind List
		r := t.byKind(of)
		if r == nil {
			return nil
		}
		namespaced = r.Namespaced
	}
	list := strings.Clone(kind) // what a query is made of may stay on the stack
	plural, singular := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: list})
	return &Resource{Name: plural.Resource, Singular: singular.Resource, Kind: list, Namespaced: namespaced}
}

// byKind returns the last row with exactly that kind, or nil.
func (t *Table) byKind(kind string) *Resource {
	if t.rowOfKind != nil {
		return t.rowAt(t.rowOfKind, kind)
	}
	for i := len(t.rows) - 1; i >= 0; i-- {
		if t.rows[i].Kind == kind {
			return &t.rows[i]
		}
	}
	return nil
}

// byName returns the last row that has a name, as plural or else as singular, or nil. None has the empty name.
func (t *Table) byName(name string) *Resource {
	if name == "" {
		return nil
	}
	if t.rowOfName != nil {
		return t.rowAt(t.rowOfName, name)
	}
	var singular *Resource
	for i := len(t.rows) - 1; i >= 0; i-- {
		r := &t.rows[i]
		if r.Name == name {
			return r
		}
		if r.Singular == name {
			singular = cmp.Or(singular, r)
		}
	}
	return singular
}

func (t *Table) rowAt(of map[string]int32, key string) *Resource {
	if i, ok := of[key]; ok {
		return &t.rows[i]
	}
	return nil
}

// byLowerCaseKind returns the last row with that kind in lower case, or nil. It takes no memory for
// what hardly anybody looks up.
func (t *Table) byLowerCaseKind(kind string) *Resource {
	if strings.ContainsFunc(kind, func(r rune) bool { return unicode.ToLower(r) != r }) {
		return nil
	}
	for i := len(t.rows) - 1; i >= 0; i-- {
		if strings.ToLower(t.rows[i].Kind) == kind {
			return &t.rows[i]
		}
	}
	return nil
}

// findName returns the resource that has a name, plural or singular, or nil. Beside those of the rows
// that is the list of a kind, by the names that are guessed for it. t may be nil.
func (t *Table) findName(name string) *Resource {
	if t == nil {
		return nil
	}
	if r := t.byName(name); r != nil {
		return r
	}
	singular := strings.TrimSuffix(name, "s")
	of, isList := strings.CutSuffix(singular, "list")
	if !isList {
		return nil
	}
	kind := ""
	if of != "" {
		r := t.byLowerCaseKind(of)
		if r == nil {
			return nil
		}
		kind = r.Kind
	}
	return &Resource{Name: singular + "s", Singular: strings.Clone(singular), Kind: kind + listSuffix}
}

// sameRows reports whether two tables were made of the same resources in the same order. t and
// other may be nil, which is no table without resources.
func (t *Table) sameRows(other *Table) bool {
	if t == nil || other == nil {
		return t == other
	}
	return t == other || slices.Equal(t.rows, other.rows)
}

// sameAnswers reports whether both tables give the same answers. The order of the rows matters
// only where several have the same kind: a document and the version's own path may have them in another order.
// t and other may be nil.
func (t *Table) sameAnswers(other *Table) bool {
	if t.sameRows(other) {
		return true
	}
	if t == nil || other == nil || len(t.rows) != len(other.rows) {
		return false
	}
	for _, r := range t.rows {
		sameRow := other.byName(r.Name)
		if sameRow == nil || *sameRow != r {
			return false
		}
		if other.byKind(r.Kind).Name != t.byKind(r.Kind).Name {
			return false
		}
	}
	return true
}
