// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

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
				same := newEndpoint(groups, nil)
				var listeners []*httptest.Server
				for range r.clusters {
					listeners = append(listeners, httptest.NewServer(withObjects(same.server, kind)))
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

// withObjects serves objects beside the discovery of server. A path with a name in it is
// that of an object.
func withObjects(server *fakeapi.Server, kind schema.GroupVersionKind) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.Count(req.URL.Path, "/") < 5 {
			server.ServeHTTP(w, req)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"apiVersion": "%s", "kind": "%s", "metadata": {"name": "%s"}}`, kind.GroupVersion(), kind.Kind, filepath.Base(req.URL.Path))
	})
}
