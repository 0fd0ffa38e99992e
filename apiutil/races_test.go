// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// Lookups, changes and resets that meet each other's reads at every moment. A
// request takes 20 ms and is answered with what was served when it arrived.

// moments are when something may happen to reads that began at 0.
func moments() []time.Duration {
	var list []time.Duration
	for d := 5 * time.Millisecond; d < 160*time.Millisecond; d += 10 * time.Millisecond {
		list = append(list, d)
	}
	return list
}

// othersReads are what others may be reading meanwhile: nothing that is served.
var othersReads = map[string]func(m *apiutil.DynamicRESTMapper, group string){
	"a version": func(m *apiutil.DynamicRESTMapper, group string) {
		_, _ = m.RESTMapping(schema.GroupKind{Group: group, Kind: "Absent"}, "v1")
	},
	"versions": func(m *apiutil.DynamicRESTMapper, group string) {
		_, _ = m.RESTMapping(schema.GroupKind{Group: group, Kind: "Absent"}, "v1", "v2", "v3")
	},
	"a group": func(m *apiutil.DynamicRESTMapper, group string) {
		_, _ = m.RESTMapping(schema.GroupKind{Group: group, Kind: "Absent"})
	},
	"a prefix": func(m *apiutil.DynamicRESTMapper, group string) {
		_, _ = m.KindFor(schema.GroupVersionResource{Group: group, Resource: "absents"})
	},
	"any group": func(m *apiutil.DynamicRESTMapper, _ string) {
		_, _ = m.KindFor(schema.GroupVersionResource{Resource: "absents"})
	},
	"after a Reset": func(m *apiutil.DynamicRESTMapper, group string) {
		m.Reset()
		_, _ = m.RESTMapping(schema.GroupKind{Group: group, Kind: "Absent"}, "v1")
	},
	"after a ResetGroup": func(m *apiutil.DynamicRESTMapper, group string) {
		m.ResetGroup(group)
		_, _ = m.RESTMapping(schema.GroupKind{Group: group, Kind: "Absent"})
	},
}

// A raceStage is a warm mapper of a slow server, with others' reads under way.
type raceStage struct {
	server *fakeapi.Server
	mapper *apiutil.DynamicRESTMapper
	others sync.WaitGroup
}

// unheard is a group that the server has and the mapper does not know yet.
const unheard = "unheard.example.com"

func newRaceStage(t *testing.T, forms fakeapi.Forms) *raceStage {
	t.Helper()
	s := &raceStage{server: newServer(forms)}
	s.mapper = newMapper(t, s.server, apiutil.DynamicRESTMapperOptions{})
	readAll(t, s.mapper)
	s.server.PutVersion(unheard, fakeVersion("v1", "Whatever"))
	s.server.SetLatency(latency)
	return s
}

// begin lets somebody else read something of a group.
func (s *raceStage) begin(read func(*apiutil.DynamicRESTMapper, string), group string) {
	s.others.Go(func() { read(s.mapper, group) })
}

// eachRace runs test for both modes and all that others may read, at each moment.
func eachRace(t *testing.T, test func(t *testing.T, s *raceStage, others string, moment time.Duration)) {
	eachMode(t, bothModes, func(t *testing.T, forms fakeapi.Forms) {
		for others := range othersReads {
			t.Run(others, func(t *testing.T) {
				for _, moment := range moments() {
					inBubble(t, func(t *testing.T) {
						s := newRaceStage(t, forms)
						test(t, s, others, moment)
						s.others.Wait()
					})
				}
			})
		}
	})
}

// F2: what was served before a lookup began is found, whatever older reads of the
// same thing end meanwhile.
func TestLookupsBesideOlderReads(t *testing.T) {
	for where, gvk := range map[string]schema.GroupVersionKind{
		"unheard group":  {Group: unheard, Version: "v1", Kind: "Added"},
		"absent group":   {Group: "absent.example.com", Version: "v1", Kind: "Added"},
		"known version":  {Group: fooKind.Group, Version: "v1", Kind: "Added"},
		"unread version": {Group: fooKind.Group, Version: "v3", Kind: "Added"},
	} {
		t.Run(where, func(t *testing.T) {
			eachRace(t, func(t *testing.T, s *raceStage, others string, moment time.Duration) {
				s.begin(othersReads[others], gvk.Group)
				time.Sleep(moment)
				kinds := []string{gvk.Kind}
				if where == "known version" {
					kinds = []string{"Foo", "Bar", gvk.Kind}
				}
				s.server.PutVersion(gvk.Group, fakeVersion(gvk.Version, kinds...))
				var lookups sync.WaitGroup
				for _, form := range lookupForms(gvk) {
					if slices.Contains([]string{"RESTMappings", "KindsFor", "ResourcesFor", "ResourceFor"}, firstWord(form.name)) {
						continue // they go the way of RESTMapping and KindFor
					}
					lookups.Go(func() { form.wantAnswer(t, s.mapper, fmt.Sprintf("%v after others began to read %s", moment, others)) })
				}
				lookups.Wait()
			})
		})
	}
}

func firstWord(s string) string {
	word := ""
	_, _ = fmt.Sscan(s, &word)
	return word
}

// F3: a reset is settled by no read that began before it, of no part of what a
// lookup needs.
func TestResetsBesideOlderReads(t *testing.T) {
	for name, reset := range map[string]func(*apiutil.DynamicRESTMapper){
		"Reset":      func(m *apiutil.DynamicRESTMapper) { m.Reset() },
		"ResetGroup": func(m *apiutil.DynamicRESTMapper) { m.ResetGroup(fooKind.Group) },
	} {
		for when, wait := range map[string]bool{"at once": false, "when the others are done": true} {
			t.Run(name+"/"+when, func(t *testing.T) {
				eachRace(t, func(t *testing.T, s *raceStage, others string, moment time.Duration) {
					s.begin(othersReads[others], fooKind.Group)
					time.Sleep(moment)
					s.server.PutVersion(fooKind.Group, fakeVersion("v1", "Foo:cluster"))
					reset(s.mapper)
					if wait {
						s.others.Wait()
					}
					var lookups sync.WaitGroup
					for _, versions := range [][]string{nil, {"v1"}, {"v2", "v1"}} {
						lookups.Go(func() {
							mapping, err := s.mapper.RESTMapping(fooKind.GroupKind(), versions...)
							if err != nil || mapping.Scope.Name() != meta.RESTScopeNameRoot {
								t.Errorf("%v after others began to read %s: %q: %s", moment, others, versions, answered(mappingText(mapping), err))
							}
							if _, err := s.mapper.RESTMapping(barKind.GroupKind(), versions...); !meta.IsNoMatchError(err) {
								t.Errorf("%v after others began to read %s: %q of what has gone: %v", moment, others, versions, err)
							}
						})
					}
					lookups.Wait()
				})
			})
		}
	}
}

// A kind that moves from one version to another and back, and is served by one of
// them at any moment, is never NoMatch for a lookup that takes either, if the mapper knew
// before where it was.
func TestMovingKindIsNeverAbsent(t *testing.T) {
	server := fakeapi.New(fakeGroup("", fakeVersion("v1", "Pod")))
	m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
	moving, absent := schema.GroupKind{Group: "example.com", Kind: "Moving"}, schema.GroupKind{Group: "example.com", Kind: "Absent"}
	serve := func(n int) {
		tables := [][]string{{"Stays", "Moving"}, {"Stays"}}
		server.Put(fakeGroup(moving.Group, fakeVersion("v1", tables[n%2]...), fakeVersion("v2", tables[(n+1)%2]...)))
	}
	var wrong atomic.Int64
	const tries = 500
	for n := range tries {
		serve(n)
		_, _ = m.RESTMappings(absent, "v1", "v2") // reads both
		allAtOnce(12, func(i int) {
			switch {
			case i == 0:
				serve(n + 1)
			case i < 4:
				_, _ = m.RESTMapping(absent, []string{"v1", "v2"}[i%2])
			default:
				if _, err := m.RESTMapping(moving); err != nil && wrong.Add(1) <= 3 {
					t.Errorf("try %d: %v", n, err)
				}
			}
		})
	}
	if n := wrong.Load(); n > 0 {
		t.Errorf("%d wrong answers in %d tries", n, tries)
	}
}

// A kind that moves from one version to another is served by one of them at any
// moment. A lookup is judged by what its own read of the document found, before
// what others published since.
func TestMovingKindBesideOtherReads(t *testing.T) {
	moving := schema.GroupKind{Group: "example.com", Kind: "Moving"}
	tables := [][]string{{"Stays", "Moving"}, {"Stays"}}
	serve := func(server *fakeapi.Server, version int) {
		server.Put(fakeGroup(moving.Group, fakeVersion("v1", tables[version-1]...), fakeVersion("v2", tables[2-version]...)))
	}
	// On one processor the read goes on before who waits for it sees what it found.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	wrong := 0
	for range 20 {
		inBubble(t, func(t *testing.T) {
			server := newServer(fakeapi.Aggregated())
			serve(server, 1)
			var others sync.WaitGroup
			next, move := server.Client().Transport, func(*http.Request) {}
			m := newMapperThrough(t, server, through(func(req *http.Request) (*http.Response, error) {
				resp, err := next.RoundTrip(req)
				move(req)
				return resp, err
			}), apiutil.DynamicRESTMapperOptions{})
			readAll(t, m)
			serve(server, 2)
			absent := schema.GroupKind{Group: moving.Group, Kind: "Absent"}
			_, _ = m.RESTMapping(absent, "v1") // from here on it is known in neither
			moved := false
			move = func(req *http.Request) {
				if req.URL.Path != "/apis" || moved {
					return
				}
				moved = true // after the document was written, which has it in v2
				for range 4 {
					others.Go(func() { _, _ = m.RESTMapping(absent, "v2") })
				}
				synctest.Wait()
				serve(server, 1)
			}
			if _, err := m.RESTMapping(moving); err != nil {
				wrong++
			}
			others.Wait()
		})
	}
	if wrong > 0 {
		t.Errorf("%d of 20 lookups of a kind that is always there found none", wrong)
	}
}
