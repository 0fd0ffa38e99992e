// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	stock "sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/fresh"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

var thing = gvk{Group: "things.example.com", Version: "v1", Kind: "Thing"}

// others are fifty groups of two kinds each, with one object each.
var others = fakeapi.Typical(51, 1, 2)[1:] // without the core group

// serve starts a server of the others, and of so many Things.
func serve(b *testing.B, count int) (*fakeapi.Server, *rest.Config) {
	for _, g := range others {
		for i := range g.Versions[0].Resources {
			g.Versions[0].Resources[i].Objects = things(1, true)
		}
	}
	server := fakeapi.New(others...)
	move(server, count, true)
	at := httptest.NewServer(server)
	b.Cleanup(func() {
		at.CloseClientConnections()
		at.Close()
	})
	return server, &rest.Config{Host: at.URL, QPS: -1}
}

// move makes Things namespaced or not.
func move(server *fakeapi.Server, count int, namespaced bool) {
	server.Put(fakeapi.Group{Name: thing.Group, Versions: []fakeapi.Version{{Name: thing.Version, Resources: []fakeapi.Resource{
		{Name: "things", Singular: "thing", Kind: thing.Kind, Namespaced: namespaced, Objects: things(count, namespaced)},
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

// A way makes clients and caches.
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
	c, err := w.newCache(cfg, opts)
	must(b, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- c.Start(ctx) }()
	b.Cleanup(func() {
		cancel()
		<-ended
	})
	c.WaitForCacheSync(ctx)
	return c
}

func metadataOf(of gvk) *metav1.PartialObjectMetadata {
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(of)
	return obj
}

// BenchmarkOnceGets: a Get and a List of 100 objects, from a cache and through a client, over a loopback connection.
// All take turns, and the best of seven rounds counts.
func BenchmarkOnceGets(b *testing.B) {
	ctx := context.Background()
	_, cfg := serve(b, 100)
	reads, best := make(map[string]func()), map[string]float64{}
	for _, w := range ways() {
		live, err := w.newClient(cfg, client.Options{})
		must(b, err)
		for name, from := range map[string]client.Reader{"cached": w.started(b, cfg, cache.Options{}), "live": live} {
			reads[w.name+" "+name+"-get"] = func() {
				must(b, from.Get(ctx, client.ObjectKey{Namespace: "ns0", Name: "thing0"}, metadataOf(thing)))
			}
			reads[w.name+" "+name+"-list"] = func() {
				list := &metav1.PartialObjectMetadataList{}
				list.SetGroupVersionKind(thing)
				if err := from.List(ctx, list); err != nil || len(list.Items) != 100 {
					b.Fatalf("a list of %d objects, want 100: %v", len(list.Items), err)
				}
			}
		}
	}
	for range 7 {
		for name, read := range reads {
			if ns := each(read); best[name] == 0 || ns < best[name] {
				best[name] = ns
			}
		}
	}
	for _, w := range ways() {
		b.Run("mapper="+w.name, func(b *testing.B) {
			for name, read := range reads {
				if what, ok := strings.CutPrefix(name, w.name+" "); ok {
					b.ReportMetric(best[name], what+"-ns")
					if strings.HasPrefix(what, "cached") {
						b.ReportMetric(testing.AllocsPerRun(100, read), what+"-allocs")
					}
				}
			}
			b.ReportMetric(0, "ns/op")
		})
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
				of := others[n/2]
				kind := gvk{Group: of.Name, Version: of.Versions[0].Name, Kind: of.Versions[0].Resources[n%2].Kind}
				_, err := c.GetInformer(b.Context(), metadataOf(kind), cache.BlockUntilSynced(false))
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

// counted is a handler.
type counted struct{ adds, deletes atomic.Int64 }

func (c *counted) OnAdd(any, bool)   { c.adds.Add(1) }
func (c *counted) OnUpdate(any, any) {}
func (c *counted) OnDelete(any)      { c.deletes.Add(1) }

// BenchmarkOnceMove: 10,000 objects whose kind becomes cluster-wide, with one handler. Ours is measured from when the mapper
// learns of it until the handler was told of all that went and came; stock, which never would, from a restart until its
// handler has all. The peak is over the heap with all objects in the cache.
func BenchmarkOnceMove(b *testing.B) {
	const count = 10_000
	for _, w := range ways() {
		b.Run("mapper="+w.name, func(b *testing.B) {
			server, cfg := serve(b, count)
			told, most := &counted{}, 0.0
			before := heap()
			newMapper := apiutil.NewDynamicRESTMapper
			if *forked { // whose caches follow the fork's mapper
				newMapper = stock.NewDynamicRESTMapper
			}
			mapper, err := newMapper(cfg, http.DefaultClient)
			must(b, err)
			follow := func() {
				i, err := w.started(b, cfg, cache.Options{Mapper: mapper}).GetInformer(b.Context(), metadataOf(thing))
				must(b, err)
				_, err = i.AddEventHandler(told)
				must(b, err)
			}
			until := func(adds, deletes int64) { // and looks at the heap meanwhile
				for told.adds.Load() < adds || told.deletes.Load() < deletes {
					var stats runtime.MemStats
					runtime.ReadMemStats(&stats)
					most = max(most, float64(stats.HeapAlloc))
					time.Sleep(time.Millisecond)
				}
			}
			follow()
			until(count, 0)
			kept := heap() - before
			most = 0
			move(server, count, false)
			begun := time.Now()
			must(b, mapper.(interface {
				Refresh(context.Context, ...string) error
			}).Refresh(b.Context()))
			if w.name == "stock" {
				follow()
				until(2*count, 0)
			} else {
				until(2*count, count)
			}
			b.ReportMetric(float64(time.Since(begun)), "told-ns")
			b.ReportMetric(kept/count, "B/object")
			b.ReportMetric((most-before)/kept, "peak/kept")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// replays are operators that make a client for each piece of work.
var replays = []struct {
	of                        string
	crds                      int
	clusters, objects, rounds int // objects of each round, over the clusters in turn
}{
	{"provider-kubernetes-543", 1000, 1, 300, 3},
	{"kcm", 60, 30, 30, 6},
}

// BenchmarkOnceReplay: the discovery requests and bytes of the first round and of all
// others, the heap that a round's clients take together without their connections, and the time of all
// rounds. In each round it makes a client for each object, in turn of each cluster, reads the object with
// it, and keeps the clients until the end of the round: on stock, on stock with mappers from a Fleet, and, built
// on the fork, without a change.
func BenchmarkOnceReplay(b *testing.B) {
	fleet := apiutil.NewFleet(apiutil.DynamicRESTMapperOptions{})
	plain := func(cfg *rest.Config) (client.Client, error) { return client.New(cfg, client.Options{}) }
	ways := map[string]func(cfg *rest.Config) (client.Client, error){"fork": plain}
	if !*forked {
		ways = map[string]func(cfg *rest.Config) (client.Client, error){"stock": plain, "provider": func(cfg *rest.Config) (client.Client, error) {
			httpClient, err := rest.HTTPClientFor(cfg)
			must(b, err)
			mapper, err := fleet.For(cfg.Host, cfg, httpClient)
			must(b, err)
			return client.New(cfg, client.Options{HTTPClient: httpClient, Mapper: mapper})
		}}
	}
	for _, r := range replays {
		for way, newClient := range ways {
			b.Run("of="+r.of+"/mapper="+way, func(b *testing.B) {
				groups := fakeapi.Typical(r.crds, 1, 1)
				last := groups[len(groups)-1]
				kind := schema.GroupVersionKind{Group: last.Name, Version: "v1", Kind: last.Versions[0].Resources[0].Kind}
				last.Versions[0].Resources[0].Objects = make([]fakeapi.Object, r.objects)
				for i := range r.objects {
					last.Versions[0].Resources[0].Objects[i] = fakeapi.Object{Namespace: "default", Name: fmt.Sprint("object-", i)}
				}
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
						c, err := newClient(&rest.Config{Host: listeners[i%r.clusters].URL, BearerToken: "operator", QPS: -1})
						must(b, err)
						must(b, c.Get(b.Context(), client.ObjectKey{Namespace: "default", Name: fmt.Sprint("object-", i)}, metadataOf(kind)))
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
