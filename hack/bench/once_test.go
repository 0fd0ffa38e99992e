// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// heap returns the heap in use, without garbage and without what only weak pointers
// lead to.
func heap() float64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}

// BenchmarkOnceHeap: what a mapper keeps once the server's documents are gone,
// its HTTP client included. Each has a server of its own, which is closed with it.
func BenchmarkOnceHeap(b *testing.B) {
	count := map[int]int{10: 100, 100: 30, 500: 8, 2000: 4}
	b.Run("mapper_of=own_server", func(b *testing.B) {
		forEach(b, hitSizes, func(b *testing.B, groups int, f flavour) {
			for b.Loop() {
				mappers := make([]meta.RESTMapper, count[groups])
				before := heap()
				for i := range mappers {
					e := newEndpoint(uniqueGroupsOf(groups))
					mappers[i] = f.warmMapper(b, e)
					e.server.TakeRequests()
					e.hangUp()
				}
				after := heap()
				runtime.KeepAlive(mappers)
				b.ReportMetric((after-before)/float64(len(mappers)), "B/mapper")
			}
			b.ReportMetric(0, "ns/op")
		})
	})
}

// BenchmarkOnceFleet: 20 mappers on one server, each new one asked once. The second of two
// rounds counts: the first also makes what a process has once.
func BenchmarkOnceFleet(b *testing.B) {
	const further = 19
	forEach(b, []int{100, 500}, func(b *testing.B, groups int, f flavour) {
		for range 2 * b.N {
			e := newEndpoint(uniqueGroupsOf(groups))
			first := f.warmMapper(b, e)
			e.server.TakeRequests() // what the server has noted is not the mappers'
			before := heap()
			var rest [further]meta.RESTMapper
			for i := range rest {
				rest[i] = f.warmMapper(b, e)
			}
			e.server.TakeRequests()
			after := heap()
			runtime.KeepAlive(first)
			runtime.KeepAlive(&rest)
			b.ReportMetric((after-before)/further, "further-B/mapper")
		}
		b.ReportMetric(0, "ns/op")
	})
}

// latency is what the server takes to answer lookups that are made at once. The unit
// "latencies" is multiples of it.
const latency = 20 * time.Millisecond

// BenchmarkOnceStorm: 200 goroutines miss the same kind in a known version at once. The
// deferred mapper, which would not ask, is reset by each of them.
func BenchmarkOnceStorm(b *testing.B) {
	forEach(b, []int{100, 500}, func(b *testing.B, groups int, f flavour) {
		f.atOnce(b, newEndpoint(groupsOf(groups)), 200, func(mapper meta.RESTMapper, e *endpoint, _ int) error {
			return askAbsent(mapper, schema.GroupKind{Group: e.kind.Group, Kind: "Absent"}, "v1")
		})
	})
}

// BenchmarkOnceApart: 10 lookups at once in 10 groups that the server does not have.
func BenchmarkOnceApart(b *testing.B) {
	for mode, forms := range map[string]fakeapi.Forms{"aggregated": fakeapi.Aggregated(), "legacy": fakeapi.Legacy()} {
		for version, versions := range map[string][]string{"none": nil, "given": {"v1"}} {
			b.Run(fmt.Sprintf("mode=%s/version=%s", mode, version), func(b *testing.B) {
				forEach(b, []int{100}, func(b *testing.B, groups int, f flavour) {
					e := newEndpoint(groupsOf(groups))
					e.server.SetForms(forms)
					f.atOnce(b, e, 10, func(mapper meta.RESTMapper, _ *endpoint, i int) error {
						return askAbsent(mapper, schema.GroupKind{Group: fmt.Sprintf("absent%d.example.com", i), Kind: "Absent"}, versions...)
					})
				})
			})
		}
	}
}

// BenchmarkOnceCRDs: the first lookup of a program, and one when it has to know what is
// served now (as in BenchmarkRefresh), on a server with as many CRDs as kubernetes/kubernetes#106016
// tells of, and with fewer. Five CRDs have a group.
func BenchmarkOnceCRDs(b *testing.B) {
	for mode, forms := range map[string]fakeapi.Forms{"aggregated": fakeapi.Aggregated(), "legacy": fakeapi.Legacy()} {
		for _, crds := range []int{100, 500, 1900} {
			for _, f := range flavours {
				b.Run(fmt.Sprintf("mode=%s/crds=%d/mapper=%s", mode, crds, f.name), func(b *testing.B) {
					e := newEndpoint(renamed(fakeapi.Typical(crds/5, 1, 5)))
					e.server.SetForms(forms)
					e.render(b, f.accept)
					mapper := f.newMapper(b, e)
					for b.Loop() {
						for _, phase := range []string{"cold", "warm"} {
							runtime.GC()
							start := time.Now()
							mustFind(b, mapper, e.kind)
							b.ReportMetric(float64(time.Since(start)), phase+"-ns")
							requests, docBytes := e.traffic()
							b.ReportMetric(float64(requests), phase+"-requests")
							b.ReportMetric(float64(docBytes), phase+"-B")
							mapper = f.fresh(b, e, mapper)
						}
					}
				})
			}
		}
	}
}

// atOnce measures n lookups at once of a warm mapper.
func (f flavour) atOnce(b *testing.B, e *endpoint, n int, ask func(mapper meta.RESTMapper, e *endpoint, i int) error) {
	for b.Loop() {
		b.StopTimer()
		e.server.SetLatency(0)
		mapper := f.warmMapper(b, e)
		e.render(b, f.accept)
		e.server.SetLatency(latency)
		gate, errs := make(chan struct{}), make([]error, n)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				<-gate
				errs[i] = ask(mapper, e, i)
			})
		}
		b.StartTimer()
		start := time.Now()
		close(gate)
		wg.Wait()
		took := time.Since(start)
		b.StopTimer()
		if err := errors.Join(errs...); err != nil {
			b.Fatal(err)
		}
		requests, docBytes := e.traffic()
		b.ReportMetric(float64(took)/float64(latency), "latencies")
		b.ReportMetric(float64(requests), "requests/op")
		b.ReportMetric(float64(docBytes), "doc-B/op")
		b.StartTimer()
	}
}
