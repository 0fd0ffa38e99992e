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

// hangingGroups are custom groups that do not answer.
var hangingGroups = []string{typicalGroup(10), typicalGroup(11), typicalGroup(12)}

// F9: a miss in one group does not wait for others that hang, however often they
// are asked for. Nor does the first lookup of a known kind after a Reset.
func TestNobodyWaitsForHangingGroups(t *testing.T) {
	askings := [][]string{nil, {"v1"}, {"v1", "v2", "v3"}} // the versions that are named
	lookups := map[string]func(m *apiutil.DynamicRESTMapper) error{}
	for _, versions := range askings {
		for where, group := range map[string]string{"known": typical.Group, "absent": "nowhere.example.com", "core": ""} {
			lookups[fmt.Sprintf("miss of %q in %s", versions, where)] = func(m *apiutil.DynamicRESTMapper) error { return miss(m, group, versions...) }
		}
	}
	for _, gvk := range []schema.GroupVersionKind{{Version: "v1", Kind: "Pod"}, {Group: typical.Group, Version: "v3", Kind: typical.Kind}} {
		lookups[gvk.Kind+" after a Reset"] = func(m *apiutil.DynamicRESTMapper) error { m.Reset(); return lookUp(m, gvk) }
	}
	timed := func(t *testing.T, m *apiutil.DynamicRESTMapper, what string) time.Duration {
		start := time.Now()
		if err := lookups[what](m); err != nil && !meta.IsNoMatchError(err) {
			t.Error(err)
		}
		return time.Since(start)
	}
	for _, asked := range askings {
		for what := range lookups {
			t.Run(fmt.Sprintf("%q/%s", asked, what), func(t *testing.T) {
				eachWarmMapper(t, 3, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
					undisturbed := timed(t, m, what)
					server.SetFault(fakeapi.InGroup(hangingGroups...), fakeapi.Timeout())
					ctx, cancel := context.WithCancel(context.Background())
					var others sync.WaitGroup
					for n := range 9 {
						others.Go(func() {
							for ctx.Err() == nil {
								_, _ = m.RESTMappingWithContext(ctx, schema.GroupKind{Group: hangingGroups[n%3], Kind: fmt.Sprint("Absent", n)}, asked...)
							}
						})
					}
					time.Sleep(5 * time.Second) // until they do nothing but hang
					for n := range 3 {
						if took := timed(t, m, what); took > undisturbed*3/2 {
							t.Errorf("try %d took %v, and %v undisturbed", n, took, undisturbed)
						}
						time.Sleep(13 * time.Second)
					}
					cancel()
					others.Wait()
				})
			})
		}
	}
}

// What is called with a context returns when that ends, with its cause and without NoMatch.
// The reads go on, and their results stay. A thousand calls leave nothing behind.
func TestCallsEndWithTheirContext(t *testing.T) {
	hanging := schema.GroupVersionKind{Group: hangingGroups[0], Version: "v1", Kind: "Absent"}
	lookup := func(versions ...string) func(context.Context, *apiutil.DynamicRESTMapper) error {
		return func(ctx context.Context, m *apiutil.DynamicRESTMapper) error {
			_, err := m.RESTMappingWithContext(ctx, hanging.GroupKind(), versions...)
			return err
		}
	}
	calls := map[string]func(context.Context, *apiutil.DynamicRESTMapper) error{
		"a lookup": lookup(), "of a version": lookup("v1"), "of two": lookup("v1", "v2"),
		"Refresh of a group": func(ctx context.Context, m *apiutil.DynamicRESTMapper) error {
			return m.Refresh(ctx, typical.Group, hanging.Group)
		},
		"WaitForKinds": func(ctx context.Context, m *apiutil.DynamicRESTMapper) error {
			return m.WaitForKinds(ctx, typical, hanging)
		},
	}
	eachWarmMapper(t, 3, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
		server.SetFault(fakeapi.InGroup(hanging.Group), fakeapi.Timeout())
		before, reason := goroutines(), errors.New("the caller has changed its mind")
		for range 200 {
			for name, call := range calls {
				ctx, cancel := context.WithTimeoutCause(context.Background(), latency/2, reason)
				start := time.Now()
				err := call(ctx, m)
				if took := time.Since(start); took != latency/2 || !errors.Is(err, reason) || meta.IsNoMatchError(err) {
					t.Fatalf("%s returned after %v: %v", name, took, err)
				}
				cancel()
			}
		}
		synctest.Wait()
		if now := goroutines(); now > before+20 {
			t.Errorf("%d goroutines, %d before", now, before)
		}
		time.Sleep(5 * time.Minute)
		server.ClearFaults()
		serve(server, hanging)
		ctx, cancel := context.WithTimeout(context.Background(), latency/2)
		defer cancel()
		if err := lookup("v1")(ctx, m); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("5 minutes later: %v", err)
		}
		time.Sleep(latency / 2)
		synctest.Wait()
		server.TakeRequests()
		wantServed(t, m, hanging)
		wantRequests(t, server, "after the read of a lookup that has left")
	})
}

// mostPatient is for how long a lookup of something known waits for what hangs.
const mostPatient = 3 * time.Second
