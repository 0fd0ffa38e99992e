// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

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
