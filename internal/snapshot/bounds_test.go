// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A list takes memory for its groups, however many of their names begin with others.
func TestNamesThatBeginWithOthersTakeNoMemory(t *testing.T) {
	var groups []*Group
	for i := range 240 {
		groups = append(groups, NewGroup(strings.Repeat("x", i+1), "", nil))
	}
	for i := range 60_000 {
		groups = append(groups, NewGroup(fmt.Sprintf("%s%05d", strings.Repeat("x", 240), i), "", nil))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	list := NewDocument(groups, true)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 32<<20 {
		t.Errorf("%d groups took %d MiB", len(groups), took>>20)
	}
	if n := len(new(Snapshot).WithDocument(list, 1).groupsNamed("xx", false)); n != len(groups)-1 {
		t.Errorf("%d of %d groups begin with xx", n, len(groups))
	}
}

// A lookup of a form that is derived from another one takes no memory for all other forms.
func TestRareFormsTakeLittleMemory(t *testing.T) {
	var kinds []Resource
	for i := range 30_000 {
		kinds = append(kinds, Resource{Name: fmt.Sprintf("foo%ds", i), Singular: fmt.Sprintf("foo%d", i), Kind: fmt.Sprintf("Foo%d", i)})
	}
	s := document{{name: "a", versions: []docVersion{{name: "v1", read: true, resources: kinds}}}}.snapshot()
	for name, lookup := range map[string]func() error{
		"a list": func() error {
			_, _, err := s.RESTMapping(schema.GroupKind{Group: "a", Kind: "Foo7List"}, nil)
			return err
		},
		"in lower case":    func() error { _, _, err := s.RESTMapping(schema.GroupKind{Group: "a", Kind: "foo7"}, nil); return err },
		"lists":            func() error { _, _, err := s.KindFor(schema.GroupVersionResource{Resource: "foo7lists"}); return err },
		"a singular":       func() error { _, _, err := s.ResourceSingularizer("foo7lists"); return err },
		"the kind List":    func() error { _, _, err := s.RESTMapping(schema.GroupKind{Group: "a", Kind: "List"}, nil); return err },
		"lists of nothing": func() error { _, _, err := s.KindFor(schema.GroupVersionResource{Resource: "lists"}); return err },
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := lookup()
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; err != nil || took > 1<<20 {
			t.Errorf("%s: %v, %d bytes", name, err, took)
		}
	}
}
