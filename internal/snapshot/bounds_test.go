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
	group := " group#.example.com/v1:Kind0Of#,Kind1Of#*,Kind2Of#" +
		" group#.example.com/v1beta1:Kind0Of#,Kind1Of#*,Kind2Of#,Kind3Of#"
	for i := range groups - 1 {
		text += strings.ReplaceAll(group, "#", strconv.Itoa(i))
	}
	return newHistory(false, text).Snapshot
}

// A hit allocates the pointer or the slice that it returns, once, and what it returns by value is free.
func TestHitAllocatesOnlyItsAnswer(t *testing.T) {
	s := typical(50).indexed()
	check := func(lookup string, of any, want float64, hit func() (current bool, err error)) {
		t.Helper()
		if current, err := hit(); !current || err != nil {
			t.Errorf("%s of %+v is no hit: current %t, error %v", lookup, of, current, err)
		}
		if got := testing.AllocsPerRun(1000, func() { _, _ = hit() }); got != want {
			t.Errorf("%s of %+v makes %v allocations; want %v, for the answer alone", lookup, of, got, want)
		}
	}

	for _, resource := range []schema.GroupVersionResource{
		{Group: "group33.example.com", Version: "v1", Resource: "kind1of33s"},
		{Group: "group33.example.com", Version: "v1", Resource: "kind1of33"},
		{Group: "group33.example.com", Resource: "kind1of33s"},
		{Resource: "kind1of33s"},
		{Version: "v1", Resource: "pods"},
		{Resource: "pods"},
	} {
		check("KindFor", resource, 0, func() (bool, error) {
			_, current, err := s.KindFor(resource)
			return current, err
		})
		check("ResourceFor", resource, 0, func() (bool, error) {
			_, current, err := s.ResourceFor(resource)
			return current, err
		})
		check("KindsFor", resource, 1, func() (bool, error) {
			_, current, err := s.KindsFor(resource)
			return current, err
		})
		check("ResourcesFor", resource, 1, func() (bool, error) {
			_, current, err := s.ResourcesFor(resource)
			return current, err
		})
		check("ResourceSingularizer", resource.Resource, 0, func() (bool, error) {
			_, current, err := s.ResourceSingularizer(resource.Resource)
			return current, err
		})
	}

	for _, gvk := range []schema.GroupVersionKind{
		{Group: "group33.example.com", Version: "v1", Kind: "Kind1Of33"},
		{Group: "group33.example.com", Version: "v1beta1", Kind: "Kind3Of33"},
		{Version: "v1", Kind: "Pod"},
	} {
		for _, versions := range [][]string{nil, {gvk.Version}} {
			check("RESTMapping", gvk, 1, func() (bool, error) {
				_, current, err := s.RESTMapping(gvk.GroupKind(), versions)
				return current, err
			})
			check("RESTMappings", gvk, 1, func() (bool, error) {
				_, current, err := s.RESTMappings(gvk.GroupKind(), versions)
				return current, err
			})
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
	if n := len(doc.groupsWithPrefix("xx")); n != len(groups)-1 {
		t.Errorf("%d groups begin with xx; want %d, all but x", n, len(groups)-1)
	}
}

// A lookup of a name that client-go derives from another one takes no memory for the derived names of the 30,000
// kinds, which would be megabytes.
func TestDerivedNamesTakeLittleMemory(t *testing.T) {
	kinds := make([]string, 30_000)
	for i := range kinds {
		kinds[i] = fmt.Sprintf("Foo%d", i)
	}
	s := newHistory(false, "a/v1:"+strings.Join(kinds, ",")).Snapshot

	ofKind := func(kind string) query {
		return query{lookup: byKind, gk: schema.GroupKind{Group: "a", Kind: kind}}
	}
	ofResource := func(resource string) query {
		return query{gvr: schema.GroupVersionResource{Resource: resource}}
	}
	singularOf := func(resource string) query {
		return query{lookup: singularizer, gvr: schema.GroupVersionResource{Resource: resource}}
	}
	for _, lookup := range []query{
		ofKind("Foo7List"),
		ofKind("foo7"),
		ofKind("List"),
		ofResource("foo7lists"),
		ofResource("lists"),
		singularOf("foo7lists"),
	} {
		var err error
		took := allocated(func() { _, _, err = lookup.ask(s) })

		if err != nil || took > 1<<20 {
			t.Errorf("%v took %d bytes, want 1 MiB at most; error %v", lookup, took, err)
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

// Only so many groups are kept of which more is known than the document has: if there are more, what the document
// does not have is forgotten.
func TestUndocumentedGroupsAreBounded(t *testing.T) {
	for _, test := range []struct {
		name         string
		undocumented int    // groups of which the document drops something
		then         string // a command
		want         int    // of these groups are kept
	}{
		{"as many as may be", maxUndocumentedGroups, "overlays", maxUndocumentedGroups},
		{"one more", maxUndocumentedGroups + 1, "overlays", 0},
		{"one more is found in a group of the document", maxUndocumentedGroups, "live a/v9:Foo", 0},
		{"one more group is found", maxUndocumentedGroups, "live x/v1:Foo", 0},
	} {
		// The document drops whole groups, or one version of each.
		for _, drop := range []string{documentOf("v2", 0), documentOf("v2", test.undocumented)} {
			h := newHistory(false, "")
			h.play(t, documentOf("v1", test.undocumented), drop, test.then)

			undocumented, documented := 0, 0
			for _, g := range h.groups {
				of := h.documented(g.name)
				if of != nil {
					documented++
				}
				if len(g.versions) > of.count() {
					undocumented++
				}
			}
			if undocumented != test.want {
				t.Errorf("%s: of %d groups more is known than the document has, want %d", test.name, undocumented, test.want)
			}
			if documented != len(h.doc.groups) {
				t.Errorf("%s: %d groups of the document are known, want all %d", test.name, documented, len(h.doc.groups))
			}
		}
	}
}

// documentOf is the command that reads a document with a group a, and n others that have one version.
func documentOf(version string, n int) string {
	command := "doc a/v1:Foo"
	for i := range n {
		command += fmt.Sprintf(" g%05d/%s:Foo", i, version)
	}
	return command
}

// Only so many versions of a group are kept that the document does not have.
func TestVersionsAreBounded(t *testing.T) {
	for _, document := range []string{
		"a/v1:Foo b/v1:Bar",
		"b/v1:Bar", // all of the group is forgotten
	} {
		h := newHistory(false, document)
		documented := h.Group("a").count()
		for n := range maxUndocumentedVersions + 1 {
			if got, want := h.Group("a").count(), documented+n; got != want {
				t.Errorf("%d versions, want %d: that of the document, and as many as lookups have found", got, want)
			}
			h.play(t, fmt.Sprintf("live a/v1beta%d:Foo", n+1))
		}
		if got := h.text(); got != document {
			t.Errorf("with one version more than may be kept, %s are known; want %s, which the document has", got, document)
		}
		if err := checkInvariants(h.Snapshot); err != nil {
			t.Error(err)
		}
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

// Which groups are not current depends on the reset that counts for a lookup. Lookups of other resets with the same
// snapshot do not change that.
func TestLookupsOfOtherResetsChangeNoAnswer(t *testing.T) {
	h := newHistory(false, "a/v1:Foo")
	h.play(t, "live b/v1:Bar", "list b v1", "doc a/v1:Foo")
	foos := schema.GroupVersionResource{Resource: "foos"} // b might have them, too
	for _, test := range []struct {
		reset   Seq
		current bool
	}{
		{0, true},
		{2, false}, // b was read at 2
		{1, true},
		{2, false},
	} {
		if _, current, err := h.WithLastReset(test.reset).KindsFor(foos); current != test.current || err != nil {
			t.Errorf("with a reset at %d: current: %t, error %v; want %t", test.reset, current, err, test.current)
		}
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
