// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"runtime"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var hitSizes = []int{10, 100, 500, 2000}

// A query is about one kind that is served.
type query struct {
	gk       schema.GroupKind
	versions []string
	full     schema.GroupVersionResource
	partial  schema.GroupVersionResource // without the version
}

// queryCount is a power of two.
const queryCount = 16

// queriesOf picks kinds from all over the server. How fast a single kind is found
// would depend on luck.
func queriesOf(groups int) *[queryCount]query {
	typical := groupsOf(groups)[1:] // without the core group
	var queries [queryCount]query
	for i := range queries {
		group := typical[i*len(typical)/queryCount]
		version := group.Versions[i%len(group.Versions)]
		resource := version.Resources[i%len(version.Resources)]
		queries[i] = query{
			gk:       schema.GroupKind{Group: group.Name, Kind: resource.Kind},
			versions: []string{version.Name},
			full:     schema.GroupVersionResource{Group: group.Name, Version: version.Name, Resource: resource.Name},
			partial:  schema.GroupVersionResource{Group: group.Name, Resource: resource.Name},
		}
	}
	return &queries
}

// lookups are the seven methods, each with and without a version where that
// makes a difference.
var lookups = []struct {
	name string
	do   func(meta.RESTMapper, *query) (any, error)
	hit  func(meta.RESTMapper, *query) error // the same, without boxing the answer
}{
	{
		"RESTMapping+version",
		func(m meta.RESTMapper, q *query) (any, error) { return m.RESTMapping(q.gk, q.versions...) },
		func(m meta.RESTMapper, q *query) error { _, err := m.RESTMapping(q.gk, q.versions...); return err },
	},
	{
		"RESTMapping",
		func(m meta.RESTMapper, q *query) (any, error) { return m.RESTMapping(q.gk) },
		func(m meta.RESTMapper, q *query) error { _, err := m.RESTMapping(q.gk); return err },
	},
	{
		"RESTMappings+version",
		func(m meta.RESTMapper, q *query) (any, error) { return m.RESTMappings(q.gk, q.versions...) },
		func(m meta.RESTMapper, q *query) error { _, err := m.RESTMappings(q.gk, q.versions...); return err },
	},
	{
		"RESTMappings",
		func(m meta.RESTMapper, q *query) (any, error) { return m.RESTMappings(q.gk) },
		func(m meta.RESTMapper, q *query) error { _, err := m.RESTMappings(q.gk); return err },
	},
	{
		"KindFor+version",
		func(m meta.RESTMapper, q *query) (any, error) { return m.KindFor(q.full) },
		func(m meta.RESTMapper, q *query) error { _, err := m.KindFor(q.full); return err },
	},
	{
		"KindFor",
		func(m meta.RESTMapper, q *query) (any, error) { return m.KindFor(q.partial) },
		func(m meta.RESTMapper, q *query) error { _, err := m.KindFor(q.partial); return err },
	},
	{
		"KindsFor+version",
		func(m meta.RESTMapper, q *query) (any, error) { return m.KindsFor(q.full) },
		func(m meta.RESTMapper, q *query) error { _, err := m.KindsFor(q.full); return err },
	},
	{
		"KindsFor",
		func(m meta.RESTMapper, q *query) (any, error) { return m.KindsFor(q.partial) },
		func(m meta.RESTMapper, q *query) error { _, err := m.KindsFor(q.partial); return err },
	},
	{
		"ResourceFor+version",
		func(m meta.RESTMapper, q *query) (any, error) { return m.ResourceFor(q.full) },
		func(m meta.RESTMapper, q *query) error { _, err := m.ResourceFor(q.full); return err },
	},
	{
		"ResourceFor",
		func(m meta.RESTMapper, q *query) (any, error) { return m.ResourceFor(q.partial) },
		func(m meta.RESTMapper, q *query) error { _, err := m.ResourceFor(q.partial); return err },
	},
	{
		"ResourcesFor+version",
		func(m meta.RESTMapper, q *query) (any, error) { return m.ResourcesFor(q.full) },
		func(m meta.RESTMapper, q *query) error { _, err := m.ResourcesFor(q.full); return err },
	},
	{
		"ResourcesFor",
		func(m meta.RESTMapper, q *query) (any, error) { return m.ResourcesFor(q.partial) },
		func(m meta.RESTMapper, q *query) error { _, err := m.ResourcesFor(q.partial); return err },
	},
	{
		"ResourceSingularizer",
		func(m meta.RESTMapper, q *query) (any, error) { return m.ResourceSingularizer(q.full.Resource) },
		func(m meta.RESTMapper, q *query) error { _, err := m.ResourceSingularizer(q.full.Resource); return err },
	},
}

// floor is the least that a lookup can do: it finds the kind in one map and
// copies the mapping that it hands out.
type floor map[schema.GroupKind]*meta.RESTMapping

func newFloor(groups int) floor {
	f := floor{}
	for _, g := range groupsOf(groups) {
		v := g.Versions[0]
		for _, r := range v.Resources {
			f[schema.GroupKind{Group: g.Name, Kind: r.Kind}] = &meta.RESTMapping{
				Resource:         schema.GroupVersionResource{Group: g.Name, Version: v.Name, Resource: r.Name},
				GroupVersionKind: schema.GroupVersionKind{Group: g.Name, Version: v.Name, Kind: r.Kind},
				Scope:            meta.RESTScopeNamespace,
			}
		}
	}
	return f
}

//go:noinline
func (f floor) find(gk schema.GroupKind) *meta.RESTMapping {
	found, ok := f[gk]
	if !ok {
		return nil
	}
	mapping := *found
	return &mapping
}

func (f floor) hit(q *query) error {
	if f.find(q.gk) == nil {
		return &meta.NoKindMatchError{GroupKind: q.gk}
	}
	return nil
}

// BenchmarkHit: lookups of known kinds, one goroutine.
func BenchmarkHit(b *testing.B) { benchmarkHits(b, serial) }

// BenchmarkHitParallel: the same, as many goroutines as processors.
func BenchmarkHitParallel(b *testing.B) { benchmarkHits(b, parallel) }

func benchmarkHits(b *testing.B, run func(*testing.B, *[queryCount]query, func(*query) error)) {
	for _, groups := range hitSizes {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			queries := queriesOf(groups)
			benchmarkHitsOf(b, groups, func(b *testing.B, hit func(*query) error) { run(b, queries, hit) })
		})
	}
}

func benchmarkHitsOf(b *testing.B, groups int, run func(*testing.B, func(*query) error)) {
	bare := newFloor(groups)
	e := newEndpoint(groupsOf(groups))
	mappers := make([]meta.RESTMapper, len(flavours))
	for i, f := range flavours {
		mappers[i] = f.warmMapper(b, e)
	}
	e.hangUp()
	// The garbage collector runs as in a program of ordinary size, and not after
	// every 40,000 lookups; and memory that it has not used yet is not measured.
	ballast := make([]byte, 16<<20)
	defer runtime.KeepAlive(ballast)
	for range 1 << 19 {
		bare.find(e.kind)
	}

	b.Run("lookup=floor/mapper=floor", func(b *testing.B) { run(b, bare.hit) })
	for _, l := range lookups {
		for i, f := range flavours {
			m := mappers[i]
			b.Run("lookup="+l.name+"/mapper="+f.name, func(b *testing.B) {
				run(b, func(q *query) error { return l.hit(m, q) })
			})
		}
	}
}

func serial(b *testing.B, queries *[queryCount]query, hit func(*query) error) {
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if err := hit(&queries[i%queryCount]); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

func parallel(b *testing.B, queries *[queryCount]query, hit func(*query) error) {
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		i := 0
		for pb.Next() {
			if err := hit(&queries[i%queryCount]); err != nil {
				b.Error(err)
				return
			}
			i++
		}
	})
}
