// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// BenchmarkOnceStorm: 200 goroutines miss the same kind in a known version at once, on a server that takes 20 ms to
// answer. The deferred mapper, which would not ask, is reset by each of them.
func BenchmarkOnceStorm(b *testing.B) {
	forEach(b, []int{100, 500}, func(b *testing.B, groups int, f flavour) {
		e := newEndpoint(groupsOf(groups), nil)
		mapper := f.warmMapper(b, e)
		e.render(b, f.accept)
		e.server.SetLatency(20 * time.Millisecond)
		gate, errs := make(chan struct{}), make([]error, 200)
		var running sync.WaitGroup
		for i := range errs {
			running.Go(func() {
				<-gate
				errs[i] = miss(mapper, schema.GroupKind{Group: e.kind.Group, Kind: "Absent"}, "v1")
			})
		}
		start := time.Now()
		close(gate)
		running.Wait()
		b.ReportMetric(float64(time.Since(start)), "ns/op")
		must(b, errors.Join(errs...))
		e.traffic(b, 1, "", "/op")
	})
}

// BenchmarkOnceCRDs: the first lookup of a program, and one when it has to know what is
// served now (as in BenchmarkRefresh), on a server with as many CRDs as kubernetes/kubernetes#106016
// tells of, and with fewer. Five CRDs have a group.
func BenchmarkOnceCRDs(b *testing.B) {
	for mode, forms := range map[string]fakeapi.Forms{"aggregated": fakeapi.Aggregated(), "legacy": fakeapi.Legacy()} {
		for _, crds := range []int{100, 500, 1900} {
			for _, f := range flavours {
				b.Run(fmt.Sprintf("mode=%s/crds=%d/mapper=%s", mode, crds, f.name), func(b *testing.B) {
					e := newEndpoint(renamed(fakeapi.Typical(crds/5, 1, 5), crds/5), nil)
					e.server.SetForms(forms)
					e.render(b, f.accept)
					mapper := f.newMapper(b, e)
					for _, phase := range []string{"cold-", "warm-"} {
						runtime.GC()
						start := time.Now()
						find(b, mapper, e.kind)
						b.ReportMetric(float64(time.Since(start)), phase+"ns")
						e.traffic(b, 1, phase, "")
						mapper = f.fresh(b, e, mapper)
					}
				})
			}
		}
	}
}

// BenchmarkOnceLatency: how long hits take while nothing else happens ("quiet"),
// and while somebody else asks, twice, for an absent group of a server that takes
// 300 ms to answer ("busy").
func BenchmarkOnceLatency(b *testing.B) {
	forEach(b, []int{100, 500}, func(b *testing.B, groups int, f flavour) {
		e := newEndpoint(groupsOf(groups), nil)
		mapper := f.warmMapper(b, e)
		e.render(b, f.accept)
		b.ReportMetric(p99OfHits(b, e, mapper, 500*time.Millisecond), "quiet-p99-ns")
		e.server.SetLatency(300 * time.Millisecond)
		done := make(chan error, 1)
		go func() {
			first := miss(mapper, absent)
			time.Sleep(50 * time.Millisecond) // those hits that have waited are made now, and others
			done <- errors.Join(first, miss(mapper, absent))
		}()
		b.ReportMetric(p99OfHits(b, e, mapper, 1250*time.Millisecond), "busy-p99-ns") // two discoveries of two requests, and the pause
		must(b, <-done)
		b.ReportMetric(0, "ns/op")
	})
}

// p99OfHits makes hits on a schedule for so long, as a program with work to do. A hit that waits
// delays those behind it. Their time counts from the moment when they were due, so that one long
// wait is not only one sample. It does not sleep: a timer is late by more than a hit takes.
func p99OfHits(b *testing.B, e *endpoint, mapper meta.RESTMapper, length time.Duration) float64 {
	const interval = 500 * time.Microsecond // more than any mapper needs for a hit
	var times []time.Duration
	start := time.Now()
	for due := time.Duration(0); due < length; due += interval {
		begin, waited := due, time.Since(start) > due
		for !waited && time.Since(start) < due {
		}
		if !waited {
			begin = time.Since(start)
		}
		find(b, mapper, e.kind)
		times = append(times, time.Since(start)-begin)
	}
	slices.Sort(times)
	return float64(times[len(times)*99/100])
}

// BenchmarkOnceHeap: what a mapper keeps once the server's documents are gone,
// its HTTP client included. Each has a server of its own, which is closed with it.
func BenchmarkOnceHeap(b *testing.B) {
	count := map[int]int{10: 100, 100: 30, 500: 8, 2000: 4}
	b.Run("mapper_of=own_server", func(b *testing.B) {
		forEach(b, hitSizes, func(b *testing.B, groups int, f flavour) {
			mappers := make([]meta.RESTMapper, count[groups])
			before := heap()
			for i := range mappers {
				e := newEndpoint(renamed(groupsOf(groups), groups), nil)
				mappers[i] = f.warmMapper(b, e)
				e.cut()
			}
			b.ReportMetric((heap()-before)/float64(len(mappers)), "B/mapper")
			runtime.KeepAlive(mappers)
			b.ReportMetric(0, "ns/op")
		})
	})
}

// BenchmarkOnceFleet: 20 mappers on one server, each new one asked once. The second of two
// rounds counts: the first also makes what a process has once.
func BenchmarkOnceFleet(b *testing.B) {
	const further = 19
	forEach(b, []int{100, 500}, func(b *testing.B, groups int, f flavour) {
		for range 2 {
			e := newEndpoint(renamed(groupsOf(groups), groups), nil)
			first, rest := f.warmMapper(b, e), [further]meta.RESTMapper{}
			e.server.TakeRequests() // what the server has noted is not the mappers'
			before := heap()
			for i := range rest {
				rest[i] = f.warmMapper(b, e)
			}
			e.server.TakeRequests()
			b.ReportMetric((heap()-before)/further, "further-B/mapper")
			runtime.KeepAlive(first)
			runtime.KeepAlive(&rest)
		}
		b.ReportMetric(0, "ns/op")
	})
}

// BenchmarkOnceClusters: one process with a mapper for each of many clusters of 300
// groups, 80 % of them equal: the clusters (each fifth has 60 groups of its own),
// or the groups (each cluster has 60 of its own). Clusters are read by two
// goroutines. The other mappers are made for 20 clusters.
func BenchmarkOnceClusters(b *testing.B) {
	const groups, own, batch = 300, 60, 20 // more servers at once would take more memory than all mappers
	for equal, each := range map[string]int{"clusters": 5, "groups": 1} {
		b.Run("equal="+equal, func(b *testing.B) {
			forEach(b, []int{groups}, func(b *testing.B, _ int, f flavour) {
				same, clusters := newEndpoint(groupsOf(groups), nil), batch
				same.render(b, f.accept)
				if f.name == "ours" {
					clusters = 1000
				}
				mappers, before, took := make([]meta.RESTMapper, clusters), heap(), time.Duration(0)
				requests, docBytes := 0.0, 0.0
				for done := 0; done < clusters; done += batch {
					endpoints := [batch]*endpoint{}
					for i := range endpoints {
						if endpoints[i] = newEndpoint(groupsOf(groups), same.server); i%each == 0 {
							endpoints[i] = newEndpoint(renamed(groupsOf(groups), own), nil)
							endpoints[i].render(b, f.accept)
						}
					}
					start := time.Now()
					var running sync.WaitGroup
					for half := range 2 {
						running.Go(func() {
							for i := half; i < batch; i += 2 {
								mappers[done+i] = f.warmMapper(b, endpoints[i])
							}
						})
					}
					running.Wait()
					took += time.Since(start)
					for _, e := range endpoints {
						r, bytes := e.taken()
						requests, docBytes = requests+r, docBytes+bytes
						e.cut()
					}
				}
				b.ReportMetric((heap()-before)/float64(clusters), "B/mapper")
				runtime.KeepAlive(mappers)
				b.ReportMetric(float64(took)/float64(clusters), "cold-ns/mapper")
				b.ReportMetric(requests/float64(clusters), "requests/mapper")
				b.ReportMetric(docBytes/float64(clusters), "doc-B/mapper")
				b.ReportMetric(0, "ns/op")
			})
		})
	}
}
