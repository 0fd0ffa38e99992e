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

type (
	gvk = schema.GroupVersionKind
	gvr = schema.GroupVersionResource
)

// A lookup is one of the seven methods.
type lookup struct {
	name string
	do   func(meta.RESTMapper, *query) (any, error)
	hit  func(meta.RESTMapper, *query) error // the same, without boxing the answer
}

func lookupOf[T any](name string, ask func(meta.RESTMapper, *query) (T, error)) lookup {
	return lookup{
		name,
		func(m meta.RESTMapper, q *query) (any, error) { return ask(m, q) },
		func(m meta.RESTMapper, q *query) error { _, err := ask(m, q); return err },
	}
}

// lookups are the methods, each with and without a version where that makes a difference.
var lookups = []lookup{
	lookupOf("RESTMapping+version", func(m meta.RESTMapper, q *query) (*meta.RESTMapping, error) {
		return m.RESTMapping(q.gk, q.versions...)
	}),
	lookupOf("RESTMapping", func(m meta.RESTMapper, q *query) (*meta.RESTMapping, error) { return m.RESTMapping(q.gk) }),
	lookupOf("RESTMappings+version", func(m meta.RESTMapper, q *query) ([]*meta.RESTMapping, error) {
		return m.RESTMappings(q.gk, q.versions...)
	}),
	lookupOf("RESTMappings", func(m meta.RESTMapper, q *query) ([]*meta.RESTMapping, error) { return m.RESTMappings(q.gk) }),
	lookupOf("KindFor+version", func(m meta.RESTMapper, q *query) (gvk, error) { return m.KindFor(q.full) }),
	lookupOf("KindFor", func(m meta.RESTMapper, q *query) (gvk, error) { return m.KindFor(q.partial) }),
	lookupOf("KindsFor+version", func(m meta.RESTMapper, q *query) ([]gvk, error) { return m.KindsFor(q.full) }),
	lookupOf("KindsFor", func(m meta.RESTMapper, q *query) ([]gvk, error) { return m.KindsFor(q.partial) }),
	lookupOf("ResourceFor+version", func(m meta.RESTMapper, q *query) (gvr, error) { return m.ResourceFor(q.full) }),
	lookupOf("ResourceFor", func(m meta.RESTMapper, q *query) (gvr, error) { return m.ResourceFor(q.partial) }),
	lookupOf("ResourcesFor+version", func(m meta.RESTMapper, q *query) ([]gvr, error) { return m.ResourcesFor(q.full) }),
	lookupOf("ResourcesFor", func(m meta.RESTMapper, q *query) ([]gvr, error) { return m.ResourcesFor(q.partial) }),
	lookupOf("ResourceSingularizer", func(m meta.RESTMapper, q *query) (string, error) { return m.ResourceSingularizer(q.full.Resource) }),
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
