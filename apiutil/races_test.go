// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
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

// Somebody else's reads of new versions keep no lookup from reading the list.
func TestLookupsBesideReadsOfNewVersions(t *testing.T) {
	eachMode(t, bothModes, func(t *testing.T, forms fakeapi.Forms) {
		for _, first := range moments() {
			for _, second := range moments()[:5] {
				inBubble(t, func(t *testing.T) {
					s := newRaceStage(t, forms)
					s.server.PutVersion(fooKind.Group, fakeVersion("v2", "Second"))
					s.server.PutVersion(fooKind.Group, fakeVersion("v3", "Third"))
					for n := range 3 {
						s.others.Go(func() {
							time.Sleep(second + time.Duration(n)*latency)
							_, _ = s.mapper.RESTMapping(schema.GroupKind{Group: fooKind.Group, Kind: "Absent"}, "v2")
						})
					}
					time.Sleep(first)
					if _, err := s.mapper.RESTMapping(schema.GroupKind{Group: fooKind.Group, Kind: "Third"}); err != nil {
						t.Errorf("begun at %v, the others at %v: %v", first, second, err)
					}
					s.others.Wait()
				})
			}
		}
	})
}

// A version that fails is never NoMatch, whatever others read and reset meanwhile.
func TestFailedVersionIsNeverNoMatch(t *testing.T) {
	eachMode(t, bothModes, func(t *testing.T, forms fakeapi.Forms) {
		for seed := range uint64(100) {
			inBubble(t, func(t *testing.T) { failedVersionHistory(t, forms, seed) })
		}
	})
}

// failedVersionHistory has somebody look for what may be in a version that does not
// answer, and others do all kinds of things.
func failedVersionHistory(t *testing.T, forms fakeapi.Forms, seed uint64) {
	s := newRaceStage(t, forms)
	s.server.PutVersion(fooKind.Group, fakeapi.Version{Name: "v2", Stale: true})
	if seed%2 == 0 {
		_, _ = s.mapper.RESTMapping(fooKind.GroupKind(), "v2") // it is known to fail
	}
	s.server.SetFault(fakeapi.At("/apis/example.com/v1"), fakeapi.Status(503, 0))
	ctx, cancel := context.WithCancel(context.Background())
	for n := range 4 {
		random := rand.New(rand.NewPCG(seed, uint64(n)))
		s.others.Go(func() {
			for ctx.Err() == nil {
				time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
				switch random.IntN(5) {
				case 0:
					s.mapper.Reset()
				case 1:
					s.mapper.ResetGroup(fooKind.Group)
				case 2:
					_, _ = s.mapper.RESTMapping(schema.GroupKind{Kind: "Absent"})
				case 3:
					_, _ = s.mapper.RESTMapping(schema.GroupKind{Group: "absent.example.com", Kind: "Absent"})
				default:
					_, _ = s.mapper.RESTMapping(schema.GroupKind{Group: fooKind.Group, Kind: "Absent"}, "v1")
				}
			}
		})
	}
	for _, versions := range [][]string{nil, {"v1"}, {"v2"}, {"v1", "v2"}, {"v1", "v9"}, {"v9", "v1"}, nil, {"v1", "v9"}} {
		if seed%3 == 0 {
			s.mapper.ResetGroup(fooKind.Group)
		}
		_, err := s.mapper.RESTMapping(schema.GroupKind{Group: fooKind.Group, Kind: "Absent"}, versions...)
		if err == nil || meta.IsNoMatchError(err) {
			t.Errorf("history %d, versions %q: %v; want an error that is not NoMatch", seed, versions, err)
		}
		time.Sleep(7 * time.Millisecond)
	}
	cancel()
	s.others.Wait()
}
