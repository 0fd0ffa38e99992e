// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"fmt"
	"path"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

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

func TestStormOfMisses(t *testing.T) {
	for _, storm := range []struct {
		name     string
		lookup   func(m *apiutil.DynamicRESTMapper, i int) error
		requests map[string]int // at most
	}{
		{"one kind, one version", func(m *apiutil.DynamicRESTMapper, _ int) error {
			_, err := m.RESTMapping(absentKind(0), "v1")
			return err
		}, map[string]int{"aggregated": 3, "legacy": 3}},
		{"200 kinds, one version", func(m *apiutil.DynamicRESTMapper, i int) error {
			_, err := m.RESTMapping(absentKind(i), "v1")
			return err
		}, map[string]int{"aggregated": 3, "legacy": 3}},
		{"one kind, any version", func(m *apiutil.DynamicRESTMapper, _ int) error {
			_, err := m.RESTMapping(absentKind(0))
			return err
		}, map[string]int{"aggregated": 8, "legacy": 4}},
		{"200 kinds, any version", func(m *apiutil.DynamicRESTMapper, i int) error {
			_, err := m.RESTMapping(absentKind(i))
			return err
		}, map[string]int{"aggregated": 8, "legacy": 4}},
		{"200 resources, any group", func(m *apiutil.DynamicRESTMapper, i int) error {
			_, err := m.KindFor(schema.GroupVersionResource{Resource: fmt.Sprintf("absent%ds", i)})
			return err
		}, map[string]int{"aggregated": 4, "legacy": 2 * 53}},
	} {
		t.Run(storm.name, func(t *testing.T) {
			withFlights(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
				took := allAtOnce(200, func(i int) {
					if err := storm.lookup(m, i); !meta.IsNoMatchError(err) {
						t.Error(err)
					}
				})
				requests := server.TakeRequests()
				if most := storm.requests[path.Base(t.Name())]; len(requests) > most {
					t.Errorf("%d requests in %v, at most %d: %v", len(requests), took, most, requests)
				}
			})
		})
	}
}

// The first lookups of a program come all at once.
func TestStormOfFirstLookups(t *testing.T) {
	withFlights(t, func(t *testing.T, server *fakeapi.Server, _ *apiutil.DynamicRESTMapper) {
		m, _ := newFlightsMapper(t, server) // which knows nothing yet
		allAtOnce(200, func(int) {
			if _, err := m.RESTMapping(typical, "v1"); err != nil {
				t.Error(err)
			}
		})
		// The first of them starts the first flight at once, the others share the second.
		if requests := server.TakeRequests(); len(requests) > 6 {
			t.Errorf("%d requests: %v", len(requests), requests)
		}
	})
}
