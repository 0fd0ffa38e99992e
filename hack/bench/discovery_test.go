// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

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

// latency is what the server takes to answer lookups that are made at once. The unit
// "latencies" is multiples of it.
const latency = 20 * time.Millisecond

// BenchmarkOnceStorm: 200 goroutines miss the same kind in a known version at once. The
// deferred mapper, which would not ask, is reset by each of them.
func BenchmarkOnceStorm(b *testing.B) {
	forEach(b, []int{100, 500}, func(b *testing.B, groups int, f flavour) {
		f.atOnce(b, fakeapi.Aggregated(), groups, 200, func(mapper meta.RESTMapper, e *endpoint, _ int) error {
			return miss(mapper, schema.GroupKind{Group: e.kind.Group, Kind: "Absent"}, "v1")
		})
	})
}

var modes = map[string]fakeapi.Forms{"aggregated": fakeapi.Aggregated(), "legacy": fakeapi.Legacy()}

// BenchmarkOnceApart: 10 lookups at once in 10 groups that the server does not have.
func BenchmarkOnceApart(b *testing.B) {
	for mode, forms := range modes {
		for version, versions := range map[string][]string{"none": nil, "given": {"v1"}} {
			b.Run("mode="+mode+"/version="+version, func(b *testing.B) {
				forEach(b, []int{100}, func(b *testing.B, groups int, f flavour) {
					f.atOnce(b, forms, groups, 10, func(mapper meta.RESTMapper, _ *endpoint, i int) error {
						return miss(mapper, schema.GroupKind{Group: fmt.Sprintf("absent%d.example.com", i), Kind: "Absent"}, versions...)
					})
				})
			})
		}
	}
}

// atOnce measures n lookups at once of a warm mapper.
func (f flavour) atOnce(b *testing.B, forms fakeapi.Forms, groups, n int, ask func(mapper meta.RESTMapper, e *endpoint, i int) error) {
	e := newEndpoint(groupsOf(groups), nil)
	e.server.SetForms(forms)
	mapper := f.warmMapper(b, e)
	e.render(b, f.accept)
	e.server.SetLatency(latency)
	gate, errs := make(chan struct{}), make([]error, n)
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() {
			<-gate
			errs[i] = ask(mapper, e, i)
		})
	}
	start := time.Now()
	close(gate)
	running.Wait()
	b.ReportMetric(float64(time.Since(start)), "ns/op")
	b.ReportMetric(float64(time.Since(start))/float64(latency), "latencies")
	must(b, errors.Join(errs...))
	e.traffic(b, 1, "", "/op")
}

// BenchmarkOnceCRDs: the first lookup of a program, and one when it has to know what is
// served now (as in BenchmarkRefresh), on a server with as many CRDs as kubernetes/kubernetes#106016
// tells of, and with fewer. Five CRDs have a group.
func BenchmarkOnceCRDs(b *testing.B) {
	for mode, forms := range modes {
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
