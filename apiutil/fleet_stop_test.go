// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// Start ends with its context, and so does everything else, also clusters that are still
// engaged.
func TestFleetStart(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleetTest()
		f.join(t, "early", f.new(t))
		ctx, cancel := context.WithCancel(context.Background())
		returned := make(chan error)
		go func() { returned <- f.Start(ctx) }()
		synctest.Wait()
		leave := f.join(t, "late", f.new(t))
		f.wantRunning(t, "started", 2)
		cancel()
		if err := <-returned; err != nil {
			t.Error(err)
		}
		f.wantRunning(t, "stopped", 0)
		f.wantMapper(t, "early", nil)
		f.wantMapper(t, "late", nil)
		leave()
		if err := f.Engage(context.Background(), "a", f.new(t)); err == nil || !strings.Contains(err.Error(), "Start of the fleet has ended") {
			t.Errorf("Engage after the end: %v", err)
		}
		if f.NeedLeaderElection() {
			t.Error("Start would wait for leader election")
		}
	})
}

// A stubborn transport does not give up with the context.
type stubborn struct {
	release chan struct{}
	next    http.RoundTripper
	lists   atomic.Int64 // of CRDs, that were sent
}

func (s *stubborn) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasSuffix(req.URL.Path, "/customresourcedefinitions") {
		s.lists.Add(1)
	}
	<-s.release
	return s.next.RoundTrip(req)
}

// A mapper that is engaged again while it still stops does not refresh twice at a time.
func TestFleetRunsMapperOnceAtATime(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		fleet := apiutil.NewFleet(apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute, MaxAge: -1, WatchAPIs: true})
		f := &fleetTest{fleet, newServer(fakeapi.Aggregated())}
		hanging := &stubborn{release: make(chan struct{}), next: f.server.Client().Transport}
		m := f.through(t, &http.Client{Transport: hanging})
		for range 20 {
			f.join(t, "a", m)()
		}
		leave := f.join(t, "a", m)
		if n := hanging.lists.Load(); n != 1 {
			t.Errorf("%d watchers of CRDs at a time", n)
		}
		close(hanging.release)
		synctest.Wait()
		f.wantRunning(t, "released", 1)
		leave()
		f.wantRunning(t, "gone", 0)
	})
}

// Start returns when all that the fleet has started has ended or was given up, and not before.
func TestFleetStartWaits(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		fleet := apiutil.NewFleet(apiutil.DynamicRESTMapperOptions{WatchAPIs: true})
		f := &fleetTest{fleet, newServer(fakeapi.Aggregated())}
		hanging := &stubborn{release: make(chan struct{}), next: f.server.Client().Transport}
		defer close(hanging.release)
		f.join(t, "a", f.through(t, &http.Client{Transport: hanging}))
		f.join(t, "gone", f.through(t, &http.Client{Transport: hanging}))()
		ctx, cancel := context.WithCancel(context.Background())
		returned := make(chan error, 1)
		go func() { returned <- f.Start(ctx) }()
		cancel()
		time.Sleep(400 * time.Millisecond)
		select {
		case <-returned:
			t.Error("Start has returned while requests may still end")
		default:
		}
		f.wantMapper(t, "a", nil)
		time.Sleep(time.Second)
		select {
		case err := <-returned:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("Start waits for requests that cannot be cancelled")
		}
	})
}

// A cluster that hangs when it should stop holds up no other, not even one that comes
// under its name. It delays the end of the fleet by seconds at most.
func TestFleetClusterHangsAtStop(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleetTest()
		hanging := &stubborn{release: make(chan struct{}), next: f.server.Client().Transport}
		defer close(hanging.release)
		m := f.through(t, &http.Client{Transport: hanging})
		leave := f.join(t, "a", m)
		begun := time.Now()
		for range 100 { // comes and goes, while the first run still hangs
			leave()
			f.wantMapper(t, "a", nil)
			leave = f.join(t, "a", m)
		}
		next := f.new(t)
		leaveNext := f.join(t, "a", next)
		if took := time.Since(begun); took > 0 {
			t.Errorf("the next cluster has waited %v", took)
		}
		f.wantMapper(t, "a", next)
		f.wantRunning(t, "beside the one that hangs", 1)
		leaveNext()
		leave()

		f.join(t, "b", m)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		begun = time.Now()
		if err := f.Start(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("the fleet took %v to end", took)
		}
	})
}

// The check does not fail if one cluster is down, but only if all are.
func TestFleetHealth(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleetTest()
		if err := f.Healthz(nil); err != nil {
			t.Errorf("without clusters: %v", err)
		}
		var servers []*fakeapi.Server
		for i := range 12 {
			f.server = newServer(fakeapi.Aggregated())
			servers = append(servers, f.server)
			defer f.join(t, fmt.Sprintf("cluster-%02d", i), f.new(t))()
		}
		for i, server := range servers {
			server.SetFault(fakeapi.All(), fakeapi.Status(http.StatusServiceUnavailable, 0))
			time.Sleep(10 * time.Minute)
			down := 0
			for _, status := range f.Status() {
				if !status.UnhealthySince.IsZero() {
					down++
				}
			}
			if down != i+1 {
				t.Fatalf("%d are down, by the status %d", i+1, down)
			}
			if err := f.Healthz(nil); i < 11 && err != nil {
				t.Fatalf("%d of 12 are down: %v", i+1, err)
			}
		}
		err := f.Healthz(nil)
		for _, want := range []string{`cluster "cluster-00": API discovery has failed since`, `"cluster-05"`, `"cluster-11"`, "503"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("no %q in: %v", want, err)
			}
		}
		servers[5].ClearFaults()
		time.Sleep(10 * time.Minute)
		if err := f.Healthz(nil); err != nil {
			t.Errorf("one has recovered: %v", err)
		}
	})
}
