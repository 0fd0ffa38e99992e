// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// typical is a server with so many groups: the core group, and others with three kinds in v1 and
// v1beta1, and one kind more in v1beta1 alone.
func typical(groups int) *Snapshot {
	text := "/v1:Pod,Node*"
	for i := range groups - 1 {
		text += strings.ReplaceAll(" group#.example.com/v1:Kind0Of#,Kind1Of#*,Kind2Of# group#.example.com/v1beta1:Kind0Of#,Kind1Of#*,Kind2Of#,Kind3Of#", "#", strconv.Itoa(i))
	}
	return newHistory(false, text).Snapshot
}

// TestHitAllocatesOnlyItsAnswer: a hit allocates the pointer or the slice that it returns, once, and
// what it returns by value is free.
func TestHitAllocatesOnlyItsAnswer(t *testing.T) {
	s := typical(50).indexed()
	check := func(lookup string, of any, want float64, hit func() (current bool, err error)) {
		if current, err := hit(); !current || err != nil {
			t.Errorf("%s of %+v is no hit: current %t, error %v", lookup, of, current, err)
		}
		if got := testing.AllocsPerRun(1000, func() { _, _ = hit() }); got != want {
			t.Errorf("%s of %+v makes %v allocations; want %v, for the answer alone", lookup, of, got, want)
		}
	}
	for _, q := range []schema.GroupVersionResource{
		{Group: "group33.example.com", Version: "v1", Resource: "kind1of33s"}, {Group: "group33.example.com", Version: "v1", Resource: "kind1of33"},
		{Group: "group33.example.com", Resource: "kind1of33s"}, {Resource: "kind1of33s"}, {Version: "v1", Resource: "pods"}, {Resource: "pods"},
	} {
		check("KindFor", q, 0, func() (bool, error) { _, current, err := s.KindFor(q); return current, err })
		check("ResourceFor", q, 0, func() (bool, error) { _, current, err := s.ResourceFor(q); return current, err })
		check("KindsFor", q, 1, func() (bool, error) { _, current, err := s.KindsFor(q); return current, err })
		check("ResourcesFor", q, 1, func() (bool, error) { _, current, err := s.ResourcesFor(q); return current, err })
		check("ResourceSingularizer", q.Resource, 0, func() (bool, error) {
			_, current, err := s.ResourceSingularizer(q.Resource)
			return current, err
		})
	}
	for kind, versions := range map[schema.GroupKind][]string{
		{Group: "group33.example.com", Kind: "Kind1Of33"}: {"v1"}, {Kind: "Pod"}: {"v1"}, {Group: "group33.example.com", Kind: "Kind3Of33"}: {"v1beta1"},
	} {
		for _, versions := range [][]string{nil, versions} {
			check("RESTMapping", kind, 1, func() (bool, error) { _, current, err := s.RESTMapping(kind, versions); return current, err })
			check("RESTMappings", kind, 1, func() (bool, error) { _, current, err := s.RESTMappings(kind, versions); return current, err })
		}
	}
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A list takes memory for its groups, however many of their names begin with others.
func TestNamesThatBeginWithOthersTakeNoMemory(t *testing.T) {
	var groups []*Group
	for i := range 240 {
		groups = append(groups, NewGroup(strings.Repeat("x", i+1), "", nil))
	}
	for i := range 60_000 {
		groups = append(groups, NewGroup(fmt.Sprintf("%s%05d", strings.Repeat("x", 240), i), "", nil))
	}
	var doc *Document
	if took := allocated(func() { doc = NewDocument(groups, true) }); took > 32<<20 {
		t.Errorf("the index of %d groups took %d MiB, want less than 32", len(groups), took>>20)
	}
	if n := len(doc.groupsNamed("xx", false)); n != len(groups)-1 {
		t.Errorf("%d groups begin with xx; want %d, all but x", n, len(groups)-1)
	}
}

// A lookup of a form that is derived from another one takes no memory for the derived forms of the
// 30,000 kinds, which would be megabytes.
func TestRareFormsTakeLittleMemory(t *testing.T) {
	kinds := make([]string, 30_000)
	for i := range kinds {
		kinds[i] = fmt.Sprintf("Foo%d", i)
	}
	s := newHistory(false, "a/v1:"+strings.Join(kinds, ",")).Snapshot
	for name, lookup := range map[string]query{
		"a list":           {lookup: byKind, gk: schema.GroupKind{Group: "a", Kind: "Foo7List"}},
		"in lower case":    {lookup: byKind, gk: schema.GroupKind{Group: "a", Kind: "foo7"}},
		"the kind List":    {lookup: byKind, gk: schema.GroupKind{Group: "a", Kind: "List"}},
		"lists":            {gvr: schema.GroupVersionResource{Resource: "foo7lists"}},
		"a singular":       {lookup: singularizer, gvr: schema.GroupVersionResource{Resource: "foo7lists"}},
		"lists of nothing": {gvr: schema.GroupVersionResource{Resource: "lists"}},
	} {
		var err error
		if took := allocated(func() { _, _, err = lookup.ask(s) }); err != nil || took > 1<<20 {
			t.Errorf("%s: %v took %d bytes, want 1 MiB at most; error %v", name, lookup, took, err)
		}
	}
}

// Verbs are a set: order and repetition make no difference, and what is no verb of an API server is left out.
func TestVerbsAreASet(t *testing.T) {
	verbs := strings.Fields("watch get dance update proxy patch list get deletecollection delete create")
	var all Verbs
	for _, verb := range verbs {
		all = all.With(verb)
		if names := Verbs(0).With(verb).Names(); verb != "dance" && !slices.Equal(names, []string{verb}) {
			t.Errorf("the verbs of %s alone are %q", verb, names)
		}
	}
	want := strings.Fields("create delete deletecollection get list patch proxy update watch")
	if got := all.Names(); !slices.Equal(got, want) {
		t.Errorf("%q are the verbs %q, want %q", verbs, got, want)
	}
}

// Only so many groups are kept that have more than the document names: what exceeds that is
// forgotten, and what the document names stays.
func TestGroupsWithMoreAreBounded(t *testing.T) {
	named := func(version string, n int) string {
		all := "doc a/v1:Foo"
		for i := range n {
			all += fmt.Sprintf(" g%05d/%s:Foo", i, version)
		}
		return all
	}
	for _, test := range []struct {
		groups int // that the document drops, or of which it drops a version
		then   string
		want   int
	}{
		{maxUndocumentedGroups, "overlaid", maxUndocumentedGroups}, {maxUndocumentedGroups + 1, "overlaid", 0},
		{maxUndocumentedGroups, "live a/v9:Foo", 0}, {maxUndocumentedGroups, "live x/v1:Foo", 0},
	} {
		for _, drop := range []string{named("v2", 0), named("v2", test.groups)} {
			h := newHistory(false, "")
			h.play(t, named("v1", test.groups), drop, test.then)
			more, documented := 0, 0
			for _, g := range h.groups {
				document := h.documented(g.name)
				if len(g.versions) > document.count() {
					more++
				}
				if document != nil {
					documented++
				}
			}
			if more != test.want || documented != len(h.doc.groups) {
				t.Errorf("%d groups have more than the document, which has %d; then %s. %d with more are kept, want %d; %d of the document are", test.groups, len(h.doc.groups), test.then, more, test.want, documented)
			}
		}
	}
}

// Only so many versions of a group are kept that the document does not have.
func TestVersionsAreBounded(t *testing.T) {
	h := newHistory(false, "a/v1:Foo")
	for n := range maxUndocumentedVersions + 1 {
		if got, want := len(h.Group("a").versions), 1+n; got != want {
			t.Errorf("%d versions, want %d: that of the document, and as many as lookups have found", got, want)
		}
		h.play(t, fmt.Sprintf("live a/v1beta%d:Foo", n+1))
	}
	if got := h.text(); got != "a/v1:Foo" {
		t.Errorf("with one version more than may be kept, %s are known; want a/v1:Foo, which the document has", got)
	}
}

// A live read that finds the same keeps the table: a lookup that reads many versions compares
// each with what it was, again and again.
func TestSameTableIsKept(t *testing.T) {
	h := newHistory(false, "a/v1:Foo")
	var tables []*Table
	for _, read := range []string{"live a/v2:Bar", "live a/v2:Bar", "live a/v2:Baz"} {
		h.play(t, read)
		tables = append(tables, h.Group("a").Version("v2").Table)
	}
	if tables[0] != tables[1] || tables[1] == tables[2] {
		t.Errorf("the tables of Bar, Bar and Baz are %p, %p and %p; want the first two to be one", tables[0], tables[1], tables[2])
	}
}

// Many lookups at once get the same answers while one of them makes the index of names.
func TestIndexIsMadeMeanwhile(t *testing.T) {
	s, q := typical(50), query{gvr: schema.GroupVersionResource{Resource: "kind1of33s"}}
	want, _, _ := q.ask(s)
	var askers sync.WaitGroup
	for range scansBeforeIndex {
		askers.Add(1)
		go func() {
			defer askers.Done()
			for range scansBeforeIndex {
				if got, _, _ := q.ask(s); got != want {
					t.Errorf("%v: %s, and without the index %s", q, got, want)
				}
			}
		}()
	}
	askers.Wait()
	if s.cache.byStem.Load() == nil {
		t.Errorf("%d lookups have made no index, want one after %d", scansBeforeIndex*scansBeforeIndex, scansBeforeIndex)
	}
}
