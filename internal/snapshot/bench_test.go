// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The sinks keep the compiler from leaving out what is measured.
var (
	mappingSink  *meta.RESTMapping
	mappingsSink []*meta.RESTMapping
	kindSink     schema.GroupVersionKind
	kindsSink    []schema.GroupVersionKind
	gvrSink      schema.GroupVersionResource
	gvrsSink     []schema.GroupVersionResource
	stringSink   string
)

// benchmark runs lookup on snapshots of several sizes, with a group, a kind and a
// resource from the middle of each.
func benchmark(b *testing.B, lookup func(*Snapshot, schema.GroupVersionKind, schema.GroupVersionResource)) {
	for _, groups := range []int{10, 100, 500, 2000} {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			s := typical(groups).snapshot()
			gvk, gvr := middle(groups)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				lookup(s, gvk, gvr)
			}
		})
	}
}

func middle(groups int) (schema.GroupVersionKind, schema.GroupVersionResource) {
	gv := schema.GroupVersion{Group: fmt.Sprintf("group%d.example.com", groups/2), Version: "v1"}
	return gv.WithKind(fmt.Sprintf("Kind1Of%d", groups/2)), gv.WithResource(fmt.Sprintf("kind1of%ds", groups/2))
}

// BenchmarkFloor is the least that a lookup can cost: one look into a map, and the
// copy that is handed out.
func BenchmarkFloor(b *testing.B) {
	for _, groups := range []int{10, 100, 500, 2000} {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			mappings := map[schema.GroupKind]*meta.RESTMapping{}
			s := typical(groups).snapshot()
			for _, gvk := range s.kindOrder() {
				m, _, _ := s.RESTMapping(gvk.GroupKind(), nil)
				mappings[gvk.GroupKind()] = m
			}
			gvk, _ := middle(groups)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				m := *mappings[gvk.GroupKind()]
				mappingSink = &m
			}
		})
	}
}

func BenchmarkRESTMapping(b *testing.B) {
	benchmark(b, func(s *Snapshot, gvk schema.GroupVersionKind, _ schema.GroupVersionResource) {
		mappingSink, _, _ = s.RESTMapping(gvk.GroupKind(), nil)
	})
}

func BenchmarkRESTMappingOfVersion(b *testing.B) {
	versions := []string{"v1"}
	benchmark(b, func(s *Snapshot, gvk schema.GroupVersionKind, _ schema.GroupVersionResource) {
		mappingSink, _, _ = s.RESTMapping(gvk.GroupKind(), versions)
	})
}

// BenchmarkRESTMappingLater looks for a kind that the preferred version lacks.
func BenchmarkRESTMappingLater(b *testing.B) {
	for _, groups := range []int{10, 100, 500, 2000} {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			s := typical(groups).snapshot()
			gk := schema.GroupKind{Group: fmt.Sprintf("group%d.example.com", groups/2), Kind: fmt.Sprintf("Kind3Of%d", groups/2)}
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				mappingSink, _, _ = s.RESTMapping(gk, nil)
			}
		})
	}
}

func BenchmarkRESTMappings(b *testing.B) {
	benchmark(b, func(s *Snapshot, gvk schema.GroupVersionKind, _ schema.GroupVersionResource) {
		mappingsSink, _, _ = s.RESTMappings(gvk.GroupKind(), nil)
	})
}

func BenchmarkKindFor(b *testing.B) {
	benchmark(b, func(s *Snapshot, _ schema.GroupVersionKind, gvr schema.GroupVersionResource) {
		kindSink, _, _ = s.KindFor(gvr)
	})
}

func BenchmarkKindForCore(b *testing.B) {
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	benchmark(b, func(s *Snapshot, _ schema.GroupVersionKind, _ schema.GroupVersionResource) {
		kindSink, _, _ = s.KindFor(pods)
	})
}

func BenchmarkKindForWithoutVersion(b *testing.B) {
	benchmark(b, func(s *Snapshot, _ schema.GroupVersionKind, gvr schema.GroupVersionResource) {
		kindSink, _, _ = s.KindFor(gvr.GroupResource().WithVersion(""))
	})
}

func BenchmarkKindForWithoutGroup(b *testing.B) {
	benchmarkWithoutGroup(b, func(s *Snapshot, resource string) {
		kindSink, _, _ = s.KindFor(schema.GroupVersionResource{Resource: resource})
	})
}

func BenchmarkKindsForWithoutGroup(b *testing.B) {
	benchmarkWithoutGroup(b, func(s *Snapshot, resource string) {
		kindsSink, _, _ = s.KindsFor(schema.GroupVersionResource{Version: "v1", Resource: resource})
	})
}

func BenchmarkResourceForWithoutGroup(b *testing.B) {
	benchmarkWithoutGroup(b, func(s *Snapshot, resource string) {
		gvrSink, _, _ = s.ResourceFor(schema.GroupVersionResource{Resource: resource})
	})
}

func BenchmarkResourcesForWithoutGroup(b *testing.B) {
	benchmarkWithoutGroup(b, func(s *Snapshot, resource string) {
		gvrsSink, _, _ = s.ResourcesFor(schema.GroupVersionResource{Resource: resource})
	})
}

func BenchmarkResourceSingularizer(b *testing.B) {
	benchmarkWithoutGroup(b, func(s *Snapshot, resource string) {
		stringSink, _, _ = s.ResourceSingularizer(resource)
	})
}

// benchmarkWithoutGroup runs lookup for a resource of the last group, once the
// snapshot has an index of names.
func benchmarkWithoutGroup(b *testing.B, lookup func(s *Snapshot, resource string)) {
	for _, groups := range []int{10, 100, 500, 2000} {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			s := typical(groups).snapshot()
			resource := fmt.Sprintf("kind1of%ds", groups-2)
			for range walksBeforeIndex {
				lookup(s, resource)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				lookup(s, resource)
			}
		})
	}
}

// BenchmarkWalk is the same lookup without an index: what BenchmarkNameIndex takes
// should be about walksBeforeIndex times that.
func BenchmarkWalk(b *testing.B) {
	s := typical(2000).snapshot()
	s.names = nil
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		stringSink, _, _ = s.ResourceSingularizer("kind1of1998s")
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

func BenchmarkKindsFor(b *testing.B) {
	benchmark(b, func(s *Snapshot, _ schema.GroupVersionKind, gvr schema.GroupVersionResource) {
		kindsSink, _, _ = s.KindsFor(gvr)
	})
}

func BenchmarkResourceFor(b *testing.B) {
	benchmark(b, func(s *Snapshot, _ schema.GroupVersionKind, gvr schema.GroupVersionResource) {
		gvrSink, _, _ = s.ResourceFor(gvr)
	})
}

func BenchmarkResourcesFor(b *testing.B) {
	benchmark(b, func(s *Snapshot, _ schema.GroupVersionKind, gvr schema.GroupVersionResource) {
		gvrsSink, _, _ = s.ResourcesFor(gvr)
	})
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

// BenchmarkPublishNew adds a group to 2,000.
func BenchmarkPublishNew(b *testing.B) {
	s := typical(2000).snapshot()
	table := NewTable([]Resource{{Name: "foos", Singular: "foo", Kind: "Foo"}})
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if next := s.WithVersion("new.example.com", "v1", Found{Table: table}, 2, s); len(next.groups) != 2001 {
			b.Fatal("not added")
		}
	}
}
