// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestOrderOfPrefixes compares the order of many groups that begin with one another
// with what checkInvariants finds by trying every pair.
func TestOrderOfPrefixes(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	for range 200 {
		var doc document
		seen := map[string]bool{}
		for range random.IntN(20) {
			name := strings.Repeat("a", random.IntN(4)) + strings.Repeat("b", random.IntN(3)) + strings.Repeat("a", random.IntN(2))
			if !seen[name] {
				seen[name] = true
				doc = append(doc, docGroup{name: name})
			}
		}
		if err := checkInvariants(doc.snapshot()); err != nil {
			t.Fatalf("%v\n%v", err, doc)
		}
	}
}

// TestLongGroupName hangs if the work grows with the square of what a server sends.
func TestLongGroupName(t *testing.T) {
	name := strings.Repeat("a", 8<<20)
	resources := []Resource{{Name: "foos", Singular: "foo", Kind: "Foo"}}
	doc := document{
		{name: "a", versions: []docVersion{{name: "v1", read: true, resources: resources}}},
		{name: name, versions: []docVersion{{name: "v1", read: true, resources: resources}}},
	}
	for i := range 20 { // small maps do not hash
		doc = append(doc, docGroup{name: fmt.Sprint(i)})
	}
	kinds, _, err := doc.snapshot().KindsFor(schema.GroupVersionResource{Group: "a", Resource: "foos"})
	if err != nil || len(kinds) != 2 {
		t.Fatalf("%d kinds, error %v", len(kinds), err)
	}
}

// A resource is found by its own name, also if that is another's singular that sorts before it.
func TestOwnNameFirst(t *testing.T) {
	s := document{{name: "a", versions: []docVersion{{name: "v1", read: true, resources: []Resource{
		{Name: "deer", Singular: "stag", Kind: "Deer"}, {Name: "antlers", Singular: "deer", Kind: "Antlers"},
	}}}}}.snapshot()
	found, _, err := s.ResourceFor(schema.GroupVersionResource{Group: "a", Version: "v1", Resource: "deer"})
	if err != nil || found.Resource != "deer" {
		t.Errorf("%v, %v", found, err)
	}
}

// Tables with forms that are empty, not ASCII or like a list's are compared with client-go's
// rules form by form.
func TestRegular(t *testing.T) {
	regular := Resource{Name: "deer", Singular: "stag", Kind: "Deer"}
	for r, want := range map[Resource]bool{
		regular: true, {Name: "stags", Singular: "stag"}: false, {Singular: "stag", Kind: "Deer"}: false,
		{Name: "deer", Singular: "stag", Kind: "Çerf"}: false, {Name: "çerfs", Singular: "stag", Kind: "Deer"}: false,
		{Name: "deer", Singular: "stag", Kind: "DeerList"}: false, {Name: "deerlists", Singular: "stag", Kind: "Deer"}: false,
	} {
		if got := NewTable([]Resource{r}).regular(); got != want {
			t.Errorf("%+v: %v", r, got)
		}
	}
}

// TestManyKinds hangs in the same case.
func TestManyKinds(t *testing.T) {
	var resources []Resource
	for i := range 30_000 {
		resources = append(resources, Resource{Name: fmt.Sprintf("foo%ds", i), Singular: fmt.Sprintf("foo%d", i), Kind: fmt.Sprintf("Foo%d", i)})
	}
	if table := NewTable(resources); len(table.kinds) != len(resources) || table.odd != nil {
		t.Fatalf("%d kinds, exceptions %v", len(table.kinds), table.odd)
	}
}

// TestManyClashes hangs in the same case: all forms of all resources clash.
func TestManyClashes(t *testing.T) {
	var resources []Resource
	for i := range 20_000 {
		resources = append(resources, Resource{Name: fmt.Sprintf("list%d", i), Singular: "list", Kind: strings.Repeat("List", i%20)})
	}
	s := document{{name: "a", versions: []docVersion{{name: "v1", read: true, resources: resources}}}}.snapshot()
	if _, _, err := s.ResourceFor(schema.GroupVersionResource{Group: "a", Version: "v1", Resource: "list"}); err != nil {
		t.Fatal(err)
	}
}

// TestLowerIsFinal is what lastOfLowerKind relies on: lower case does not change in lower case.
func TestLowerIsFinal(t *testing.T) {
	for r := range unicode.MaxRune + 1 {
		if lower := unicode.ToLower(r); unicode.ToLower(lower) != lower {
			t.Errorf("%U becomes %U, and that becomes %U", r, lower, unicode.ToLower(lower))
		}
	}
}
