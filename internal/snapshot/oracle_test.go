// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
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
//     any other with an error, and its ResourceSingularizer returns "" and no error.
//
// No document has a version named "" or "__internal", which queries take for no
// version at all: no path of a server leads to one.

// tally counts the queries, and those that find something in the library.
type tally struct{ asked, found [methods]atomic.Int64 }

const (
	documentsPerSeed   = 320
	queriesPerDocument = 80
)

// TestOracle puts 204,800 random queries to random documents and compares with client-go.
func TestOracle(t *testing.T) {
	seeds := []uint64{1, 2, 3, 4, 5, 6, 7, uint64(time.Now().UnixNano())}
	var total tally
	t.Run("seeds", func(t *testing.T) {
		for _, seed := range seeds {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				if failed := compareRandom(rand.New(rand.NewPCG(seed, 0)), documentsPerSeed, document.snapshot, &total); failed != nil {
					t.Errorf("seed %d:\n%v", seed, failed)
				}
			})
		}
	})
	t.Logf("the last seed was random: %v", seeds)
	for m := range methods {
		if asked, found := total.asked[m].Load(), total.found[m].Load(); found < asked/4 || found > asked*9/10 {
			t.Errorf("%v: %d of %d queries find something: the oracle sees one side only", m, found, asked)
		}
	}
}

// FuzzParity compares on one document with a few queries, all made of the fuzzer's bytes.
func FuzzParity(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("one group of one version"))
	random := rand.New(rand.NewPCG(42, 0))
	for _, size := range []int{60, 300, 1000} {
		bytes := make([]byte, size)
		for i := range bytes {
			bytes[i] = byte(random.IntN(256))
		}
		f.Add(bytes)
	}
	f.Fuzz(func(t *testing.T, bytes []byte) {
		if failed := compareRandom(&fuzzDice{bytes}, 1, document.snapshot, new(tally)); failed != nil {
			t.Error(failed)
		}
	})
}

// A mapper that reads a document wrongly is caught.
func TestOracleCatchesMutants(t *testing.T) {
	first := func(change func(*docGroup)) func(document) *Snapshot {
		return func(d document) *Snapshot {
			if d = d.clone(); len(d) > 0 {
				change(&d[0])
			}
			return d.snapshot()
		}
	}
	eachResource := func(change func(*Resource)) func(document) *Snapshot {
		return func(d document) *Snapshot {
			d = d.clone()
			for _, g := range d {
				for _, v := range g.versions {
					for i := range v.resources {
						change(&v.resources[i])
					}
				}
			}
			return d.snapshot()
		}
	}
	for how, mutant := range map[string]func(document) *Snapshot{
		"no preference": first(func(g *docGroup) { g.preferred = "" }),
		"version order": first(func(g *docGroup) { slices.Reverse(g.versions) }),
		"group order":   func(d document) *Snapshot { d = d.clone(); slices.Reverse(d); return d.snapshot() },
		"one group":     func(d document) *Snapshot { return d[:min(len(d), 1)].snapshot() },
		"subresources":  eachResource(func(r *Resource) { r.Name, _, _ = strings.Cut(r.Name, "/") }),
		"scope":         eachResource(func(r *Resource) { r.Namespaced = !r.Namespaced }),
		"singular":      eachResource(func(r *Resource) { r.Singular = r.Name }),
		"never current": func(d document) *Snapshot { return d.snapshot().Reset(9) },
		"old index": func(d document) *Snapshot {
			s := d.snapshot()
			if len(d) > 1 {
				s.names = d[:len(d)-1].snapshot().indexed().names
			}
			return s
		},
	} {
		if compareRandom(rand.New(rand.NewPCG(1, 0)), documentsPerSeed, mutant, new(tally)) == nil {
			t.Errorf("%s: not caught", how)
		}
	}
}

// compareRandom returns the first disagreement of the snapshots that make makes, or nil.
func compareRandom(d dice, documents int, make func(document) *Snapshot, total *tally) *disagreement {
	for range documents {
		doc := randomDocument(d)
		ours, library := make(doc), restmapper.NewDiscoveryRESTMapper(doc.library())
		for range queriesPerDocument {
			if failed := compare(doc, ours, library, randomQuery(d, doc), total); failed != nil {
				return failed
			}
		}
	}
	return nil
}

// disagreement is a query that is answered wrongly.
type disagreement struct {
	doc      document
	query    query
	ours     answer
	expected string
}

func (d *disagreement) String() string {
	return fmt.Sprintf("%+v\n%+v\nours:    %v\nlibrary: %s", d.doc, d.query, d.ours, d.expected)
}

// compare puts q to both and returns how they disagree, or nil.
func compare(doc document, ours *Snapshot, library meta.RESTMapper, q query, total *tally) *disagreement {
	want := q.askLibrary(library)
	got, settled := q.ask(ours)
	if total.asked[q.method].Add(1); want.err == nil {
		total.found[q.method].Add(1)
	}
	expected := doc.expected(q, got, want)
	switch {
	case expected != "":
	case settled && meta.IsNoMatchError(got.err):
		expected = want.String() + ", which is never settled"
	case !settled && got.err == nil && doc.complete():
		expected = want.String() + ", which is settled: every version was read"
	default:
		got.scribble()
		return nil
	}
	return &disagreement{doc: doc, query: q, ours: got, expected: expected}
}

// expected returns "" if got, our answer, is as good as want, the library's.
func (d document) expected(q query, got, want answer) string {
	possible := d.mapOrdered(q)
	switch {
	case possible != nil && !slices.ContainsFunc(possible, want.equal):
		return fmt.Sprintf("%v, and the test thought it were one of %v", want, possible)
	case possible != nil && !slices.ContainsFunc(possible, got.equal):
		return fmt.Sprintf("one of %v", possible)
	case possible == nil && !got.equal(want):
		return want.String()
	}
	return ""
}

// equal reports whether both answers have the same value in the same order, or the same
// type of error with the same contents and text.
func (a answer) equal(other answer) bool {
	if !reflect.DeepEqual(a.value, other.value) || reflect.TypeOf(a.err) != reflect.TypeOf(other.err) {
		return false
	}
	return a.err == nil || a.err.Error() == other.err.Error() && reflect.DeepEqual(a.err, other.err)
}

// mapOrdered returns the answers among which the library picks by the order of a
// Go map, or nil: for a fully qualified resource, it takes the first resource it
// meets of which the name is the plural or the singular.
func (d document) mapOrdered(q query) []answer {
	if q.method != resourceFor && q.method != resourcesFor {
		return nil
	}
	if q.gvr.Group == "" || q.gvr.Version == "" || q.gvr.Version == "__internal" {
		return nil
	}
	v := d.version(q.gvr.Group, q.gvr.Version)
	if v == nil || !v.read {
		return nil
	}
	var possible []answer
	name := strings.ToLower(q.gvr.Resource)
	singulars := v.singulars()
	for _, plural := range slices.Sorted(maps.Keys(singulars)) {
		if plural != name && singulars[plural] != name {
			continue
		}
		found := schema.GroupVersionResource{Group: q.gvr.Group, Version: q.gvr.Version, Resource: plural}
		if q.method == resourceFor {
			possible = append(possible, answer{value: found})
		} else {
			possible = append(possible, answer{value: []schema.GroupVersionResource{found}})
		}
	}
	if name == "" || len(possible) < 2 {
		return nil
	}
	return possible
}

// singulars is the singular that the library ends up with for each plural of v.
func (v *docVersion) singulars() map[string]string {
	singulars := map[string]string{}
	guess := func(kind string) (plural, singular string) {
		p, s := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: kind})
		return p.Resource, s.Resource
	}
	for _, r := range v.resources {
		if strings.Contains(r.Name, "/") {
			continue
		}
		if r.Singular == "" {
			_, r.Singular = guess(r.Kind)
		}
		singulars[r.Name] = r.Singular
		plural, singular := guess(r.Kind + "List")
		singulars[plural] = singular
	}
	singulars["lists"] = "list"
	return singulars
}
