// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

var (
	discoverySizes = []int{10, 100, 500}
	missSizes      = []int{10, 100, 500, 2000}
)

// BenchmarkCold: a new mapper and its first answer, in a process that knows
// nothing of the server.
func BenchmarkCold(b *testing.B) {
	forEach(b, discoverySizes, func(b *testing.B, groups int, f flavour) {
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			e := newEndpoint(uniqueGroupsOf(groups))
			e.render(b, f.accept)
			runtime.GC() // what it took to make the server is not to be cleared up below
			b.StartTimer()
			mustFind(b, f.newMapper(b, e), e.kind)
		}
	})
}

// BenchmarkMiss: a lookup in a group that the server does not have.
func BenchmarkMiss(b *testing.B) {
	b.Run("version=none", func(b *testing.B) { benchmarkMiss(b) })
	b.Run("version=given", func(b *testing.B) { benchmarkMiss(b, "v1") })
}

func benchmarkMiss(b *testing.B, versions ...string) {
	forEach(b, missSizes, func(b *testing.B, groups int, f flavour) {
		b.ReportAllocs()
		e := newEndpoint(groupsOf(groups))
		mapper := f.warmMapper(b, e)
		e.render(b, f.accept)
		n := 0
		for b.Loop() {
			if err := askAbsent(mapper, absentGroup, versions...); err != nil {
				b.Fatal(err)
			}
			n++
		}
		requests, docBytes := e.traffic()
		b.ReportMetric(float64(requests)/float64(n), "requests/op")
		b.ReportMetric(float64(docBytes)/float64(n), "doc-B/op")
	})
}

// BenchmarkRefresh: Reset and a lookup; for stock, which cannot be reset, a new
// mapper and a lookup.
func BenchmarkRefresh(b *testing.B) {
	for _, changed := range []string{"none", "one"} {
		b.Run("changed="+changed, func(b *testing.B) {
			forEach(b, discoverySizes, func(b *testing.B, groups int, f flavour) {
				b.ReportAllocs()
				e := newEndpoint(groupsOf(groups))
				mapper, wanted := f.warmMapper(b, e), e.kind
				e.server.TakeRequests()
				n, requests, docBytes := 0, 0, 0
				for b.Loop() {
					if changed == "one" {
						b.StopTimer()
						wanted = e.change(groups / 2)
						e.render(b, f.accept)
						runtime.GC()
						b.StartTimer()
					}
					mapper = f.fresh(b, e, mapper)
					mustFind(b, mapper, wanted)
					if n++; changed == "one" {
						r, bytes := e.traffic()
						requests, docBytes = requests+r, docBytes+bytes
					}
				}
				r, bytes := e.traffic()
				b.ReportMetric(float64(requests+r)/float64(n), "requests/op")
				b.ReportMetric(float64(docBytes+bytes)/float64(n), "doc-B/op")
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
