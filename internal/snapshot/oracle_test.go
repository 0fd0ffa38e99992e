// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
				if err := compareRandom(rand.New(rand.NewPCG(seed, 0)), documentsPerSeed, document.snapshot, &total); err != nil {
					t.Errorf("seed %d:\n%v", seed, err)
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
		if err := compareRandom(&fuzzDice{bytes}, 1, document.snapshot, new(tally)); err != nil {
			t.Error(err)
		}
	})
}

// A mapper that reads a document wrongly is caught.
func TestOracleCatchesMutants(t *testing.T) {
	eachResource := func(change func(*Resource)) func(document) *Snapshot {
		return func(d document) *Snapshot {
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
	eachGroup := func(change func(*docGroup)) func(document) *Snapshot {
		return func(d document) *Snapshot {
			for i := range d {
				change(&d[i])
			}
			return d.snapshot()
		}
	}
	for how, mutant := range map[string]func(document) *Snapshot{
		"no preference": eachGroup(func(g *docGroup) { g.preferred = "" }),
		"version order": eachGroup(func(g *docGroup) { slices.Reverse(g.versions) }),
		"group order":   func(d document) *Snapshot { slices.Reverse(d); return d.snapshot() },
		"one group":     func(d document) *Snapshot { return d[:min(len(d), 1)].snapshot() },
		"subresources":  eachResource(func(r *Resource) { r.Name, _, _ = strings.Cut(r.Name, "/") }),
		"scope":         eachResource(func(r *Resource) { r.Namespaced = !r.Namespaced }),
		"singular":      eachResource(func(r *Resource) { r.Singular = r.Name }),
		"never current": func(d document) *Snapshot { return d.snapshot().Reset(9) },
		"old index": func(d document) *Snapshot {
			s := d.snapshot()
			if len(d) > 1 {
				s.lazy = d[:len(d)-1].snapshot().indexed().lazy
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
func compareRandom(d dice, documents int, make func(document) *Snapshot, total *tally) error {
	for range documents {
		doc := randomDocument(d).servable()
		library := doc.library()
		ours := make(doc)
		for range queriesPerDocument {
			if err := compare(doc, ours, library, randomQuery(d, doc), total); err != nil {
				return err
			}
		}
	}
	return nil
}

// compare puts q to both and returns how they disagree, or nil. It expects an answer to be
// current if every version was read.
func compare(doc document, ours *Snapshot, library meta.RESTMapper, q query, total *tally) error {
	found, current, err := q.compare(ours, library)
	if total.asked[q.method].Add(1); found {
		total.found[q.method].Add(1)
	}
	if err == nil && found && !current && doc.complete() {
		err = fmt.Errorf("%+v: found, and not current", q)
	}
	if err != nil {
		return fmt.Errorf("%w\n%+v", err, doc)
	}
	return nil
}

// mostTries is how often the library is asked until it answers as we do. For a fully qualified
// resource it takes the first resource that it meets in a Go map, of which the name is the
// plural or the singular.
const mostTries = 1000

// compare puts q to both. It reports whether we found something, and whether that is current.
func (q query) compare(ours *Snapshot, library meta.RESTMapper) (found, current bool, err error) {
	got, current := q.ask(ours)
	want := q.askLibrary(library)
	if q.method == resourceSingularizer && ours.lastTable() == nil {
		want = answer{q.resource, &meta.NoResourceMatchError{PartialResource: coerce(schema.GroupVersionResource{Resource: q.resource})}}
	}
	for tries := 0; tries < mostTries && !got.equal(want); tries++ {
		want = q.askLibrary(library)
	}
	switch {
	case !got.equal(want):
		return false, false, fmt.Errorf("%+v\nours:    %v\nlibrary: %v", q, got, want)
	case current && meta.IsNoMatchError(got.err):
		return false, false, fmt.Errorf("%+v: %v, and it counts as current", q, got)
	}
	got.scribble()
	return got.err == nil, current, nil
}

// equal reports whether both answers have the same value in the same order, or the same
// type of error with the same contents and text.
func (a answer) equal(other answer) bool {
	if !reflect.DeepEqual(a.value, other.value) || reflect.TypeOf(a.err) != reflect.TypeOf(other.err) {
		return false
	}
	return a.err == nil || a.err.Error() == other.err.Error() && reflect.DeepEqual(a.err, other.err)
}
