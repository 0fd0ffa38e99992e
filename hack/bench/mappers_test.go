// SPDX-License-Identifier: Apache-2.0

// Package bench compares this project's mapper with controller-runtime's own
// ("stock") and with client-go's deferred mapper on a cache in memory
// ("deferred"), all on the same API server in memory. hack/bench.sh runs it.
//
// The benchmarks are in three families, which want different run times:
// Benchmark{Floor,Hit,HitParallel} are of nanoseconds to a millisecond,
// BenchmarkPublish, BenchmarkCold, BenchmarkMiss and BenchmarkRefresh of
// microseconds to 100 ms, and BenchmarkOnce… measure something other than the
// time of a loop and are run once (-benchtime=1x) in a process of their own.
package bench

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
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

// A flavour is one of the mappers that are compared.
type flavour struct {
	name   string
	make   func(cfg *rest.Config, httpClient *http.Client) (meta.RESTMapper, error)
	accept string // the form of the bulk document that it gets
}

const (
	aggregatedJSON     = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	aggregatedProtobuf = "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
)

var flavours = []flavour{
	{"ours", apiutil.NewDynamicRESTMapper, aggregatedProtobuf},
	{"stock", stock.NewDynamicRESTMapper, aggregatedJSON},
	{"deferred", newDeferred, aggregatedJSON},
}

func newDeferred(cfg *rest.Config, httpClient *http.Client) (meta.RESTMapper, error) {
	client, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, err
	}
	return restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client)), nil
}

// newMapper makes a mapper that has read nothing yet.
func (f flavour) newMapper(tb testing.TB, e *endpoint) meta.RESTMapper {
	tb.Helper()
	mapper, err := f.make(&rest.Config{Host: "http://fake.invalid", QPS: -1}, e.client)
	if err != nil {
		tb.Fatal(err)
	}
	return mapper
}

// warmMapper makes a mapper that has read the server.
func (f flavour) warmMapper(tb testing.TB, e *endpoint) meta.RESTMapper {
	tb.Helper()
	mapper := f.newMapper(tb, e)
	mustFind(tb, mapper, e.kind)
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

// askAbsent looks up a kind that is not served, and expects a NoMatch that comes
// from the server. The deferred mapper returns NoMatch without a request, so it has
// to be reset first.
func askAbsent(mapper meta.RESTMapper, gk schema.GroupKind, versions ...string) error {
	if deferred, ok := mapper.(*restmapper.DeferredDiscoveryRESTMapper); ok {
		deferred.Reset()
	}
	_, err := mapper.RESTMapping(gk, versions...)
	if !meta.IsNoMatchError(err) {
		return fmt.Errorf("%v: got %w, want no match", gk, cmp.Or(err, errors.New("a mapping")))
	}
	return nil
}

func mustFind(tb testing.TB, mapper meta.RESTMapper, gk schema.GroupKind, versions ...string) {
	tb.Helper()
	if _, err := mapper.RESTMapping(gk, versions...); err != nil {
		tb.Fatal(err)
	}
}

// An endpoint is an API server and the HTTP client of one program that talks to it.
type endpoint struct {
	server *fakeapi.Server
	client *http.Client
	kind   schema.GroupKind // one that is served
	line   *line
}

// line is a connection that can be cut. A mapper keeps its client; once the line is
// cut, the client no longer keeps the server's documents in memory. A mapper that
// refreshes later, by MaxAge, gets an error.
type line struct {
	to atomic.Pointer[http.RoundTripper]
}

func (l *line) RoundTrip(req *http.Request) (*http.Response, error) {
	if to := l.to.Load(); to != nil {
		return (*to).RoundTrip(req)
	}
	return nil, errors.New("the benchmark has cut the line to the server")
}

func newEndpoint(groups []fakeapi.Group) *endpoint {
	last := groups[len(groups)-1]
	return newEndpointOf(fakeapi.New(groups...), schema.GroupKind{Group: last.Name, Kind: last.Versions[0].Resources[0].Kind})
}

// newEndpointOf makes an endpoint of a server that serves kind.
func newEndpointOf(server *fakeapi.Server, kind schema.GroupKind) *endpoint {
	to, l := server.Client().Transport, &line{}
	l.to.Store(&to)
	return &endpoint{server: server, client: &http.Client{Transport: l}, kind: kind, line: l}
}

func (e *endpoint) hangUp() {
	e.line.to.Store(nil)
	e.server = nil
}

// render makes the server write its bulk documents, which takes longer than
// anything that is measured here. Then it forgets the requests so far.
func (e *endpoint) render(tb testing.TB, accept string) {
	tb.Helper()
	for _, path := range []string{"/api", "/apis"} {
		req, err := http.NewRequest(http.MethodGet, "http://fake.invalid"+path, nil)
		if err != nil {
			tb.Fatal(err)
		}
		req.Header.Set("Accept", accept)
		resp, err := e.client.Do(req)
		if err != nil {
			tb.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	e.server.TakeRequests()
}

// traffic returns how many requests there were since its last call, and how many
// bytes of documents they brought.
func (e *endpoint) traffic() (requests, docBytes int) {
	for _, r := range e.server.TakeRequests() {
		requests++
		docBytes += r.BodyBytes
	}
	return requests, docBytes
}

// groupsOf describes a server with 2 versions and 3 kinds in each group.
func groupsOf(n int) []fakeapi.Group { return fakeapi.Typical(n, 2, 3) }

var unique int

// uniqueGroupsOf is groupsOf with names that this process has not seen.
func uniqueGroupsOf(n int) []fakeapi.Group { return renamed(groupsOf(n)) }

// renamed gives groups names that this process has not seen, so that no mapper profits from
// what another one has read. Sizes stay the same.
func renamed(groups []fakeapi.Group) []fakeapi.Group {
	unique++
	for i := range groups {
		groups[i].Name = strings.Replace(groups[i].Name, "example", fmt.Sprintf("%07d", unique), 1)
	}
	return groups
}

var absentGroup = schema.GroupKind{Group: "absent.example.com", Kind: "Absent"}

// forEach runs a benchmark for every number of groups and every flavour, the
// flavours next to each other.
func forEach(b *testing.B, sizes []int, run func(b *testing.B, groups int, f flavour)) {
	for _, groups := range sizes {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			for _, f := range flavours {
				b.Run("mapper="+f.name, func(b *testing.B) { run(b, groups, f) })
			}
		})
	}
}
