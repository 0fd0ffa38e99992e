// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A lookup whose context ends leaves. The flight goes on and publishes what it finds.
func TestWaitersLeave(t *testing.T) {
	withFlights(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
		server.PutVersion(typical.Group, fakeVersion("v1", "Kind0001A", "Late"))
		late := schema.GroupKind{Group: typical.Group, Kind: "Late"}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := m.RESTMappingWithContext(ctx, late, "v1")
		if took := time.Since(start); took != 10*time.Millisecond {
			t.Errorf("left after %v", took)
		}
		if !errors.Is(err, context.DeadlineExceeded) || meta.IsNoMatchError(err) {
			t.Errorf("got %v", err)
		}
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		server.TakeRequests()
		if _, err := m.RESTMapping(late, "v1"); err != nil || len(server.TakeRequests()) > 0 {
			t.Errorf("what the flight found is not there: %v", err)
		}
	})
}

// A flight that everybody has left before it began does not start. It waited for the one
// of the same read that was under way.
func TestAbandonedFlights(t *testing.T) {
	withFlights(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
		ctx, cancel := context.WithCancelCause(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = m.RESTMapping(absentKind(0), "v1") })
		synctest.Wait()
		reason := errors.New("the caller has changed its mind")
		for i := range 20 {
			wg.Go(func() {
				_, err := m.RESTMappingWithContext(ctx, absentKind(i), "v1", "v2")
				if !errors.Is(err, reason) || meta.IsNoMatchError(err) {
					t.Errorf("got %v", err)
				}
			})
		}
		synctest.Wait()
		cancel(reason)
		wg.Wait()
		time.Sleep(time.Second)
		wantRequests(t, server, "of all lookups", "/apis/g0001.example.com/v1 200")
	})
}

// A lookup whose context has ended already reads nothing, and returns what is known.
func TestEndedContext(t *testing.T) {
	withFlights(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		for _, form := range lookupForms(typical.WithVersion("v1")) {
			if answer, err := form.ask(ctx, m); err != nil || answer != form.want {
				t.Errorf("%s: %q, %v", form.name, answer, err)
			}
		}
		if _, err := m.RESTMappingWithContext(ctx, absentKind(0)); !errors.Is(err, context.Canceled) || meta.IsNoMatchError(err) {
			t.Errorf("got %v", err)
		}
		m.Reset()
		if _, err := m.RESTMappingWithContext(ctx, typical, "v1"); !errors.Is(err, context.Canceled) {
			t.Errorf("after a reset: %v", err)
		}
		synctest.Wait()
		if requests := server.TakeRequests(); len(requests) > 0 {
			t.Errorf("requests: %v", requests)
		}
	})
}

// The lookup that began a read may leave. The read goes on for the lookups that have
// joined.
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
