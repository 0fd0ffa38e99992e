// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

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
