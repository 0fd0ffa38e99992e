// SPDX-License-Identifier: Apache-2.0

package apiutil_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// 300 clusters come and go ten times, all at once, some in the middle of their start,
// some with a config that replaces another. Then many identities come that do not go. Nothing
// remains of the clusters, and of the identities only MaxMappers: no entry, no goroutine, no
// open watch, no mapper.
func TestFleetChurn(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	const clusters, rounds = 300, 10
	server := newServer(fakeapi.Aggregated())
	watched := newWatchServer(server)
	fleet := apiutil.NewFleet(apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute, WatchAPIs: true})
	fleet.MaxMappers = 50
	var made, freed atomic.Int64
	mapperOf := func(key string) *apiutil.DynamicRESTMapper {
		transport := &transportOf{watched}
		m, err := fleet.For(key, server.Config(), &http.Client{Transport: transport})
		if err != nil {
			t.Error(err)
		}
		made.Add(1)
		runtime.SetFinalizer(transport, func(*transportOf) { freed.Add(1) })
		return m
	}
	engage := func(cluster string) context.CancelFunc {
		ctx, cancel := context.WithCancel(context.Background())
		if err := fleet.Engage(ctx, cluster, mapperOf("")); err != nil {
			t.Error(err)
		}
		return cancel
	}
	var all sync.WaitGroup
	for i := range clusters {
		all.Add(1)
		go func() {
			defer all.Done()
			cluster := fmt.Sprintf("cluster-%d", i)
			for round := range rounds {
				leave := engage(cluster)
				if i%3 == 0 {
					engage(cluster) // replaces the one before, which leaves later
					defer leave()
					leave = engage(cluster)
				}
				if i%3 == 1 {
					m, err := fleet.For(cluster, nil, nil)
					if err != nil {
						t.Errorf("%s is not engaged: %v", cluster, err)
					} else if err := lookUp(m, fooKind); err != nil {
						t.Errorf("%s in round %d: %v", cluster, round, err)
					}
				}
				leave()
			}
		}()
	}
	for range 20 { // meanwhile somebody looks
		fleet.Status()
		if err := fleet.Healthz(nil); err != nil {
			t.Error(err)
		}
	}
	all.Wait()
	wantSoon(t, "no cluster is engaged", func() bool { return len(fleet.Status()) == 0 })
	defer func() { t.Logf("%d mappers made, %d freed", made.Load(), freed.Load()) }()
	wantFreed := func(kept int64) {
		t.Helper()
		wantSoon(t, "every mapper that is gone is freed", func() bool {
			runtime.GC()
			return freed.Load() == made.Load()-kept
		})
	}
	wantFreed(0)
	for i := range 10 * fleet.MaxMappers {
		wantServed(t, mapperOf(fmt.Sprint("identity-", i)), fooKind)
	}
	wantFreed(int64(fleet.MaxMappers))
	for key := range fleet.Status() {
		fleet.Remove(key)
	}
	wantFreed(0)
	for resource, list := range watched.lists {
		wantSoon(t, "no watch of "+resource+" is open", func() bool { return list.watches() == 0 })
	}
}

// A transportOf lives for as long as the mapper that has it, which is in a cycle of
// pointers: its own finalizer would not run.
type transportOf struct{ http.RoundTripper }

func wantSoon(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not so after 30 s: %s", what)
		}
	}
}
