// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// The benchmarks of this file measure how much lookups in other groups slow down a
// lookup in one group. The server takes latency to answer. The unit "latencies" is
// multiples of it.
const latency = 20 * time.Millisecond

// modes are the forms of a server's documents.
var modes = []struct {
	name  string
	forms fakeapi.Forms
}{
	{"aggregated", fakeapi.Aggregated()},
	{"legacy", fakeapi.Legacy()},
}

// asked are the ways to ask for a kind.
var asked = []struct {
	name     string
	versions []string
}{
	{"none", nil},
	{"given", []string{"v1"}},
}

// speak sets the forms in which the server writes its documents. Call it before all
// requests.
func (e *endpoint) speak(forms fakeapi.Forms) *endpoint {
	e.server.SetForms(forms)
	return e
}

// BenchmarkOnceApart: 10 lookups at once in 10 groups that the server does not have.
func BenchmarkOnceApart(b *testing.B) {
	const absent = 10
	for _, mode := range modes {
		for _, ask := range asked {
			b.Run(fmt.Sprintf("mode=%s/version=%s", mode.name, ask.name), func(b *testing.B) {
				forEach(b, []int{100}, func(b *testing.B, groups int, f flavour) {
					for b.Loop() {
						b.StopTimer()
						e := newEndpoint(groupsOf(groups)).speak(mode.forms)
						mapper := f.warmMapper(b, e)
						e.render(b, f.accept)
						e.server.SetLatency(latency)
						kinds := make(chan schema.GroupKind, absent)
						for i := range absent {
							kinds <- schema.GroupKind{Group: fmt.Sprintf("absent%d.example.com", i), Kind: "Absent"}
						}
						b.StartTimer()
						start := time.Now()
						if err := atOnce(absent, func() error { return askAbsent(mapper, <-kinds, ask.versions...) }); err != nil {
							b.Fatal(err)
						}
						b.ReportMetric(float64(time.Since(start))/float64(latency), "latencies")
						b.StopTimer()
						reportTraffic(b, e)
						b.StartTimer()
					}
				})
			})
		}
	}
}

func reportTraffic(b *testing.B, e *endpoint) {
	requests, docBytes := e.traffic()
	b.ReportMetric(float64(requests), "requests/op")
	b.ReportMetric(float64(docBytes), "doc-B/op")
}

// hangs is how long a group that hangs keeps a request. It is short, because some
// mappers make all lookups wait for it, and they must be measured, too.
const hangs = 250 * time.Millisecond

// hang makes groups hang.
func (e *endpoint) hang(groups ...string) {
	e.server.SetFault(fakeapi.InGroup(groups...), fakeapi.Func("Hang", func(req *http.Request) (*http.Response, error) {
		select {
		case <-time.After(hangs):
			return nil, context.DeadlineExceeded
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}))
}

// BenchmarkOnceBeside: a lookup of what one group does not have, alone
// ("undisturbed"), and while another group hangs and three goroutines ask for
// something there again and again ("disturbed").
func BenchmarkOnceBeside(b *testing.B) {
	for _, ask := range asked {
		b.Run("version="+ask.name, func(b *testing.B) {
			forEach(b, []int{100}, func(b *testing.B, groups int, f flavour) {
				for b.Loop() {
					e := newEndpoint(groupsOf(groups))
					mapper := f.warmMapper(b, e)
					e.render(b, f.accept)
					e.server.SetLatency(latency)
					missing := schema.GroupKind{Group: e.kind.Group, Kind: "Absent"}
					b.ReportMetric(missTime(b, mapper, missing, ask.versions), "undisturbed-ns")

					other := groupsOf(groups)[1].Name
					e.hang(other)
					stop := askOnAndOn(3, func() {
						_, _ = mapper.RESTMapping(schema.GroupKind{Group: other, Kind: "Absent"}, ask.versions...)
					})
					b.ReportMetric(missTime(b, mapper, missing, ask.versions), "disturbed-ns")
					stop()
				}
				b.ReportMetric(0, "ns/op")
			})
		})
	}
}

// missTime is the median of a few lookups, one after the other.
func missTime(b *testing.B, mapper meta.RESTMapper, gk schema.GroupKind, versions []string) float64 {
	times := make([]time.Duration, 5)
	for i := range times {
		start := time.Now()
		if err := askAbsent(mapper, gk, versions...); err != nil {
			b.Fatal(err)
		}
		times[i] = time.Since(start)
	}
	slices.Sort(times)
	return float64(times[len(times)/2])
}

// askOnAndOn has n goroutines ask until stop, which waits for them, is called. It
// returns when all of them have had the time to send their first request.
func askOnAndOn(n int, ask func()) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					ask()
				}
			}
		})
	}
	time.Sleep(latency)
	return func() { close(done); wg.Wait() }
}

// BenchmarkOnceReset: the first lookup of a known kind after a Reset, while three
// groups hang that were in use; for stock, which cannot be reset, of a new mapper.
func BenchmarkOnceReset(b *testing.B) {
	for _, mode := range modes {
		b.Run("mode="+mode.name, func(b *testing.B) {
			forEach(b, []int{100}, func(b *testing.B, groups int, f flavour) {
				for b.Loop() {
					b.StopTimer()
					e := newEndpoint(groupsOf(groups)).speak(mode.forms)
					mapper := f.warmMapper(b, e)
					inUse := groupsOf(groups)[1:4]
					for _, g := range inUse {
						mustFind(b, mapper, schema.GroupKind{Group: g.Name, Kind: g.Versions[0].Resources[0].Kind}, "v1")
					}
					e.render(b, f.accept)
					e.server.SetLatency(latency)
					e.hang(inUse[0].Name, inUse[1].Name, inUse[2].Name)
					b.StartTimer()
					start := time.Now()
					mustFind(b, f.fresh(b, e, mapper), e.kind, "v1")
					b.ReportMetric(float64(time.Since(start))/float64(latency), "latencies")
					b.StopTimer()
					time.Sleep(2 * latency) // for requests that nobody waits for
					reportTraffic(b, e)
					b.StartTimer()
				}
			})
		})
	}
}
