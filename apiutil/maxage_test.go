// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// defaultMaxAge is the MaxAge of a mapper without options.
const defaultMaxAge = 30 * time.Second

// maxAges are options that have this MaxAge.
var maxAges = map[string]struct {
	opts apiutil.DynamicRESTMapperOptions
	age  time.Duration
}{

	"by default": {apiutil.DynamicRESTMapperOptions{}, defaultMaxAge},
	"as said":    {apiutil.DynamicRESTMapperOptions{MaxAge: 5 * time.Minute}, 5 * time.Minute},
}

// withAge runs test in both modes with a warm mapper of a slow server.
func withAge(t *testing.T, test func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper, age time.Duration)) {
	for name, maxAge := range maxAges {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				m := newMapper(t, server, maxAge.opts)
				readAll(t, m)
				server.SetLatency(latency)
				server.TakeRequests()
				test(t, server, m, maxAge.age)
			})
		})
	}
}

// wantImmediate asks for a kind that is known and fails the test if that takes time.
func wantImmediate(t *testing.T, m *apiutil.DynamicRESTMapper, when string, gvk schema.GroupVersionKind) {
	t.Helper()
	start := time.Now()
	if err := lookUp(m, gvk); err != nil {
		t.Errorf("%s: %v", when, err)
	}
	if took := time.Since(start); took > 0 {
		t.Errorf("%s: a hit took %v", when, took)
	}
}

// F4: the first hit after MaxAge starts a refresh and does not wait for it; the hits
// after it get what it found.
func TestMaxAge(t *testing.T) {
	for what, remove := range map[string]func(*fakeapi.Server){
		"kind":    func(s *fakeapi.Server) { s.PutVersion("example.com", fakeVersion("v1", "Bar")) },
		"version": func(s *fakeapi.Server) { s.Put(fakeGroup("example.com", fakeVersion("v2", "Bar"))) },
		"group":   func(s *fakeapi.Server) { s.Remove("example.com") },
	} {
		t.Run(what, func(t *testing.T) {
			withAge(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper, age time.Duration) {
				remove(server)
				time.Sleep(age - time.Second)
				wantImmediate(t, m, "before MaxAge", fooKind)
				time.Sleep(time.Second / 2)
				wantRequests(t, server, "before MaxAge")
				time.Sleep(time.Second)
				wantImmediate(t, m, "the first hit after MaxAge", fooKind)
				time.Sleep(time.Second)
				if n := len(server.TakeRequests()); n == 0 {
					t.Error("no refresh after MaxAge")
				}
				wantAbsent(t, m, fooKind)
				wantServed(t, m, otherKind)
			})
		})
	}
}

// Without lookups there is no request and no goroutine.
func TestMaxAgeWhileNobodyAsks(t *testing.T) {
	withAge(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper, _ time.Duration) {
		synctest.Wait()
		before := runtime.NumGoroutine()
		time.Sleep(24 * time.Hour)
		for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > before && time.Now().Before(end); {
			time.Sleep(time.Second) // one that has ended may still be counted
		}
		if n := runtime.NumGoroutine(); n > before {
			t.Errorf("%d goroutines, %d before", n, before)
		}
		wantRequests(t, server, "in a day without lookups")
		wantImmediate(t, m, "a day later", fooKind)
		time.Sleep(time.Hour)
		if n := len(server.TakeRequests()); n == 0 || n > 10 {
			t.Errorf("%d requests for one hit", n)
		}
	})
}

// Hits all the time, from many goroutines, refresh once each MaxAge.
func TestMaxAgeOfBusyMapper(t *testing.T) {
	withAge(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper, age time.Duration) {
		const ages = 10
		for start := time.Now(); time.Since(start) < ages*age; time.Sleep(age / 100) {
			allAtOnce(8, func(int) { wantImmediate(t, m, "busy", fooKind) })
		}
		refreshes := 0
		for _, r := range server.TakeRequests() {
			if r.Path == "/apis" {
				refreshes++
			}
		}
		if refreshes < ages-2 || refreshes > ages+1 {
			t.Errorf("%d refreshes in %d times MaxAge", refreshes, ages)
		}
	})
}

// Every kind of hit starts a refresh, also lookups by resource and without a group.
func TestMaxAgeOfEveryLookup(t *testing.T) {
	for _, form := range lookupForms(fooKind) {
		t.Run(form.name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
				readAll(t, m)
				server.TakeRequests()
				time.Sleep(defaultMaxAge + time.Second)
				form.wantAnswer(t, m, "after MaxAge")
				synctest.Wait()
				if n := len(server.TakeRequests()); n == 0 {
					t.Error("no refresh after MaxAge")
				}
			})
		})
	}
}

// With a negative MaxAge no hit starts a refresh.
func TestNoMaxAge(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{MaxAge: -1})
		readAll(t, m)
		server.TakeRequests()
		for range 100 {
			time.Sleep(time.Minute)
			wantImmediate(t, m, "without MaxAge", fooKind)
		}
		wantRequests(t, server, "hits without MaxAge")
	})
}

// R5: only a refresh counts as a confirmation, and no other read.
func TestMaxAgeCountsFromTheLastRefresh(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		for range 10 {
			if err := m.Refresh(context.Background()); err != nil {
				t.Fatal(err)
			}
			server.TakeRequests()
			time.Sleep(defaultMaxAge * 2 / 3)
			wantImmediate(t, m, "young", fooKind)
			wantRequests(t, server, "a young hit")
			wantAbsent(t, m, newKind)
			readAll(t, m)
			server.TakeRequests()
			time.Sleep(defaultMaxAge/3 + time.Second)
			wantImmediate(t, m, "old", fooKind)
			synctest.Wait()
			if n := len(server.TakeRequests()); n == 0 {
				t.Error("no refresh after MaxAge, because of what lookups have read")
			}
		}
	})
}

// A server that does not answer costs hits nothing and is not asked again and again.
func TestMaxAgeDuringAnOutage(t *testing.T) {
	for name, fault := range map[string]fakeapi.Fault{
		"timeout": fakeapi.Timeout(), "503": fakeapi.Status(503, 5), "refused": fakeapi.Refused(), "empty 404": fakeapi.Empty(404),
	} {
		t.Run(name, func(t *testing.T) {
			withAge(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper, age time.Duration) {
				heal := server.SetFault(fakeapi.All(), fault)
				for range 1000 {
					wantImmediate(t, m, "during an outage", fooKind)
					time.Sleep(age / 100)
				}
				if n := len(server.TakeRequests()); n == 0 || n > 50 {
					t.Errorf("%d requests in 10 times MaxAge", n)
				}
				server.PutVersion("example.com", fakeVersion("v1", "Bar"))
				heal()
				for start := time.Now(); time.Since(start) < 3*age && lookUp(m, fooKind) == nil; {
					time.Sleep(age / 10)
				}
				wantAbsent(t, m, fooKind)
			})
		})
	}
}

// F9: a group that hangs does not keep other mappings from being confirmed.
func TestMaxAgeBesideAHangingGroup(t *testing.T) {
	withAge(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper, age time.Duration) {
		server.SetFault(fakeapi.InGroup(otherKind.Group), fakeapi.Timeout())
		stop := keepAsking(m, []string{otherKind.Group}, "v1")
		server.PutVersion("example.com", fakeVersion("v1", "Foo:cluster", "Bar"))
		time.Sleep(age + time.Second)
		wantImmediate(t, m, "the first hit", fooKind)
		time.Sleep(time.Second)
		mapping, err := m.RESTMapping(fooKind.GroupKind(), "v1")
		if err != nil || mapping.Scope.Name() != meta.RESTScopeNameRoot {
			t.Errorf("the hit after the refresh: %v", answered(mappingText(mapping), err))
		}
		wantImmediate(t, m, "a kind of the group that hangs", otherKind)
		server.ClearFaults()
		stop()
	})
}

// For a refresh of MaxAge, too, a repeated document is no news: what was read live stays,
// and is confirmed live.
func TestMaxAgeBesideALaggingDocument(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		m := laggingServer(t, server, false, apiutil.DynamicRESTMapperOptions{})
		serve(server, lateKind)
		wantServed(t, m, lateKind)
		for range 5 {
			time.Sleep(defaultMaxAge + time.Second)
			wantImmediate(t, m, "a kind that the document lacks", lateKind)
			synctest.Wait()
		}
		server.RemoveVersion(lateKind.Group, lateKind.Version)
		time.Sleep(defaultMaxAge + time.Second)
		_ = lookUp(m, lateKind)
		time.Sleep(time.Second)
		wantAbsent(t, m, lateKind)
	})
}
