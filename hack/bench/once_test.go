// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/apiutil/fleet"
	"github.com/freshmapper/freshmapper/fresh"
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
		// two discoveries of two requests, and the pause
		b.ReportMetric(p99OfHits(b, e, mapper, 1250*time.Millisecond), "busy-p99-ns")
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

// BenchmarkOnceClusters: one process with a mapper for each of many clusters of 300 groups, 80 % of them equal: the
// clusters (each fifth has 60 groups of its own), or the groups (each cluster has 60 of its own). Clusters are read
// by two goroutines. The other mappers are made for 20 clusters.
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

var thing = gvk{Group: "things.example.com", Version: "v1", Kind: "Thing"}

// others are fifty groups of two kinds each, with one object each.
var others = fakeapi.Typical(51, 1, 2)[1:] // without the core group

// serve starts a server of the others, of so many Things, and of 100 ConfigMaps.
func serve(b *testing.B, count int) (*fakeapi.Server, *rest.Config) {
	for _, g := range others {
		for i := range g.Versions[0].Resources {
			g.Versions[0].Resources[i].Objects = things(1, true)
		}
	}
	server := fakeapi.New(others...)
	move(server, count, true)
	server.PutVersion("", fakeapi.Version{Name: "v1", Resources: []fakeapi.Resource{
		{Name: "configmaps", Singular: "configmap", Kind: "ConfigMap", Namespaced: true, Objects: things(100, true)},
	}})
	at := httptest.NewServer(server)
	b.Cleanup(func() {
		at.CloseClientConnections()
		at.Close()
	})
	return server, &rest.Config{Host: at.URL, QPS: -1}
}

// move makes Things namespaced or not.
func move(server *fakeapi.Server, count int, namespaced bool) {
	server.Put(fakeapi.Group{Name: thing.Group,
		Versions: []fakeapi.Version{{Name: thing.Version, Resources: []fakeapi.Resource{
			{Name: "things", Singular: "thing", Kind: thing.Kind, Namespaced: namespaced,
				Objects: things(count, namespaced)},
		}}}})
}

// things are objects, in ten namespaces or in none. Their UIDs say where.
func things(count int, namespaced bool) (objects []fakeapi.Object) {
	for n := range count {
		o := fakeapi.Object{Name: fmt.Sprint("thing", n), UID: fmt.Sprint(n, namespaced)}
		if namespaced {
			o.Namespace = fmt.Sprint("ns", n%10)
		}
		objects = append(objects, o)
	}
	return objects
}

type way struct {
	name      string
	newClient func(*rest.Config, client.Options) (client.Client, error)
	newCache  func(*rest.Config, cache.Options) (cache.Cache, error)
}

// ways are controller-runtime's own client and cache with its own mapper, and ours; or the fork's.
func ways() []way {
	if *forked {
		return []way{{"fork", client.New, cache.New}}
	}
	return []way{{"stock", client.New, cache.New}, {"ours", fresh.NewClient, fresh.NewCache}}
}

func (w way) started(b *testing.B, cfg *rest.Config, opts cache.Options) cache.Cache {
	c, stop := w.start(b, cfg, opts)
	b.Cleanup(stop)
	return c
}

// start starts a cache, which the caller must stop.
func (w way) start(b *testing.B, cfg *rest.Config, opts cache.Options) (c cache.Cache, stop func()) {
	c, err := w.newCache(cfg, opts)
	must(b, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- c.Start(ctx) }()
	c.WaitForCacheSync(ctx)
	return c, func() {
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	}
}

func metadataOf(of gvk) *metav1.PartialObjectMetadata {
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(of)
	return obj
}

// BenchmarkOnceGets: a Get of one object and a List of 100, of each representation: from a cache, through a client
// that reads from that cache, and through one that reads from the server over a loopback connection. "floor" is
// stock's cache in a wrapper that only forwards. All take turns, and the best of five rounds counts.
func BenchmarkOnceGets(b *testing.B) {
	_, cfg := serve(b, 100)
	readers := map[string]map[string]client.Reader{} // by mapper, and by what a metric is called
	for _, w := range ways() {
		cached := w.started(b, cfg, cache.Options{})
		live, err := w.newClient(cfg, client.Options{})
		must(b, err)
		through, err := w.newClient(cfg,
			client.Options{Cache: &client.CacheOptions{Reader: cached, Unstructured: true}})
		must(b, err)
		readers[w.name] = map[string]client.Reader{"cached": cached, "client": through, "live": live}
		if w.name == "stock" {
			readers["floor"] = map[string]client.Reader{"cached": forwards{cached}}
		}
	}
	for _, of := range []string{"typed", "unstructured", "metadata"} {
		reads, best := make(map[string]func()), map[string]float64{}
		for name, by := range readers {
			for from, reader := range by {
				reads[name+" "+from+"-get"] = func() { getOne(b, reader, of) }
				reads[name+" "+from+"-list"] = func() { listAll(b, reader, of) }
			}
		}
		for range 5 {
			for name, read := range reads {
				ns := each(read)
				if best[name] == 0 || ns < best[name] {
					best[name] = ns
				}
			}
		}
		for name := range readers {
			b.Run("of="+of+"/mapper="+name, func(b *testing.B) {
				for read, do := range reads {
					what, ok := strings.CutPrefix(read, name+" ")
					if !ok {
						continue
					}
					b.ReportMetric(best[read], what+"-ns")
					if !strings.HasPrefix(what, "live") {
						b.ReportMetric(testing.AllocsPerRun(100, do), what+"-allocs")
					}
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// forwards is a cache in a wrapper that does nothing.
type forwards struct{ cache.Cache }

func (f forwards) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return f.Cache.Get(ctx, key, obj, opts...)
}

func (f forwards) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return f.Cache.List(ctx, list, opts...)
}

var configMaps = gvk{Version: "v1", Kind: "ConfigMap"}

func getOne(b *testing.B, from client.Reader, of string) {
	var obj client.Object = &corev1.ConfigMap{}
	switch of {
	case "unstructured":
		obj = &unstructured.Unstructured{}
		obj.GetObjectKind().SetGroupVersionKind(configMaps)
	case "metadata":
		obj = metadataOf(configMaps)
	}
	if err := from.Get(context.Background(), client.ObjectKey{Namespace: "ns0", Name: "thing0"}, obj); err != nil {
		b.Fatal(err)
	}
}

func listAll(b *testing.B, from client.Reader, of string) {
	var list client.ObjectList = &corev1.ConfigMapList{}
	switch of {
	case "unstructured":
		list = &unstructured.UnstructuredList{}
	case "metadata":
		list = &metav1.PartialObjectMetadataList{}
	}
	if of != "typed" {
		list.GetObjectKind().SetGroupVersionKind(gvk{Version: "v1", Kind: "ConfigMapList"})
	}
	if err := from.List(context.Background(), list); err != nil || meta.LenList(list) != 100 {
		b.Fatalf("a list of %d objects, want 100: %v", meta.LenList(list), err)
	}
}

// each returns how many nanoseconds a call takes.
func each(call func()) float64 {
	for n := 1; ; n *= 2 {
		begun := time.Now()
		for range n {
			call()
		}
		if took := time.Since(begun); took >= 50*time.Millisecond {
			return float64(took) / float64(n)
		}
	}
}

// BenchmarkOnceKinds: informers for 100 kinds with one object each, until all have synced, and what they keep.
func BenchmarkOnceKinds(b *testing.B) {
	for _, w := range ways() {
		b.Run("mapper="+w.name, func(b *testing.B) {
			_, cfg := serve(b, 1)
			before := heap()
			goroutines, begun := runtime.NumGoroutine(), time.Now()
			c := w.started(b, cfg, cache.Options{})
			for n := range 100 {
				_, err := c.GetInformer(b.Context(), metadataOf(otherKind(n)), cache.BlockUntilSynced(false))
				must(b, err)
			}
			c.WaitForCacheSync(b.Context())
			b.ReportMetric(float64(time.Since(begun))/100, "sync-ns/kind")
			b.ReportMetric(float64(runtime.NumGoroutine()-goroutines)/100, "goroutines/kind")
			b.ReportMetric((heap()-before)/100, "B/kind")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkOnceStart: a manager for 100 kinds with one object each, from its constructor until all informers have
// synced. All take turns, and the best of seven rounds counts.
func BenchmarkOnceStart(b *testing.B) {
	_, cfg := serve(b, 1)
	managers := map[string]func(*rest.Config, manager.Options) (manager.Manager, error){"fork": ctrl.NewManager}
	if !*forked {
		managers = map[string]func(*rest.Config, manager.Options) (manager.Manager, error){"stock": ctrl.NewManager,
			"ours": fresh.NewManager}
	}
	best := map[string]time.Duration{}
	for range 7 {
		for name, newManager := range managers {
			took := startOf(b, cfg, newManager)
			if best[name] == 0 || took < best[name] {
				best[name] = took
			}
		}
	}
	for name, took := range best {
		b.Run("mapper="+name, func(b *testing.B) {
			b.ReportMetric(float64(took), "start-ns")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func startOf(b *testing.B, cfg *rest.Config, newManager func(*rest.Config, manager.Options) (manager.Manager,
	error)) time.Duration {
	runtime.GC()
	begun := time.Now()
	mgr, err := newManager(cfg, manager.Options{Metrics: server.Options{BindAddress: "0"}})
	must(b, err)
	for n := range 100 {
		_, err := mgr.GetCache().GetInformer(b.Context(), metadataOf(otherKind(n)))
		must(b, err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error)
	go func() { ended <- mgr.Start(ctx) }()
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		b.Fatal("the informers have not synced")
	}
	took := time.Since(begun)
	cancel()
	must(b, <-ended)
	return took
}

// otherKind is one of the kinds of others.
func otherKind(n int) gvk {
	group := others[n/2]
	return gvk{Group: group.Name, Version: group.Versions[0].Name, Kind: group.Versions[0].Resources[n%2].Kind}
}

type counted struct{ adds, deletes atomic.Int64 }

func (c *counted) OnAdd(any, bool)   { c.adds.Add(1) }
func (c *counted) OnUpdate(any, any) {}
func (c *counted) OnDelete(any)      { c.deletes.Add(1) }

// BenchmarkOnceMove: 10,000 objects whose kind becomes cluster-scoped, with one handler. Ours is measured from when
// the mapper learns of it until the handler was told of all that went and came; stock, which never would, from a
// restart until its handler has all. The peak is over the heap with all objects in the cache.
func BenchmarkOnceMove(b *testing.B) {
	const count = 10_000
	for _, w := range ways() {
		b.Run("mapper="+w.name, func(b *testing.B) {
			server, cfg := serve(b, count)
			told, most := &counted{}, 0.0
			before := heap()
			of := flavours[0]
			if *forked {
				of = flavours[1] // which is the fork's mapper: caches follow it
			}
			mapper, err := of.make(cfg, http.DefaultClient)
			must(b, err)
			follow := func() (stop func()) {
				c, stop := w.start(b, cfg, cache.Options{Mapper: mapper})
				i, err := c.GetInformer(b.Context(), metadataOf(thing))
				must(b, err)
				_, err = i.AddEventHandler(told)
				must(b, err)
				return stop
			}
			until := func(adds, deletes int64) { // and looks at the heap meanwhile
				for told.adds.Load() < adds || told.deletes.Load() < deletes {
					var stats runtime.MemStats
					runtime.ReadMemStats(&stats)
					most = max(most, float64(stats.HeapAlloc))
					time.Sleep(time.Millisecond)
				}
			}
			stop := follow()
			until(count, 0)
			kept := heap() - before
			if w.name == "stock" { // which is restarted, and has nothing of before
				stop()
				heap()
			}
			most = 0
			move(server, count, false)
			begun := time.Now()
			must(b, mapper.(interface {
				Refresh(context.Context, ...string) error
			}).Refresh(b.Context()))
			if w.name == "stock" {
				stop = follow()
				told.deletes.Add(count) // which a restart need not tell
			}
			until(2*count, count)
			stop()
			b.ReportMetric(float64(time.Since(begun)), "told-ns")
			b.ReportMetric(kept/count, "B/object")
			b.ReportMetric((most-before)/kept, "peak/kept")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkOnceReplay: the discovery requests and bytes of the first round and of all others, the heap that a round's
// clients take together without their connections, and the time of all rounds. In each round it makes a client for
// each object, in turn of each cluster, reads the object with it, and keeps the clients until the end of the round:
// on stock, on stock with mappers from a Fleet, and, built on the fork, without a change.
func BenchmarkOnceReplay(b *testing.B) {
	fleet := fleet.New(apiutil.DynamicRESTMapperOptions{})
	plain := func(cfg *rest.Config) (client.Client, error) { return client.New(cfg, client.Options{}) }
	ways := map[string]func(cfg *rest.Config) (client.Client, error){"fork": plain}
	if !*forked {
		ways = map[string]func(cfg *rest.Config) (client.Client, error){"stock": plain,
			"provider": func(cfg *rest.Config) (client.Client, error) {
				httpClient, err := rest.HTTPClientFor(cfg)
				must(b, err)
				mapper, err := fleet.For(cfg.Host, cfg, httpClient)
				must(b, err)
				return client.New(cfg, client.Options{HTTPClient: httpClient, Mapper: mapper})
			}}
	}
	for _, r := range []struct {
		of                              string
		crds, clusters, objects, rounds int // objects of each round, over the clusters in turn
	}{{"provider-kubernetes-543", 1000, 1, 300, 3}, {"kcm", 60, 30, 30, 6}} {
		for way, newClient := range ways {
			b.Run("of="+r.of+"/mapper="+way, func(b *testing.B) {
				groups := fakeapi.Typical(r.crds, 1, 1)
				last := groups[len(groups)-1]
				kind := gvk{Group: last.Name, Version: "v1", Kind: last.Versions[0].Resources[0].Kind}
				last.Versions[0].Resources[0].Objects = things(r.objects, true)
				same := newEndpoint(groups, nil)
				var listeners []*httptest.Server
				for range r.clusters {
					listeners = append(listeners, httptest.NewServer(same.server))
					b.Cleanup(listeners[len(listeners)-1].Close)
				}
				before, took := heap(), time.Duration(0)
				for round := range r.rounds {
					clients, start := make([]client.Client, r.objects), time.Now()
					for i := range clients {
						c, err := newClient(&rest.Config{Host: listeners[i%r.clusters].URL, BearerToken: "operator",
							QPS: -1})
						must(b, err)
						must(b, c.Get(b.Context(), client.ObjectKey{Namespace: fmt.Sprint("ns", i%10),
							Name: fmt.Sprint("thing", i)}, metadataOf(kind)))
						clients[i] = c
					}
					took += time.Since(start)
					for _, l := range listeners {
						l.CloseClientConnections()
					}
					b.ReportMetric(heap()-before, "heap-B")
					runtime.KeepAlive(clients)
					if round == 0 {
						same.traffic(b, 1, "first-", "")
					}
				}
				same.traffic(b, 1, "later-", "")
				b.ReportMetric(float64(took), "rounds-ns")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
