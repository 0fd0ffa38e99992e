// SPDX-License-Identifier: Apache-2.0

// Package bench compares this project's mapper with controller-runtime's own
// ("stock") and with client-go's deferred mapper on a cache in memory
// ("deferred"), all on the same API server in memory. hack/bench.sh runs it.
//
// The benchmarks are in three families, which want different run times:
// BenchmarkHit and BenchmarkHitParallel are of nanoseconds to a millisecond,
// BenchmarkCold, BenchmarkMiss and BenchmarkRefresh of microseconds to 100 ms,
// and BenchmarkOnce… measure something other than the time of a loop and are run
// once (-benchtime=1x) in a process of their own.
package bench

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	stock "sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

var forked = flag.Bool("fork", false, "this is built on the fork: stock's constructors are its")

// A flavour is one of the mappers that are compared.
type flavour struct {
	name   string
	make   func(cfg *rest.Config, httpClient *http.Client) (meta.RESTMapper, error)
	accept string // the form of the bulk document that it gets
}

const aggregated = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

var flavours = []flavour{
	{"ours", apiutil.NewDynamicRESTMapper, "application/vnd.kubernetes.protobuf" + aggregated},
	{"stock", stock.NewDynamicRESTMapper, "application/json" + aggregated},
	{"deferred", func(cfg *rest.Config, httpClient *http.Client) (meta.RESTMapper, error) {
		client, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, httpClient)
		return restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client)), err
	}, "application/json" + aggregated},
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// newMapper makes a mapper that has read nothing yet.
func (f flavour) newMapper(tb testing.TB, e *endpoint) meta.RESTMapper {
	mapper, err := f.make(&rest.Config{Host: "http://fake.invalid", QPS: -1}, &http.Client{Transport: e})
	must(tb, err)
	return mapper
}

// warmMapper makes a mapper that has read the server.
func (f flavour) warmMapper(tb testing.TB, e *endpoint) meta.RESTMapper {
	mapper := f.newMapper(tb, e)
	find(tb, mapper, e.kind)
	return mapper
}

// fresh makes the mapper's next answer come from the server, and returns the
// mapper to ask: a new one where the mapper cannot be reset.
func (f flavour) fresh(tb testing.TB, e *endpoint, mapper meta.RESTMapper) meta.RESTMapper {
	resettable, ok := mapper.(meta.ResettableRESTMapper)
	if !ok {
		return f.newMapper(tb, e)
	}
	resettable.Reset()
	return mapper
}

// miss looks up a kind that is not served, and expects a NoMatch that comes
// from the server. The deferred mapper returns NoMatch without a request, so it has
// to be reset first.
func miss(mapper meta.RESTMapper, gk schema.GroupKind, versions ...string) error {
	if deferred, ok := mapper.(*restmapper.DeferredDiscoveryRESTMapper); ok {
		deferred.Reset()
	}
	_, err := mapper.RESTMapping(gk, versions...)
	if !meta.IsNoMatchError(err) {
		return fmt.Errorf("%v: got %w, want no match", gk, cmp.Or(err, errors.New("a mapping")))
	}
	return nil
}

func find(tb testing.TB, mapper meta.RESTMapper, gk schema.GroupKind) {
	tb.Helper()
	_, err := mapper.RESTMapping(gk)
	must(tb, err)
}

// An endpoint is the way of one program to an API server. It can be cut: then the mapper keeps
// only what it has made of the server's documents, and a refresh that comes later gets an error.
type endpoint struct {
	server *fakeapi.Server
	kind   schema.GroupKind // one that is served
	to     atomic.Pointer[http.RoundTripper]
}

// newEndpoint leads to a server, or with nil to a new one.
func newEndpoint(groups []fakeapi.Group, server *fakeapi.Server) *endpoint {
	last := groups[len(groups)-1]
	e := &endpoint{server: server, kind: schema.GroupKind{Group: last.Name, Kind: last.Versions[0].Resources[0].Kind}}
	if server == nil {
		e.server = fakeapi.New(groups...)
	}
	e.to.Store(&e.server.Client().Transport)
	return e
}

// RoundTrip implements http.RoundTripper.
func (e *endpoint) RoundTrip(req *http.Request) (*http.Response, error) {
	if to := e.to.Load(); to != nil {
		return (*to).RoundTrip(req)
	}
	return nil, errors.New("the benchmark has cut the line to the server")
}

func (e *endpoint) cut() {
	e.to.Store(nil)
	e.server = nil
}

// render makes the server write its bulk documents, which takes longer than
// anything that is measured here. Then it forgets the requests so far, and the garbage goes.
func (e *endpoint) render(tb testing.TB, accept string) {
	for _, path := range []string{"/api", "/apis"} {
		req, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, "http://fake.invalid"+path, nil)
		must(tb, err)
		req.Header.Set("Accept", accept)
		resp, err := e.RoundTrip(req)
		must(tb, err)
		_ = resp.Body.Close()
	}
	e.server.TakeRequests()
	runtime.GC()
}

// taken returns how many requests for what is served there were since the last call, and how many
// bytes of documents they brought.
func (e *endpoint) taken() (requests, docBytes float64) {
	for _, r := range e.server.TakeRequests() {
		if r.Verb == "" {
			requests, docBytes = requests+1, docBytes+float64(r.BodyBytes)
		}
	}
	return requests, docBytes
}

// traffic reports what was taken, for each of n.
func (e *endpoint) traffic(b *testing.B, n float64, prefix, per string) {
	requests, docBytes := e.taken()
	b.ReportMetric(requests/n, prefix+"requests"+per)
	b.ReportMetric(docBytes/n, prefix+"doc-B"+per)
}

// groupsOf describes a server with 2 versions and 3 kinds in each group.
func groupsOf(n int) []fakeapi.Group { return fakeapi.Typical(n, 2, 3) }

var unique int

// renamed gives the last n groups names that this process has not seen, so that no mapper profits from
// what another one has read. Sizes stay the same.
func renamed(groups []fakeapi.Group, n int) []fakeapi.Group {
	unique++
	for i := len(groups) - n; i < len(groups); i++ {
		groups[i].Name = strings.Replace(groups[i].Name, "example", fmt.Sprintf("%07d", unique), 1)
	}
	return groups
}

// forEach runs a benchmark for every number of groups and every flavour, the
// flavours next to each other.
func forEach(b *testing.B, sizes []int, run func(b *testing.B, groups int, f flavour)) {
	for _, groups := range sizes {
		for _, f := range flavours {
			b.Run(fmt.Sprintf("groups=%d/mapper=%s", groups, f.name), func(b *testing.B) { run(b, groups, f) })
		}
	}
}

// heap returns the heap in use, without garbage and without what only weak pointers
// lead to.
func heap() float64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}

// TestSameAnswers makes sure that the benchmarks compare like with like.
func TestSameAnswers(t *testing.T) {
	e := newEndpoint(groupsOf(30), nil)
	for _, f := range flavours[1:] {
		ours, theirs := flavours[0].warmMapper(t, e), f.warmMapper(t, e)
		for _, l := range lookups {
			for _, q := range queriesOf(30) {
				got, err := l.do(ours, &q)
				if want, wrong := l.do(theirs, &q); err != nil || wrong != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("%s(%v): ours says %v, %v; %s says %v, %v", l.name, q.full, got, err, f.name, want, wrong)
				}
			}
		}
	}
}
