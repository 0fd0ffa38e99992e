// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
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

// latency is what a request takes in the tests of this file.
const latency = 20 * time.Millisecond

// hangingGroups are custom groups that do not answer, in those tests that have any.
var hangingGroups = []string{"g0010.example.com", "g0011.example.com", "g0012.example.com"}

// eachWarmMapper runs test in both modes, with a mapper that knows all of a server
// with 20 groups.
func eachWarmMapper(t *testing.T, test func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper)) {
	eachMode(t, bothModes, func(t *testing.T, forms fakeapi.Forms) {
		inBubble(t, func(t *testing.T) {
			server := fakeapi.New(fakeapi.Typical(20, 3, 2)...)
			server.SetForms(forms)
			m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
			if _, err := m.ResourceSingularizer("pods"); err != nil {
				t.Fatal(err)
			}
			server.SetLatency(latency)
			server.TakeRequests()
			test(t, server, m)
		})
	})
}

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
func TestMissBesideHangingGroups(t *testing.T) {
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

// The same with many hanging groups: more than there are flights at once.
func TestMissBesideManyHangingGroups(t *testing.T) {
	eachWarmMapper(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
		var hanging []string
		for n := 2; n <= 20; n++ {
			hanging = append(hanging, fmt.Sprintf("g%04d.example.com", n))
		}
		miss := func() error {
			_, err := m.RESTMapping(schema.GroupKind{Group: "g0001.example.com", Kind: "Absent"}, "v1")
			return err
		}
		undisturbed := timed(t, miss)
		server.SetFault(fakeapi.InGroup(hanging...), fakeapi.Timeout())
		stop := keepAsking(m, hanging, "v1")
		time.Sleep(100 * time.Second) // until all of them are known to hang
		for n := range 10 {
			if took := timed(t, miss); took > undisturbed*3/2 {
				t.Errorf("try %d took %v, and %v undisturbed", n, took, undisturbed)
			}
			time.Sleep(13 * time.Second)
		}
		stop()
	})
}

// F9: nor does the first lookup of a known kind after a Reset.
func TestResetBesideHangingGroups(t *testing.T) {
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

// The hanging group itself: a kind that was known is served, a lookup of anything
// else is an error when the request has timed out, and not later.
func TestLookupInHangingGroup(t *testing.T) {
	eachWarmMapper(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
		group := hangingGroups[0]
		server.SetFault(fakeapi.InGroup(group), fakeapi.Timeout())
		stop := keepAsking(m, []string{group}, "v1")
		for n := range 3 {
			start := time.Now()
			_, err := m.RESTMapping(schema.GroupKind{Group: group, Kind: "Other"}, "v1")
			if err == nil || meta.IsNoMatchError(err) {
				t.Errorf("try %d: %v", n, err)
			}
			// One flight may be under way, and the lookup takes the next.
			if took := time.Since(start); took > 61*time.Second {
				t.Errorf("try %d took %v", n, took)
			}
			wantServed(t, m, schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Kind0010A"})
		}
		server.ClearFaults()
		stop()
		start := time.Now()
		_, err := m.RESTMapping(schema.GroupKind{Group: group, Kind: "Other"}, "v1")
		if took := time.Since(start); !meta.IsNoMatchError(err) || took > 2*latency {
			t.Errorf("healed: %v after %v", err, took)
		}
	})
}

// Misses in different groups go side by side.
func TestMissesInDifferentGroups(t *testing.T) {
	for _, test := range []struct {
		name      string
		group     string
		versions  []string
		latencies float64 // that all may take
	}{
		{"absent groups, a version", "absent%d.example.com", []string{"v1"}, 2.5},
		{"absent groups, no version", "absent%d.example.com", nil, 5},
		{"known groups, a version", "g%04d.example.com", []string{"v1"}, 2.5},
	} {
		t.Run(test.name, func(t *testing.T) {
			eachWarmMapper(t, func(t *testing.T, _ *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
				took := allAtOnce(10, func(i int) {
					gk := schema.GroupKind{Group: fmt.Sprintf(test.group, i+1), Kind: "Absent"}
					if _, err := m.RESTMapping(gk, test.versions...); !meta.IsNoMatchError(err) {
						t.Error(err)
					}
				})
				if most := time.Duration(test.latencies * float64(latency)); took > most {
					t.Errorf("took %v, want at most %v", took, most)
				}
			})
		})
	}
}

// The requests of one lookup follow each other, whatever it is about.
func TestRequestsOfOneLookupAreSequential(t *testing.T) {
	withLanes(t, func(t *testing.T, server *fakeapi.Server, _ *apiutil.DynamicRESTMapper) {
		m, watched := newLanesMapper(t, server)
		for _, reset := range []func(){func() {}, m.Reset, func() { m.ResetGroup(typical.Group) }} {
			for _, form := range lookupForms(schema.GroupVersionKind{Group: typical.Group, Version: "v1", Kind: "Absent"}) {
				reset()
				if _, err := form.ask(context.Background(), m); !meta.IsNoMatchError(err) {
					t.Errorf("%s: %v", form.name, err)
				}
			}
			if _, err := m.RESTMapping(absentKind(0), "v3", "v2", "v1"); !meta.IsNoMatchError(err) {
				t.Error(err)
			}
		}
		if watched.most != 1 {
			t.Errorf("%d requests at once", watched.most)
		}
	})
}

// 200 lookups of one absent kind in one version are 3 requests at most.
func TestIdenticalMisses(t *testing.T) {
	eachWarmMapper(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
		for _, group := range []string{"g0001.example.com", "absent.example.com", ""} {
			server.TakeRequests()
			allAtOnce(200, func(int) {
				if _, err := m.RESTMapping(schema.GroupKind{Group: group, Kind: "Absent"}, "v1"); !meta.IsNoMatchError(err) {
					t.Error(err)
				}
			})
			if requests := server.TakeRequests(); len(requests) > 3 {
				t.Errorf("%q: %d requests: %v", group, len(requests), requests)
			}
		}
	})
}
