// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// documentFaults are what may be wrong with the document while single groups and
// versions answer.
func documentFaults() map[string]fakeapi.Fault {
	return map[string]fakeapi.Fault{
		"503": fakeapi.Status(503, 5), "timeout": fakeapi.Timeout(), "truncated": fakeapi.Truncated(),
		"empty list": fakeapi.EmptyGroupList(), "empty 404": fakeapi.Empty(404), "login page": fakeapi.LoginPage(),
	}
}

// A reset makes no lookup weaker: what a version serves is found, although the
// document, which comes first, cannot be read.
func TestVersionsAnswerBesideABrokenDocument(t *testing.T) {
	for name, fault := range documentFaults() {
		for when, reset := range map[string]func(*apiutil.DynamicRESTMapper){
			"no reset":   func(*apiutil.DynamicRESTMapper) {},
			"Reset":      func(m *apiutil.DynamicRESTMapper) { m.Reset() },
			"ResetGroup": func(m *apiutil.DynamicRESTMapper) { m.ResetGroup(lateKind.Group) },
		} {
			t.Run(name+"/"+when, func(t *testing.T) {
				eachServer(t, func(t *testing.T, server *fakeapi.Server) {
					m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
					readAll(t, m)
					serve(server, lateKind)
					serve(server, newKind)
					heal := server.SetFault(fakeapi.At("/apis"), fault)
					for range 2 {
						reset(m)
						wantServed(t, m, lateKind, newKind, fooKind)
					}
					heal()
					wantServed(t, m, lateKind, newKind, fooKind)
				})
			})
		}
	}
}

// A lookup that needs no document does not wait for one that hangs.
func TestVersionsBesideAHangingDocument(t *testing.T) {
	eachWarmMapper(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
		server.SetFault(fakeapi.At("/api", "/apis"), fakeapi.Timeout())
		stop := keepAsking(m, []string{"absent.example.com"})
		time.Sleep(5 * time.Second)
		for n := range 5 {
			took := timed(t, func() error {
				_, err := m.RESTMapping(schema.GroupKind{Group: "g0001.example.com", Kind: "Absent"}, "v1")
				return err
			})
			if took > latency*3/2 {
				t.Errorf("try %d took %v", n, took)
			}
			time.Sleep(13 * time.Second)
		}
		server.ClearFaults()
		stop()
	})
}

// A group that answers again does so at once, although others still hang.
func TestRecoveryBesideHangingGroups(t *testing.T) {
	eachWarmMapper(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
		server.SetFault(fakeapi.InGroup("g0001.example.com"), fakeapi.Times(1, fakeapi.Timeout()))
		server.SetFault(fakeapi.InGroup(hangingGroups...), fakeapi.Timeout())
		stop := keepAsking(m, hangingGroups, "v1")
		time.Sleep(100 * time.Second)
		miss := func() error {
			_, err := m.RESTMapping(schema.GroupKind{Group: "g0001.example.com", Kind: "Absent"}, "v1")
			return err
		}
		if err := miss(); err == nil || meta.IsNoMatchError(err) {
			t.Errorf("while it hangs: %v", err)
		}
		if took := timed(t, miss); took > 31*time.Second {
			t.Errorf("the first lookup since it answers took %v", took)
		}
		for range 5 {
			if took := timed(t, miss); took > latency*3/2 {
				t.Errorf("a lookup after that took %v", took)
			}
		}
		server.ClearFaults()
		stop()
	})
}

// Lookups that have ended leave nothing behind in a group that hangs.
func TestEndedLookupsOfAHangingGroup(t *testing.T) {
	eachWarmMapper(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
		server.SetFault(fakeapi.InGroup(hangingGroups...), fakeapi.Timeout())
		before := runtime.NumGoroutine()
		reason := errors.New("the caller has changed its mind")
		for n := range 1000 {
			ctx, cancel := context.WithTimeoutCause(context.Background(), 10*time.Millisecond, reason)
			start := time.Now()
			gk := schema.GroupKind{Group: hangingGroups[n%3], Kind: fmt.Sprintf("Absent%d", n)}
			_, err := m.RESTMappingWithContext(ctx, gk, [][]string{{"v1"}, nil, {"v1", "v2"}}[n/3%3]...)
			if took := time.Since(start); took != 10*time.Millisecond || !errors.Is(err, reason) || meta.IsNoMatchError(err) {
				t.Fatalf("lookup %d ended after %v: %v", n, took, err)
			}
			cancel()
		}
		synctest.Wait()
		if now := runtime.NumGoroutine(); now > before+20 {
			t.Errorf("%d goroutines, %d before", now, before)
		}
		time.Sleep(5 * time.Minute)
		server.ClearFaults()
		took := timed(t, func() error {
			_, err := m.RESTMapping(schema.GroupKind{Group: hangingGroups[0], Kind: "Absent"}, "v1")
			return err
		})
		if took > latency*3/2 {
			t.Errorf("5 minutes later a lookup took %v", took)
		}
	})
}

// Who began a read may leave it to those who have joined: it goes on for them.
func TestLeaderLeaves(t *testing.T) {
	eachWarmMapper(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
		for _, versions := range [][]string{{"v1"}, nil} {
			for leaves := time.Millisecond; leaves < 8*latency; leaves += 5 * time.Millisecond {
				server.Put(fakeGroup("g0001.example.com", fakeVersion("v1", "Kind0001A")))
				m.ResetGroup("g0001.example.com")
				if _, err := m.RESTMapping(schema.GroupKind{Group: "g0001.example.com", Kind: "Added"}); !meta.IsNoMatchError(err) {
					t.Errorf("before it is there: %v", err)
				}
				server.Put(fakeGroup("g0001.example.com", fakeVersion("v1", "Kind0001A", "Added")))
				added := schema.GroupKind{Group: "g0001.example.com", Kind: "Added"}
				var all sync.WaitGroup
				all.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), leaves)
					defer cancel()
					if _, err := m.RESTMappingWithContext(ctx, added, versions...); meta.IsNoMatchError(err) {
						t.Errorf("left after %v: %v", leaves, err)
					}
				})
				for range 3 {
					all.Go(func() {
						if _, err := m.RESTMapping(added, versions...); err != nil {
							t.Errorf("the other one left after %v: %v", leaves, err)
						}
					})
				}
				all.Wait()
			}
		}
	})
}

// After a Reset a lookup reads the document, and the version only if it is not in
// there; what is known costs two answers without a body.
func TestRequestsAfterReset(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		server.TakeRequests()
		m.Reset()
		wantServed(t, m, fooKind, barKind, otherKind)
		wantRequests(t, server, "known kinds", "/api 304", "/apis 304")
		m.Reset()
		wantAbsent(t, m, schema.GroupVersionKind{Group: fooKind.Group, Version: "v1", Kind: "Absent"})
		wantRequests(t, server, "a miss", "/api 304", "/apis 304", "/apis/example.com/v1 200")
		m.Reset()
		wantAbsent(t, m, newKind)
		wantRequests(t, server, "a miss in an absent group", "/api 304", "/apis 304", "/apis/new.example.com/v1 404")
		serve(server, lateKind)
		m.Reset()
		wantServed(t, m, lateKind)
		wantRequests(t, server, "a kind that the document has", "/api 304", "/apis 200")
		m.Reset()
		if _, err := m.RESTMapping(schema.GroupKind{Group: otherKind.Group, Kind: "Absent"}); !meta.IsNoMatchError(err) {
			t.Error(err)
		}
		wantRequests(t, server, "a miss without a version", "/api 304", "/apis 304", "/apis/other.example.com 200", "/apis/other.example.com/v1 200")
	})
}
