// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// hangingGroups are custom groups that do not answer, in those tests that have any.
var hangingGroups = []string{"g0010.example.com", "g0011.example.com", "g0012.example.com"}

// keepAsking looks up an absent kind in each of the groups, again and again from
// three goroutines each, until stop is called.
func keepAsking(m *apiutil.DynamicRESTMapper, groups []string, versions ...string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, group := range groups {
		for n := range 3 {
			all.Go(func() {
				gk := schema.GroupKind{Group: group, Kind: fmt.Sprintf("Absent%d", n)}
				for ctx.Err() == nil {
					_, _ = m.RESTMappingWithContext(ctx, gk, versions...)
				}
			})
		}
	}
	time.Sleep(5 * time.Second) // until they do nothing but hang
	return func() {
		cancel()
		all.Wait()
		time.Sleep(2 * time.Minute) // until the requests have timed out
	}
}

// timed returns how long the lookup of an absent kind takes.
func timed(t *testing.T, lookup func() error) time.Duration {
	t.Helper()
	start := time.Now()
	if err := lookup(); !meta.IsNoMatchError(err) {
		t.Errorf("%v; want NoMatch", err)
	}
	return time.Since(start)
}

// askings are the ways in which others ask for the groups that hang.
var askings = map[string][]string{"without a version": nil, "with a version": {"v1"}, "with three versions": {"v1", "v2", "v3"}}

// F9: a miss in one group does not wait for others that hang, however often they
// are asked for. Nor does the first lookup of a known kind after a Reset.
func TestNobodyWaitsForHangingGroups(t *testing.T) {
	lookups := map[string]func(t *testing.T, m *apiutil.DynamicRESTMapper) time.Duration{}
	for what, versions := range askings {
		for where, group := range map[string]string{"known": "g0001.example.com", "absent": "nowhere.example.com", "core": ""} {
			lookups["miss "+what+" in "+where] = func(t *testing.T, m *apiutil.DynamicRESTMapper) time.Duration {
				return timed(t, func() error { return miss(m, group, versions...) })
			}
		}
	}
	for _, gvk := range []schema.GroupVersionKind{{Version: "v1", Kind: "Pod"}, {Group: "g0001.example.com", Version: "v3", Kind: "Kind0001A"}} {
		lookups[gvk.Kind+" after a Reset"] = func(t *testing.T, m *apiutil.DynamicRESTMapper) time.Duration {
			m.Reset()
			start := time.Now()
			wantServed(t, m, gvk)
			return time.Since(start)
		}
	}
	for how, others := range askings {
		for what, lookup := range lookups {
			t.Run(how+"/"+what, func(t *testing.T) {
				eachWarmMapper(t, 3, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
					undisturbed := lookup(t, m)
					server.SetFault(fakeapi.InGroup(hangingGroups...), fakeapi.Timeout())
					stop := keepAsking(m, hangingGroups, others...)
					for n := range 3 {
						if took := lookup(t, m); took > undisturbed*3/2 {
							t.Errorf("try %d took %v, and %v undisturbed", n, took, undisturbed)
						}
						time.Sleep(13 * time.Second)
					}
					stop()
				})
			})
		}
	}
}

// A lookup that needs no document does not wait for one that hangs.
func TestNamedVersionDoesNotWaitForTheDocument(t *testing.T) {
	eachWarmMapper(t, 3, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
		server.SetFault(fakeapi.At("/api", "/apis"), fakeapi.Timeout())
		stop := keepAsking(m, []string{"absent.example.com"})
		for n := range 5 {
			if took := timed(t, func() error { return miss(m, typical.Group, "v1") }); took > latency*3/2 {
				t.Errorf("try %d took %v", n, took)
			}
			time.Sleep(13 * time.Second)
		}
		server.ClearFaults()
		stop()
	})
}

// Lookups that have ended leave nothing behind in a group that hangs.
func TestEndedLookupsLeaveNothingBehind(t *testing.T) {
	eachWarmMapper(t, 3, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
		server.SetFault(fakeapi.InGroup(hangingGroups...), fakeapi.Timeout())
		before := goroutines()
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
		if now := goroutines(); now > before+20 {
			t.Errorf("%d goroutines, %d before", now, before)
		}
		time.Sleep(5 * time.Minute)
		server.ClearFaults()
		if took := timed(t, func() error { return miss(m, hangingGroups[0], "v1") }); took > latency*3/2 {
			t.Errorf("5 minutes later a lookup took %v", took)
		}
	})
}

// mostPatient is for how long a lookup of something known waits for what hangs.
const mostPatient = 3 * time.Second
