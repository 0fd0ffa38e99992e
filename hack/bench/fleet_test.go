// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

const (
	clusterGroups = 300
	ownGroups     = clusterGroups / 5 // of a cluster that is not equal to the others
)

// clusterOf describes one of many clusters. own is how many of its groups no other
// cluster has.
func clusterOf(n, own int) []fakeapi.Group {
	groups := groupsOf(clusterGroups)
	for i := len(groups) - own; i < len(groups); i++ {
		groups[i].Name = strings.Replace(groups[i].Name, "example", fmt.Sprintf("c%05d", n), 1)
	}
	return groups
}

// BenchmarkOnceClusters: one process with a mapper for each of many clusters of 300
// groups, 80 % of them equal: the clusters (each fifth has 60 groups of its own),
// or the groups (each cluster has 60 of its own). Clusters are read by two
// goroutines. The other mappers are made for 20 clusters.
func BenchmarkOnceClusters(b *testing.B) {
	for equal, own := range map[string]func(n int) int{
		"clusters": func(n int) int {
			if n%5 == 0 {
				return ownGroups
			}
			return 0
		},
		"groups": func(int) int { return ownGroups },
	} {
		b.Run("equal="+equal, func(b *testing.B) {
			forEach(b, []int{clusterGroups}, func(b *testing.B, _ int, f flavour) {
				clusters := 20
				if f.name == "ours" {
					clusters = 1000
				}
				for b.Loop() {
					b.StopTimer()
					readClusters(b, f, clusters, own)
					b.StartTimer()
				}
				b.ReportMetric(0, "ns/op")
			})
		})
	}
}

func readClusters(b *testing.B, f flavour, clusters int, own func(n int) int) {
	const batch = 20 // more servers at once would take more memory than all mappers
	forgetServers()
	mappers := make([]meta.RESTMapper, 0, clusters)
	var elapsed time.Duration
	requests, docBytes := 0, 0
	equal := newEndpoint(clusterOf(0, 0))
	equal.render(b, f.accept)
	before := heap()
	for len(mappers) < clusters {
		endpoints := make([]*endpoint, batch)
		for i := range endpoints {
			if n := len(mappers) + i; own(n) > 0 {
				endpoints[i] = newEndpoint(clusterOf(n, own(n)))
				endpoints[i].render(b, f.accept)
			} else {
				endpoints[i] = newEndpointOf(equal.server, equal.kind)
			}
		}
		runtime.GC()
		start := time.Now()
		mappers = append(mappers, warmAll(b, f, endpoints)...)
		elapsed += time.Since(start)
		for _, e := range endpoints {
			r, bytes := e.traffic()
			requests, docBytes = requests+r, docBytes+bytes
			e.hangUp()
		}
	}
	after := heap()
	runtime.KeepAlive(mappers)
	per := float64(clusters)
	b.ReportMetric((after-before)/per, "B/mapper")
	b.ReportMetric(float64(elapsed)/per, "cold-ns/mapper")
	b.ReportMetric(float64(requests)/per, "requests/mapper")
	b.ReportMetric(float64(docBytes)/per, "doc-B/mapper")
}

// warmAll makes a mapper of each endpoint, on two goroutines.
func warmAll(b *testing.B, f flavour, endpoints []*endpoint) []meta.RESTMapper {
	mappers := make([]meta.RESTMapper, len(endpoints))
	var wg sync.WaitGroup
	for half := range 2 {
		wg.Go(func() {
			for i := half; i < len(endpoints); i += 2 {
				m := f.newMapper(b, endpoints[i])
				if _, err := m.RESTMapping(endpoints[i].kind); err != nil {
					b.Error(err)
				}
				mappers[i] = m
			}
		})
	}
	wg.Wait()
	return mappers
}

// BenchmarkOnceReconciles: a client and a mapper made for each of 10,000 reconciles
// over 200 clusters in turn, on sockets: with the client that client-go makes of a
// rest.Config, or with one whose transport is wrapped, which needs a name. 80 % of the
// groups are equal. The other mappers are made for 400 reconciles.
func BenchmarkOnceReconciles(b *testing.B) {
	for _, client := range []string{"own", "wrapped"} {
		b.Run("client="+client, func(b *testing.B) {
			forEach(b, []int{clusterGroups}, func(b *testing.B, _ int, f flavour) {
				reconciles := 400
				if f.name == "ours" {
					reconciles = 10_000
				}
				for b.Loop() {
					b.StopTimer()
					reconcile(b, f, client == "wrapped", reconciles)
					b.StartTimer()
				}
				b.ReportMetric(0, "ns/op")
			})
		})
	}
}

func reconcile(b *testing.B, f flavour, wrapped bool, reconciles int) {
	const clusters = 200
	forgetServers()
	gateway := newGateway(b, f, clusters)
	defer gateway.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	before := heap()
	var elapsed time.Duration
	for i := range reconciles {
		start := time.Now()
		mustFind(b, gateway.newMapper(b, f, i%clusters, wrapped), gateway.endpoints[i%clusters].kind)
		elapsed += time.Since(start)
		gateway.count(i % clusters)
		if i%500 == 499 {
			runtime.GC()
		}
	}
	kept := heap() - before
	per := float64(reconciles)
	b.ReportMetric(float64(gateway.full)/per, "full/reconcile")
	b.ReportMetric(float64(gateway.unchanged)/per, "unchanged/reconcile")
	b.ReportMetric(float64(gateway.docBytes)/per, "doc-B/reconcile")
	b.ReportMetric(float64(elapsed)/per, "ns/reconcile")
	b.ReportMetric(kept, "kept-B")
}

// A gateway has many clusters behind one address.
type gateway struct {
	*httptest.Server
	endpoints []*endpoint

	full, unchanged, docBytes int // of the answers so far
}

func newGateway(b *testing.B, f flavour, clusters int) *gateway {
	g := &gateway{}
	mux := http.NewServeMux()
	for n := range clusters {
		e := newEndpoint(clusterOf(n, ownGroups))
		e.render(b, f.accept)
		g.endpoints = append(g.endpoints, e)
		prefix := fmt.Sprintf("/clusters/%d", n)
		mux.Handle(prefix+"/", http.StripPrefix(prefix, e.server))
	}
	g.Server = httptest.NewServer(mux)
	return g
}

// newMapper makes a client and a mapper, as a program does for one piece of work.
func (g *gateway) newMapper(b *testing.B, f flavour, cluster int, wrapped bool) meta.RESTMapper {
	cfg := &rest.Config{Host: fmt.Sprintf("%s/clusters/%d", g.URL, cluster), BearerToken: fakeapi.Token, QPS: -1}
	name := ""
	if wrapped {
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return newLine(next) })
		name = g.endpoints[cluster].name
	}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		b.Fatal(err)
	}
	mapper, err := f.make(cfg, client, name)
	if err != nil {
		b.Fatal(err)
	}
	return mapper
}

// count counts what a cluster has answered.
func (g *gateway) count(cluster int) {
	for _, r := range g.endpoints[cluster].server.TakeRequests() {
		if g.docBytes += r.BodyBytes; r.Code == http.StatusNotModified {
			g.unchanged++
		} else {
			g.full++
		}
	}
}
