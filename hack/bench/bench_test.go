// SPDX-License-Identifier: Apache-2.0

// Package bench compares this project's mapper with controller-runtime's own ("stock") and with client-go's deferred
// mapper on a cache in memory ("deferred"), all on the same API server in memory. hack/bench.sh runs it.
//
// The benchmarks are in three families, which want different run times: BenchmarkHit and BenchmarkHitParallel are of
// nanoseconds to a millisecond, BenchmarkCold, BenchmarkMiss and BenchmarkRefresh of microseconds to 100 ms, and
// BenchmarkOnce… measure something other than the time of a loop and are run once (-benchtime=1x) in a process of their
// own.
package bench

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"reflect"
	"runtime"
	"slices"
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

// miss looks up a kind that is not served, and expects a NoMatch that comes from the server. The deferred mapper
// returns NoMatch without a request, so it has to be reset first.
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

func (e *endpoint) traffic(b *testing.B, n float64, prefix, per string) {
	requests, docBytes := e.taken()
	b.ReportMetric(requests/n, prefix+"requests"+per)
	b.ReportMetric(docBytes/n, prefix+"doc-B"+per)
}

const versionsOfGroup = 2

// groupsOf describes a server with 3 kinds in each version of a group.
func groupsOf(n int) []fakeapi.Group { return fakeapi.Typical(n, versionsOfGroup, 3) }

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

// forEach runs a benchmark for every number of groups and every flavour, the flavours next to each other.
func forEach(b *testing.B, sizes []int, run func(b *testing.B, groups int, f flavour)) {
	for _, groups := range sizes {
		for _, f := range flavours {
			b.Run(fmt.Sprintf("groups=%d/mapper=%s", groups, f.name), func(b *testing.B) { run(b, groups, f) })
		}
	}
}

// heap returns the heap in use, without garbage and without what only weak pointers lead to.
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

const queryCount = 16 // a power of two

// queriesOf picks kinds from all over the server. How fast a single kind is found would depend on luck.
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

// floor is the least that a lookup can do: it finds the kind in one map and copies the mappings that it hands out.
type floor struct {
	one map[schema.GroupKind]*meta.RESTMapping
	all map[schema.GroupKind]*[versionsOfGroup]meta.RESTMapping
}

// newFloor has the kinds of the groups, as a mapper knows them.
func newFloor(b *testing.B, groups int, mapper meta.RESTMapper) floor {
	f := floor{
		one: map[schema.GroupKind]*meta.RESTMapping{},
		all: map[schema.GroupKind]*[versionsOfGroup]meta.RESTMapping{},
	}
	for _, g := range groupsOf(groups) {
		for _, r := range g.Versions[0].Resources {
			gk := schema.GroupKind{Group: g.Name, Kind: r.Kind}
			mappings, err := mapper.RESTMappings(gk)
			must(b, err)
			f.one[gk], f.all[gk] = mappings[0], new([versionsOfGroup]meta.RESTMapping)
			for i, mapping := range mappings {
				f.all[gk][i] = *mapping
			}
		}
	}
	return f
}

//go:noinline
func (f floor) find(gk schema.GroupKind) *meta.RESTMapping {
	found, ok := f.one[gk]
	if !ok {
		return nil
	}
	mapping := *found
	return &mapping
}

// findAll allocates once: the list and the mappings that it points to.
//
//go:noinline
func (f floor) findAll(gk schema.GroupKind) []*meta.RESTMapping {
	found, ok := f.all[gk]
	if !ok {
		return nil
	}
	var copied struct {
		list     [versionsOfGroup]*meta.RESTMapping
		mappings [versionsOfGroup]meta.RESTMapping
	}
	copied.mappings = *found
	for i := range copied.mappings {
		copied.list[i] = &copied.mappings[i]
	}
	return copied.list[:]
}

// BenchmarkHit: lookups of known kinds, one goroutine.
func BenchmarkHit(b *testing.B) {
	benchmarkHits(b, func(b *testing.B, hit func(n int) error) {
		for n := 0; b.Loop(); n++ {
			if err := hit(n); err != nil { // must would take as long as a hit
				b.Fatal(err)
			}
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
		e, queries := newEndpoint(groupsOf(groups), nil), queriesOf(groups)
		mappers := make([]meta.RESTMapper, len(flavours))
		for i, f := range flavours {
			mappers[i] = f.warmMapper(b, e)
		}
		bare := newFloor(b, groups, mappers[0])
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
		each("floor-of-a-list", "floor", func(q *query) error {
			if bare.findAll(q.gk) == nil {
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

// BenchmarkCold: a new mapper and its first answer, in a process that knows nothing of the server.
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

// change gives one of the typical groups a kind that it never had before, in place of the last such kind.
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
