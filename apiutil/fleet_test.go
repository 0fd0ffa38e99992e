// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// fleetTest is a fleet whose mappers refresh each minute.
type fleetTest struct {
	*apiutil.Fleet
	server *fakeapi.Server // of the mappers that new makes
}

func newFleetTest() *fleetTest {
	fleet := apiutil.NewFleet(apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute, MaxAge: -1})
	return &fleetTest{fleet, newServer(fakeapi.Aggregated())}
}

func (f *fleetTest) new(t *testing.T) *apiutil.DynamicRESTMapper {
	return f.through(t, f.server.Client())
}

func (f *fleetTest) through(t *testing.T, client *http.Client) *apiutil.DynamicRESTMapper {
	t.Helper()
	m, err := f.Provider("")(f.server.Config(), client)
	if err != nil {
		t.Fatal(err)
	}
	return m.(*apiutil.DynamicRESTMapper)
}

// join engages a cluster until leave is called, which returns when the engagement has
// ended.
func (f *fleetTest) join(t *testing.T, cluster string, m meta.RESTMapper) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	if err := f.Engage(ctx, cluster, m); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return func() {
		cancel()
		synctest.Wait()
	}
}

// refreshes is how often the server is asked for its document in ten minutes.
func (f *fleetTest) refreshes() int {
	f.server.TakeRequests()
	time.Sleep(10 * time.Minute)
	n := 0
	for _, r := range f.server.TakeRequests() {
		if r.Path == "/apis" {
			n++
		}
	}
	return n
}

// wantRunning fails the test unless n mappers refresh.
func (f *fleetTest) wantRunning(t *testing.T, when string, n int) {
	t.Helper()
	if got := f.refreshes(); got < 10*n || got > 12*n {
		t.Errorf("%s: %d refreshes in ten minutes, want about %d", when, got, 10*n)
	}
}

// wantMapper fails the test unless m is the mapper of the cluster; nil: there is none.
func (f *fleetTest) wantMapper(t *testing.T, cluster string, m *apiutil.DynamicRESTMapper) {
	t.Helper()
	if got, err := f.For(cluster, nil, nil); got != m || (err == nil) != (m != nil) {
		t.Errorf("For(%q) = %p, %v; want %p", cluster, got, err, m)
	}
	if _, ok := f.Status()[cluster]; ok != (m != nil) {
		t.Errorf("Status has %q: %t", cluster, ok)
	}
}

// forKey returns the mapper of a key, after a lookup of a served kind.
func forKey(t *testing.T, f *apiutil.Fleet, key string, server *fakeapi.Server) *apiutil.DynamicRESTMapper {
	t.Helper()
	m, err := f.For(key, server.Config(), server.Client())
	if err != nil {
		t.Fatal(err)
	}
	wantServed(t, m, fooKind)
	return m
}

// The first client of a key reads the server, in two requests. The others read nothing.
func TestFleetReadsOncePerKey(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f, server := apiutil.NewFleet(apiutil.DynamicRESTMapperOptions{}), newServer(fakeapi.Aggregated())
		first := forKey(t, f, "a", server)
		for range 10_000 {
			if forKey(t, f, "a", server) != first {
				t.Fatal("another mapper for the same key")
			}
		}
		wantRequests(t, server, "10,001 clients of one key", "/api 200", "/apis 200")
		if forKey(t, f, "b", server) == first {
			t.Error("one mapper for two keys")
		}
		wantRequests(t, server, "another key", "/api 200", "/apis 200")
		f.Remove("a")
		f.Remove("a")
		if forKey(t, f, "a", server) == first {
			t.Error("a removed mapper is still there")
		}
		wantRequests(t, server, "a removed key", "/api 200", "/apis 200")
		server.SetLatency(time.Second) // so that all have asked before the first read ends
		var all sync.WaitGroup
		found := make([]*apiutil.DynamicRESTMapper, 50)
		for i := range found {
			all.Add(1)
			go func() {
				defer all.Done()
				found[i] = forKey(t, f, "c", server)
			}()
		}
		all.Wait()
		for _, m := range found {
			if m != found[0] {
				t.Error("two mappers for one key that was new to many at once")
			}
		}
		// Those that came while the first was reading may read once more.
		if n := len(server.TakeRequests()); n > 4 {
			t.Errorf("%d requests for many at once", n)
		}
	})
}

// Without a key nothing is shared, and nothing is kept.
func TestFleetWithoutKey(t *testing.T) {
	f, server := apiutil.NewFleet(apiutil.DynamicRESTMapperOptions{}), newServer(fakeapi.Aggregated())
	first, second := forKey(t, f, "", server), forKey(t, f, "", server)
	if first == second {
		t.Error("one mapper twice")
	}
	if len(f.Status()) > 0 {
		t.Errorf("kept: %v", f.Status())
	}
	if err := f.Engage(t.Context(), "", forKey(t, f, "", server)); err != nil || len(f.Status()) != 1 {
		t.Errorf("a cluster of no name: %v, %v", err, f.Status())
	}
	first, second = forKey(t, f, "", server), forKey(t, f, "", server)
	if first == second {
		t.Error("one mapper twice, because a cluster has no name")
	}
}

// tokens notes who has asked a server.
type tokens struct {
	next http.RoundTripper
	mu   sync.Mutex
	seen map[string]int
}

func (tk *tokens) RoundTrip(req *http.Request) (*http.Response, error) {
	tk.mu.Lock()
	tk.seen[req.Header.Get("Authorization")]++
	tk.mu.Unlock()
	return tk.next.RoundTrip(req)
}

// A key stands for a server and credentials, and nothing else is compared: a caller that
// takes it for others is told what the first may see. But its credentials go nowhere, and
// what the first is told does not change.
func TestFleetKeyOfAnotherConfig(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := apiutil.NewFleet(apiutil.DynamicRESTMapperOptions{})
		forConfig := func(server *fakeapi.Server, token string) (*apiutil.DynamicRESTMapper, *tokens) {
			asked := &tokens{next: server.Client().Transport, seen: map[string]int{}}
			cfg := &rest.Config{Host: "http://fake.invalid", Transport: asked, BearerToken: token, QPS: -1}
			client, err := rest.HTTPClientFor(cfg)
			if err != nil {
				t.Fatal(err)
			}
			m, err := f.For("a", cfg, client)
			if err != nil {
				t.Fatal(err)
			}
			return m, asked
		}
		server, hostile := newServer(fakeapi.Aggregated()), newServer(fakeapi.Aggregated())
		serve(hostile, newKind)
		first, askedFirst := forConfig(server, "first")
		wantServed(t, first, fooKind)
		second, askedSecond := forConfig(hostile, "second")
		wantServed(t, second, fooKind)
		wantAbsent(t, second, newKind)
		time.Sleep(time.Minute)
		wantServed(t, second, fooKind)
		synctest.Wait()
		if len(askedSecond.seen) != 0 || len(askedFirst.seen) != 1 || askedFirst.seen["Bearer first"] == 0 {
			t.Errorf("the first server was asked by %v, the second by %v", askedFirst.seen, askedSecond.seen)
		}
		f.Remove("a")
		second, askedSecond = forConfig(hostile, "second")
		wantServed(t, second, newKind)
		wantAbsent(t, first, newKind)
		if len(askedSecond.seen) != 1 || askedSecond.seen["Bearer second"] == 0 || len(askedFirst.seen) != 1 {
			t.Errorf("removed: the first server was asked by %v, the second by %v", askedFirst.seen, askedSecond.seen)
		}
	})
}

// What is not used for IdleTimeout goes, by itself, and its refresh with it. A lookup is a
// use, also one that answers as stock's mapper does; so is For.
func TestFleetIdleTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleetTest()
		f.IdleTimeout = 5 * time.Minute
		used := forKey(t, f.Fleet, "used", f.server)
		asked := forKey(t, f.Fleet, "asked", f.server)
		stock := forKey(t, f.Fleet, "stock", f.server)
		forKey(t, f.Fleet, "idle", f.server)
		engaged := f.new(t)
		leave := f.join(t, "engaged", engaged)
		for minute := range 20 {
			time.Sleep(time.Minute)
			wantServed(t, used, fooKind)
			if _, err := stock.RESTMapping(fooKind.GroupKind(), apiutil.AsStock(fooKind.Version)...); err != nil {
				t.Fatal(err)
			}
			if forKey(t, f.Fleet, "asked", f.server) != asked {
				t.Fatalf("gone after %d minutes though it was asked for each minute", minute+1)
			}
			if _, ok := f.Status()["idle"]; ok != (minute < 5) {
				t.Fatalf("idle for %d minutes: in the fleet %t", minute+1, ok)
			}
		}
		f.wantMapper(t, "used", used)
		f.wantMapper(t, "stock", stock)
		f.wantMapper(t, "engaged", engaged)
		time.Sleep(6 * time.Minute)
		f.wantMapper(t, "used", nil)
		f.wantMapper(t, "asked", nil)
		f.wantRunning(t, "one is engaged", 1)
		leave()
		f.wantRunning(t, "none is left", 0)
		wantServed(t, used, fooKind) // who has it may go on using it
	})
}

// At most MaxMappers stay, the ones used last, and of those that are engaged all.
func TestFleetMaxMappers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleetTest()
		f.MaxMappers = 3
		engaged := f.new(t)
		defer f.join(t, "engaged", engaged)()
		for i := range 3 {
			forKey(t, f.Fleet, strconv.Itoa(i), f.server)
		}
		forKey(t, f.Fleet, "0", f.server)
		for i := range 2 {
			forKey(t, f.Fleet, strconv.Itoa(i+3), f.server)
		}
		for key, there := range map[string]bool{"engaged": true, "0": true, "1": false, "2": false, "3": true, "4": true} {
			if _, ok := f.Status()[key]; ok != there {
				t.Errorf("%q is in the fleet: %t", key, ok)
			}
		}
		f.wantRunning(t, "three and the engaged one", 4)
		time.Sleep(11 * time.Minute)
		f.wantRunning(t, "the engaged one", 1)
	})
}

// An error does not say which cluster it is of: all are reset, and the log names each.
func TestFleetResetOnNoMatch(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		log, logger := newTestLog()
		f := apiutil.NewFleet(apiutil.DynamicRESTMapperOptions{Logger: logger})
		servers := map[string]*fakeapi.Server{"a": newServer(fakeapi.Aggregated()), "b": newServer(fakeapi.Aggregated())}
		for key, server := range servers {
			forKey(t, f, key, server)
			server.TakeRequests()
		}
		if f.ResetOnNoMatch(nil) || f.ResetOnNoMatch(context.Canceled) {
			t.Error("reset for an error that says nothing of discovery")
		}
		if !f.ResetOnNoMatch(fmt.Errorf("reconcile: %w", &meta.NoKindMatchError{GroupKind: newKind.GroupKind()})) {
			t.Error("not reset")
		}
		for key, server := range servers {
			forKey(t, f, key, server)
			wantRequests(t, server, "the lookup after the reset", "/api 304", "/apis 304")
			wantLine(t, log.containing(`because discovery is stale" "cluster"="`+key+`"`), "the RESTMapper is reset")
		}
	})
}
