// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// TestManyTenants keeps a running cluster.Cluster for each of 200 tenants, and logs
// what they cost. The tenants serve the same API, and one kind was looked up in
// each.
func TestManyTenants(t *testing.T) {
	log.SetLogger(logr.Discard())
	builds := newBuilds("M6", "200 tenants that serve the same 40 groups: heap and goroutines")
	t.Cleanup(func() { record(t, builds[0].result, builds[1].result) })
	var costs [2]fleetCost
	for i, b := range builds {
		costs[i] = b.fleet(t, 200)
		t.Logf("%-14s %6.1f KiB and %.2f goroutines a tenant", b.result.Build, costs[i].kib, costs[i].goroutines)
		b.result.Healed, b.result.Expected, b.result.Tries = true, true, 1
	}
	stock, ours := costs[0], costs[1]
	if ours.kib <= 0 || ours.kib > stock.kib || ours.goroutines > stock.goroutines {
		builds[1].result.Expected = false
		t.Errorf("a tenant costs %+v with our mapper, and %+v with stock's", ours, stock)
	}
}

// fleetCost is what one tenant costs.
type fleetCost struct{ kib, goroutines float64 }

// fleet runs n clusters and returns what each takes, without what the servers in
// the same process take.
func (b *build) fleet(t *testing.T, n int) fleetCost {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	heap, goroutines, begun := heapInUse(), runtime.NumGoroutine(), time.Now()
	clusters := make([]cluster.Cluster, n)
	for i := range clusters {
		clusters[i] = b.tenant(t, i)
		running.Go(func() {
			if err := clusters[i].Start(ctx); err != nil {
				t.Error(err)
			}
		})
		if !clusters[i].GetCache().WaitForCacheSync(ctx) {
			t.Fatal("the cache did not start")
		}
	}
	b.result.Millis, b.result.Requests = millisSince(begun), int(b.requests.Load())
	cost := fleetCost{
		kib:        (heapInUse() - heap) / 1024 / float64(n),
		goroutines: float64(runtime.NumGoroutine()-goroutines) / float64(n),
	}
	runtime.KeepAlive(clusters)
	cancel()
	running.Wait()
	eventually(t, time.Minute, "the clusters' goroutines ended, which keep clusters alive", func() bool {
		return runtime.NumGoroutine() <= goroutines
	})
	b.step("heap per tenant", fmt.Sprintf("%.1f KiB", cost.kib), true, b.result.Requests/n)
	b.step("goroutines per tenant", fmt.Sprintf("%.2f", cost.goroutines), true, 0)
	return cost
}

// tenant makes the cluster of a tenant on a server of its own, looks a kind up in
// it, and hangs up, so that the server can go.
func (b *build) tenant(t *testing.T, i int) cluster.Cluster {
	t.Helper()
	server := fakeapi.New(fakeapi.Typical(40, 2, 3)...)
	cfg := server.Config()
	cfg.Host = fmt.Sprintf("http://tenant-%d.invalid", i)
	wire := &wire{cfg.Transport}
	cfg.Transport = wire
	c := b.cluster(t, cfg)
	if _, err := c.GetRESTMapper().RESTMapping(schema.GroupKind{Group: "g0040.example.com", Kind: "Kind0040A"}); err != nil {
		t.Fatal(err)
	}
	wire.RoundTripper = nil
	return c
}

// wire is a transport to a server that can be cut.
type wire struct{ http.RoundTripper }

// heapInUse returns the heap in use, without garbage and without what only weak
// pointers lead to.
func heapInUse() float64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}
