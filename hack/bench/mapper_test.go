// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

type (
	gvk = schema.GroupVersionKind
	gvr = schema.GroupVersionResource
)

var hitSizes = []int{10, 100, 500, 2000}

// A query is about one kind that is served.
type query struct {
	gk       schema.GroupKind
	versions []string
	full     gvr
	partial  gvr // without the version
}

// queryCount is a power of two.
const queryCount = 16

// queriesOf picks kinds from all over the server. How fast a single kind is found
// would depend on luck.
func queriesOf(groups int) (queries [queryCount]query) {
	typical := groupsOf(groups)[1:] // without the core group
	for i := range queries {
		group := typical[i*len(typical)/queryCount]
		version := group.Versions[i%len(group.Versions)]
		resource := version.Resources[i%len(version.Resources)]
		queries[i] = query{
			gk:       schema.GroupKind{Group: group.Name, Kind: resource.Kind},
			versions: []string{version.Name},
			full:     gvr{Group: group.Name, Version: version.Name, Resource: resource.Name},
			partial:  gvr{Group: group.Name, Resource: resource.Name},
		}
	}
	return queries
}

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
				Resource:         gvr{Group: g.Name, Version: v.Name, Resource: r.Name},
				GroupVersionKind: gvk{Group: g.Name, Version: v.Name, Kind: r.Kind},
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

// BenchmarkHit: lookups of known kinds, one goroutine.
func BenchmarkHit(b *testing.B) {
	benchmarkHits(b, func(b *testing.B, hit func(n int) error) {
		for n := 0; b.Loop(); n++ {
			must(b, hit(n))
		}
	})
}

// BenchmarkHitParallel: the same, as many goroutines as processors.
func BenchmarkHitParallel(b *testing.B) {
	benchmarkHits(b, func(b *testing.B, hit func(n int) error) {
		b.RunParallel(func(pb *testing.PB) {
			for n := 0; pb.Next(); n++ {
				if err := hit(n); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}

func benchmarkHits(b *testing.B, run func(b *testing.B, hit func(n int) error)) {
	for _, groups := range hitSizes {
		e, bare, queries := newEndpoint(groupsOf(groups), nil), newFloor(groups), queriesOf(groups)
		mappers := make([]meta.RESTMapper, len(flavours))
		for i, f := range flavours {
			mappers[i] = f.warmMapper(b, e)
		}
		e.cut()
		// The garbage collector runs as in a program of ordinary size, and not after
		// every 40,000 lookups; and memory that it has not used yet is not measured.
		ballast := make([]byte, 16<<20)
		for range 1 << 19 {
			bare.find(e.kind)
		}
		each := func(lookup, mapper string, hit func(q *query) error) {
			b.Run(fmt.Sprintf("groups=%d/lookup=%s/mapper=%s", groups, lookup, mapper), func(b *testing.B) {
				b.ReportAllocs()
				run(b, func(n int) error { return hit(&queries[n%queryCount]) })
			})
		}
		each("floor", "floor", func(q *query) error {
			if bare.find(q.gk) == nil {
				return errors.New("not in the map")
			}
			return nil
		})
		for _, l := range lookups {
			for i, f := range flavours {
				each(l.name, f.name, func(q *query) error { return l.hit(mappers[i], q) })
			}
		}
		runtime.KeepAlive(ballast)
	}
}

var absent = schema.GroupKind{Group: "absent.example.com", Kind: "Absent"}

// BenchmarkCold: a new mapper and its first answer, in a process that knows
// nothing of the server.
func BenchmarkCold(b *testing.B) {
	forEach(b, []int{10, 100, 500}, func(b *testing.B, groups int, f flavour) {
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			e := newEndpoint(renamed(groupsOf(groups), groups), nil)
			e.render(b, f.accept)
			b.StartTimer()
			find(b, f.newMapper(b, e), e.kind)
		}
	})
}

// BenchmarkMiss: a lookup in a group that the server does not have; also while the
// API service of another group is down. A mapper that then says something else is left out.
func BenchmarkMiss(b *testing.B) {
	for _, of := range []struct {
		name     string
		down     bool
		versions []string
	}{{"version=none", false, nil}, {"version=given", false, []string{"v1"}}, {"beside=outage", true, nil}} {
		b.Run(of.name, func(b *testing.B) {
			forEach(b, []int{10, 100, 500, 2000}, func(b *testing.B, groups int, f flavour) {
				b.ReportAllocs()
				all := groupsOf(groups)
				if of.down {
					down := &all[groups/2].Versions[0]
					down.Stale, down.Resources = true, nil
				}
				e := newEndpoint(all, nil)
				mapper := f.warmMapper(b, e)
				e.render(b, f.accept)
				if err := miss(mapper, absent, of.versions...); of.down && err != nil {
					b.Skip(err)
				}
				e.server.TakeRequests()
				for b.Loop() {
					must(b, miss(mapper, absent, of.versions...))
				}
				e.traffic(b, float64(b.N), "", "/op")
			})
		})
	}
}

// BenchmarkRefresh: Reset and a lookup; for stock, which cannot be reset, a new
// mapper and a lookup. One group may have changed.
func BenchmarkRefresh(b *testing.B) {
	for _, changed := range []string{"none", "one"} {
		b.Run("changed="+changed, func(b *testing.B) {
			forEach(b, []int{10, 100, 500}, func(b *testing.B, groups int, f flavour) {
				b.ReportAllocs()
				e := newEndpoint(groupsOf(groups), nil)
				mapper, wanted := f.warmMapper(b, e), e.kind
				e.server.TakeRequests()
				for b.Loop() {
					if changed == "one" {
						b.StopTimer()
						wanted = e.change(groups / 2)
						e.render(b, f.accept)
						b.StartTimer()
					}
					mapper = f.fresh(b, e, mapper)
					find(b, mapper, wanted)
					if changed == "one" {
						b.StopTimer()
						e.traffic(b, 1, "", "/op")
						b.StartTimer()
					}
				}
				if changed == "none" {
					e.traffic(b, float64(b.N), "", "/op")
				}
			})
		})
	}
}

// change gives one of the typical groups a kind that it never had before, in
// place of the last such kind.
func (e *endpoint) change(n int) schema.GroupKind {
	unique++
	group := groupsOf(n)[n]
	extra := fmt.Sprintf("Extra%07d", unique)
	resource := fakeapi.Resource{Name: strings.ToLower(extra) + "s", Singular: strings.ToLower(extra), Kind: extra, Namespaced: true}
	for i := range group.Versions {
		v := &group.Versions[i]
		v.Resources = append(slices.Clone(v.Resources), resource)
	}
	e.server.Put(group)
	return schema.GroupKind{Group: group.Name, Kind: extra}
}
