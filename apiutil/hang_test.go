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
	synctest.Wait()
	return func() {
		cancel()
		all.Wait()
		time.Sleep(2 * time.Minute) // until the requests have timed out
		synctest.Wait()
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
// are asked for.
func TestMissDoesNotWaitForHangingGroups(t *testing.T) {
	for how, others := range askings {
		for what, versions := range askings {
			for where, group := range map[string]string{"known": "g0001.example.com", "absent": "nowhere.example.com", "core": ""} {
				t.Run(how+"/"+what+" in "+where, func(t *testing.T) {
					eachWarmMapper(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
						miss := func() error {
							_, err := m.RESTMapping(schema.GroupKind{Group: group, Kind: "Absent"}, versions...)
							return err
						}
						undisturbed := timed(t, miss)
						server.SetFault(fakeapi.InGroup(hangingGroups...), fakeapi.Timeout())
						stop := keepAsking(m, hangingGroups, others...)
						time.Sleep(5 * time.Second) // until they do nothing but hang
						for n := range 5 {
							if took := timed(t, miss); took > undisturbed*3/2 {
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
}

// F9: nor does the first lookup of a known kind after a Reset.
func TestHitAfterResetDoesNotWaitForHangingGroups(t *testing.T) {
	for how, others := range askings {
		t.Run(how, func(t *testing.T) {
			eachWarmMapper(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
				hit := func(gvk schema.GroupVersionKind) time.Duration {
					m.Reset()
					start := time.Now()
					wantServed(t, m, gvk)
					return time.Since(start)
				}
				undisturbed := hit(schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
				server.SetFault(fakeapi.InGroup(hangingGroups...), fakeapi.Timeout())
				stop := keepAsking(m, hangingGroups, others...)
				time.Sleep(5 * time.Second)
				for _, gvk := range []schema.GroupVersionKind{
					{Version: "v1", Kind: "Pod"}, {Group: "g0001.example.com", Version: "v3", Kind: "Kind0001A"},
				} {
					if took := hit(gvk); took > undisturbed {
						t.Errorf("%s took %v, and %v undisturbed", gvk, took, undisturbed)
					}
					time.Sleep(45 * time.Second)
				}
				stop()
			})
		})
	}
}

// Lookups that have ended leave nothing behind in a group that hangs.
func TestEndedLookupsLeaveNothingBehind(t *testing.T) {
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

// mostPatient is for how long a lookup of something known waits for what hangs.
const mostPatient = 3 * time.Second
