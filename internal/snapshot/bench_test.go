// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// sink keeps the compiler from leaving out what is measured.
var sink struct {
	mapping   *meta.RESTMapping
	mappings  []*meta.RESTMapping
	kind      schema.GroupVersionKind
	kinds     []schema.GroupVersionKind
	resource  schema.GroupVersionResource
	resources []schema.GroupVersionResource
	singular  string
}

// middle returns a kind and a resource of a group in the middle of a typical server.
func middle(groups int) (schema.GroupVersionKind, schema.GroupVersionResource) {
	gv := schema.GroupVersion{Group: fmt.Sprintf("group%d.example.com", groups/2), Version: "v1"}
	return gv.WithKind(fmt.Sprintf("Kind1Of%d", groups/2)), gv.WithResource(fmt.Sprintf("kind1of%ds", groups/2))
}

// BenchmarkLookup measures every lookup on servers of several sizes. "floor" is the least that
// one can cost: a look into a map, and the copy that is handed out. Lookups without a group
// use the index of names, but for "walk".
func BenchmarkLookup(b *testing.B) {
	versions, pods := []string{"v1"}, schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	for _, groups := range []int{10, 100, 500, 2000} {
		s := typical(groups).snapshot().indexed()
		plain := *s
		plain.names = nil
		gvk, gvr := middle(groups)
		gk, anyVersion, anyGroup := gvk.GroupKind(), gvr.GroupResource().WithVersion(""), schema.GroupVersionResource{Resource: gvr.Resource}
		later := schema.GroupKind{Group: gk.Group, Kind: fmt.Sprintf("Kind3Of%d", groups/2)}
		known, _, _ := s.RESTMapping(gk, nil)
		mappings := map[schema.GroupKind]*meta.RESTMapping{gk: known}
		for _, lookup := range []struct {
			name string
			do   func()
		}{
			{"floor", func() { m := *mappings[gk]; sink.mapping = &m }},
			{"RESTMapping", func() { sink.mapping, _, _ = s.RESTMapping(gk, nil) }},
			{"RESTMapping/version", func() { sink.mapping, _, _ = s.RESTMapping(gk, versions) }},
			{"RESTMapping/later", func() { sink.mapping, _, _ = s.RESTMapping(later, nil) }},
			{"RESTMappings", func() { sink.mappings, _, _ = s.RESTMappings(gk, nil) }},
			{"KindFor", func() { sink.kind, _, _ = s.KindFor(gvr) }},
			{"KindFor/core", func() { sink.kind, _, _ = s.KindFor(pods) }},
			{"KindFor/any-version", func() { sink.kind, _, _ = s.KindFor(anyVersion) }},
			{"KindFor/any-group", func() { sink.kind, _, _ = s.KindFor(anyGroup) }},
			{"KindsFor", func() { sink.kinds, _, _ = s.KindsFor(gvr) }},
			{"KindsFor/any-group", func() { sink.kinds, _, _ = s.KindsFor(anyGroup) }},
			{"ResourceFor", func() { sink.resource, _, _ = s.ResourceFor(gvr) }},
			{"ResourceFor/any-group", func() { sink.resource, _, _ = s.ResourceFor(anyGroup) }},
			{"ResourcesFor", func() { sink.resources, _, _ = s.ResourcesFor(gvr) }},
			{"ResourcesFor/any-group", func() { sink.resources, _, _ = s.ResourcesFor(anyGroup) }},
			{"ResourceSingularizer", func() { sink.singular, _, _ = s.ResourceSingularizer(gvr.Resource) }},
			{"ResourceSingularizer/walk", func() { sink.singular, _, _ = plain.ResourceSingularizer(gvr.Resource) }},
		} {
			b.Run(fmt.Sprintf("%s/groups=%d", lookup.name, groups), func(b *testing.B) {
				b.ReportAllocs()
				for range b.N {
					lookup.do()
				}
			})
		}
	}
}

func BenchmarkNameIndex(b *testing.B) {
	s := typical(2000).snapshot()
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		s.names.fill(s.groups)
	}
}

// BenchmarkPublish changes one group of 2,000, as a live read of a version does.
func BenchmarkPublish(b *testing.B) {
	s := typical(2000).snapshot()
	gvk, _ := middle(2000)
	tables := []*Table{
		NewTable([]Resource{{Name: "foos", Singular: "foo", Kind: "Foo"}}),
		NewTable([]Resource{{Name: "foos", Singular: "foo", Kind: "Foo"}, {Name: "bars", Singular: "bar", Kind: "Bar"}}),
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		next := s.WithVersion(gvk.Group, gvk.Version, Found{Table: tables[i%2]}, Tick(2+i), s)
		if changes := Diff(s, next); len(changes) == 0 {
			b.Fatal("nothing changed")
		}
		s = next
	}
}
