// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/restmapper"
)

// The oracle is client-go's mapper over the same groups in the same order. Ours
// gives the same answers even where others would serve people better:
//
//   - A resource query with a group and no version is put to every group whose
//     name begins with that group, and KindFor and ResourceFor answer from the
//     first in server order. {Group: "apps", Resource: "deployments"} is answered
//     from apps.example.com if that comes before apps and has deployments.
//   - KindsFor and ResourcesFor never put the preferred version first.
//   - In a query without a group "v1" of the core group wins, whatever group comes
//     first in server order and whatever version the core group prefers.
//   - "list" and "lists" are found in every version, and so is the kind List.
//     FooList maps to the resource foolists, which no server has.
//   - The lower-case form of a kind is a kind of its own: RESTMapping of "foo"
//     succeeds, and the kind of the mapping is foo.
//   - Two resources with one kind: the last in the list wins, for RESTMapping too.
//   - Names with an upper-case letter are found by no query, because queries are
//     put in lower case.
//   - A server without a single resource list answers the resource "" with NoMatch,
//     any other with an error.
//
// In one case they differ: for a server without a single resource list client-go's
// ResourceSingularizer returns "" and no error, and ours NoMatch, so that the server is read.
//
// No document has a version named "" or "__internal", which queries take for no
// version at all: no path of a server leads to one. And in none do two resources of one version
// claim one name, guessed forms included: no server allows that.

// document is what a server serves, as client-go reads it.
type document []*restmapper.APIGroupResources

// snapshot makes the snapshot of a mapper that has read d.
func (d document) snapshot() *Snapshot {
	groups := make([]*Group, 0, len(d))
	for _, g := range d {
		versions := make([]Version, 0, len(g.Group.Versions))
		for _, v := range g.Group.Versions {
			version := Version{Name: v.Version}
			if list, read := g.VersionedResources[v.Version]; read {
				resources := make([]Resource, 0, len(list))
				for _, r := range list {
					resources = append(resources, Resource{Name: r.Name, Singular: r.SingularName, Kind: r.Kind, Namespaced: r.Namespaced})
				}
				version.Table = NewTable(resources)
			}
			versions = append(versions, version)
		}
		groups = append(groups, NewGroup(g.Group.Name, g.Group.PreferredVersion.Version, versions))
	}
	return new(Snapshot).WithDocument(NewDocument(groups, true), 1)
}

// asDocument is what the snapshot serves.
func (s *Snapshot) asDocument() (d document) {
	for _, g := range s.Groups() {
		group := newGroup(g.name)
		group.Group.PreferredVersion.Version = g.preferred
		for _, v := range g.Versions() {
			group.Group.Versions = append(group.Group.Versions, metav1.GroupVersionForDiscovery{Version: v.Name})
			if v.Table == nil {
				continue
			}
			group.VersionedResources[v.Name] = nil
			for _, r := range v.Table.rows {
				group.VersionedResources[v.Name] = append(group.VersionedResources[v.Name],
					metav1.APIResource{Name: r.Name, SingularName: r.Singular, Kind: r.Kind, Namespaced: r.Namespaced})
			}
		}
		d = append(d, group)
	}
	return d
}

func newGroup(name string) *restmapper.APIGroupResources {
	return &restmapper.APIGroupResources{
		Group:              metav1.APIGroup{Name: name},
		VersionedResources: map[string][]metav1.APIResource{},
	}
}

// complete reports whether every version of d was read.
func (d document) complete() bool {
	return !slices.ContainsFunc(d, func(g *restmapper.APIGroupResources) bool {
		return len(g.VersionedResources) < len(g.Group.Versions)
	})
}

// lookups are those of meta.RESTMapper, as we and client-go answer them.
var lookups = [...]struct {
	name    string
	ours    func(*Snapshot, query) (value any, current bool, err error)
	library func(meta.RESTMapper, query) (any, error)
}{
	{"KindFor",
		func(s *Snapshot, q query) (any, bool, error) { return s.KindFor(q.gvr) },
		func(m meta.RESTMapper, q query) (any, error) { return m.KindFor(q.gvr) }},
	{"KindsFor",
		func(s *Snapshot, q query) (any, bool, error) { return s.KindsFor(q.gvr) },
		func(m meta.RESTMapper, q query) (any, error) { return m.KindsFor(q.gvr) }},
	{"ResourceFor",
		func(s *Snapshot, q query) (any, bool, error) { return s.ResourceFor(q.gvr) },
		func(m meta.RESTMapper, q query) (any, error) { return m.ResourceFor(q.gvr) }},
	{"ResourcesFor",
		func(s *Snapshot, q query) (any, bool, error) { return s.ResourcesFor(q.gvr) },
		func(m meta.RESTMapper, q query) (any, error) { return m.ResourcesFor(q.gvr) }},
	{"ResourceSingularizer",
		func(s *Snapshot, q query) (any, bool, error) { return s.ResourceSingularizer(q.gvr.Resource) },
		func(m meta.RESTMapper, q query) (any, error) { return m.ResourceSingularizer(q.gvr.Resource) }},
	{"RESTMapping",
		func(s *Snapshot, q query) (any, bool, error) { return s.RESTMapping(q.gk, q.versions) },
		func(m meta.RESTMapper, q query) (any, error) { return m.RESTMapping(q.gk, q.versions...) }},
	{"RESTMappings",
		func(s *Snapshot, q query) (any, bool, error) { return s.RESTMappings(q.gk, q.versions) },
		func(m meta.RESTMapper, q query) (any, error) { return m.RESTMappings(q.gk, q.versions...) }},
}

const (
	singularizer = 4 // in lookups
	byKind       = 5 // and from there on: lookups that take gk and versions, and no gvr
)

// query is a lookup, and what it takes of the other fields.
type query struct {
	lookup   int // in lookups
	gvr      schema.GroupVersionResource
	gk       schema.GroupKind
	versions []string
}

func (q query) String() string {
	if q.lookup >= byKind {
		return fmt.Sprintf("%s(group %q, kind %q, versions %q)", lookups[q.lookup].name, q.gk.Group, q.gk.Kind, q.versions)
	}
	return fmt.Sprintf("%s(group %q, version %q, resource %q)", lookups[q.lookup].name, q.gvr.Group, q.gvr.Version, q.gvr.Resource)
}

// askLibrary puts q to client-go's mapper.
func (q query) askLibrary(m meta.RESTMapper) string { return written(lookups[q.lookup].library(m, q)) }

// ask puts q to a snapshot, and then overwrites what it returned, which is the caller's to do.
func (q query) ask(s *Snapshot) (answer string, current bool, err error) {
	value, current, err := lookups[q.lookup].ours(s, q)
	answer = written(value, err)
	switch v := value.(type) {
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
	return answer, current, err
}

// written writes down an answer: the value, and the type, the text and the fields of the error.
func written(value any, err error) string {
	var mappings []*meta.RESTMapping
	switch v := value.(type) {
	case *meta.RESTMapping:
		if v != nil {
			mappings = append(mappings, v)
		}
		value = ""
	case []*meta.RESTMapping:
		mappings, value = v, ""
	}
	text := fmt.Sprintf("%+v", value)
	for _, m := range mappings {
		text += fmt.Sprintf("{%+v, %+v, %v}", m.Resource, m.GroupVersionKind, m.Scope.Name())
	}
	if err != nil {
		text += fmt.Sprintf("; error %q (%#v)", err, err)
	}
	return text
}

// indexed is s, which has its index of names from now on.
func (s *Snapshot) indexed() *Snapshot {
	if s.cache != nil && s.cache.byStem.Load() == nil {
		s.cache.buildIndex(s.groups)
	}
	return s
}

// hasTable reports whether any version was read.
func (s *Snapshot) hasTable() bool {
	for _, g := range s.groups {
		if slices.ContainsFunc(g.versions, func(v Version) bool { return v.Table != nil }) {
			return true
		}
	}
	return false
}

// mostTries is how often the library is asked until it answers as we do. For a fully qualified resource it takes the
// first resource that it meets in a Go map, of which the name is the plural or the singular.
const mostTries = 1000

// compare puts q to the library, and to a snapshot with its index of names and without it. It
// reports whether we found something, and whether that is current, or how the answers differ.
func (q query) compare(ours *Snapshot, library meta.RESTMapper) (found, current bool, err error) {
	without := *ours
	without.cache = new(lookupCache)
	gotWithout, currentWithout, _ := q.ask(&without)
	got, current, noMatch := q.ask(ours.indexed())

	want := q.askLibrary(library)
	if q.lookup == singularizer && !ours.hasTable() {
		partial := coerce(schema.GroupVersionResource{Resource: q.gvr.Resource})
		want = written(q.gvr.Resource, &meta.NoResourceMatchError{PartialResource: partial})
	}
	for tries := 0; tries < mostTries && got != want; tries++ {
		want = q.askLibrary(library)
	}

	switch {
	case got != gotWithout, current != currentWithout:
		err = fmt.Errorf("%v\nwith the index of names:    %s, current: %t\nwithout the index of names: %s, current: %t",
			q, got, current, gotWithout, currentWithout)
	case got != want:
		err = fmt.Errorf("%v\nours:      %s\nclient-go: %s", q, got, want)
	case current && meta.IsNoMatchError(noMatch):
		err = fmt.Errorf("%v: %s, and it counts as current, so that the server would not be read", q, got)
	}
	return noMatch == nil, current, err
}

const (
	documentsPerSeed   = 320
	queriesPerDocument = 80
)

// compareRandom compares on random documents. It returns the first disagreement, and of each method how many queries
// were put and how many found something. What is found in a document that was read whole must be current.
func compareRandom(d dice, documents int) (asked, found [len(lookups)]int, err error) {
	for range documents {
		doc := randomDocument(d).servable()
		ours, library := doc.snapshot(), restmapper.NewDiscoveryRESTMapper(doc)
		for range queriesPerDocument {
			q := randomQuery(d, doc)
			has, current, err := q.compare(ours, library)
			if asked[q.lookup]++; has {
				found[q.lookup]++
			}
			if err == nil && has && !current && doc.complete() {
				err = fmt.Errorf("%v: found, and not current", q)
			}
			if err != nil {
				text, _ := json.Marshal(doc)
				return asked, found, fmt.Errorf("%w\nThe server serves\n%s", err, text)
			}
		}
	}
	return asked, found, nil
}

// TestOracle puts 204,800 random queries to random documents and compares with client-go.
func TestOracle(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3, 4, 5, 6, 7, uint64(time.Now().UnixNano())} {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			asked, found, err := compareRandom(rand.New(rand.NewPCG(seed, 0)), documentsPerSeed)
			if err != nil {
				t.Fatal(err)
			}
			for m := range lookups {
				if found[m] < asked[m]/4 || found[m] > asked[m]*9/10 {
					t.Errorf("%s: %d of %d queries find something; want a quarter to 9 of 10, or the oracle sees one side only",
						lookups[m].name, found[m], asked[m])
				}
			}
		})
	}
}

// A name that no resource has, and that of a resource that has neither a kind nor a singular, get client-go's errors.
// Where such an error rests on the document, it is current until the next reset.
func TestErrorsOfNamesWithoutASingular(t *testing.T) {
	served := newGroup("a")
	served.Group.Versions = []metav1.GroupVersionForDiscovery{{Version: "v1"}, {Version: "v2"}}
	served.VersionedResources["v1"] = []metav1.APIResource{{Name: "oddities"}, {Name: "foos", Kind: "Foo"}}
	served.VersionedResources["v2"] = []metav1.APIResource{{Name: "oddities"}}
	listed := newGroup("b")
	listed.Group.Versions = []metav1.GroupVersionForDiscovery{{Version: "v1"}}

	for _, test := range []struct {
		name     string
		document document
		resource string
		current  bool
	}{
		{"a resource without a singular", document{served}, "oddities", true},
		{"the empty name", document{served}, "", true},
		{"the empty name, and a group that was not read", document{served, listed}, "", true},
		{"a name that no resource has", document{served}, "bars", false},
		{"a name that the last version does not have", document{served}, "foos", true},
		{"a server of which no version was read", document{listed}, "oddities", false},
		{"the empty name, and no version was read", document{listed}, "", false},
	} {
		known := test.document.snapshot()
		library := restmapper.NewDiscoveryRESTMapper(test.document)
		for lookup := range byKind { // those by resource
			q := query{lookup: lookup, gvr: schema.GroupVersionResource{Resource: test.resource}}
			_, current, err := q.compare(known, library)
			if err != nil {
				t.Errorf("%s: %v", test.name, err)
			}
			if lookup == singularizer && current != test.current {
				t.Errorf("%s: %v: current: %t, want %t", test.name, q, current, test.current)
			}
			if _, current, _ := q.ask(known.Reset(2)); current {
				t.Errorf("%s: %v is current after a reset", test.name, q)
			}
		}
	}

	h := newHistory(false, "")
	h.play(t, "live a/v1:Foo")
	if _, current, err := h.ResourceSingularizer(""); current || err == nil {
		t.Errorf("the empty name, and no document was read: current: %t, error %v; want an error that is not current", current, err)
	}
}

// FuzzParity compares on one document with a few queries, all made of the fuzzer's bytes.
func FuzzParity(f *testing.F) {
	for _, size := range []int{0, 60, 300, 1000} {
		bytes := make([]byte, size)
		_, _ = rand.NewChaCha8([32]byte{42}).Read(bytes)
		f.Add(bytes)
	}
	f.Fuzz(func(t *testing.T, bytes []byte) {
		if _, _, err := compareRandom(&fuzzDice{bytes}, 1); err != nil {
			t.Error(err)
		}
	})
}
