// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"fmt"
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

// miss looks up a kind that is not served.
func miss(m *apiutil.DynamicRESTMapper, group string, versions ...string) error {
	_, err := m.RESTMapping(schema.GroupKind{Group: group, Kind: "Absent"}, versions...)
	return err
}

// missByResource is the same by resource.
func missByResource(m *apiutil.DynamicRESTMapper, group string) error {
	_, err := m.KindFor(schema.GroupVersionResource{Group: group, Resource: "absents"})
	return err
}

// othersReads are what others may be reading meanwhile: nothing that is served.
var othersReads = map[string]func(m *apiutil.DynamicRESTMapper, group string) error{
	"a version":     func(m *apiutil.DynamicRESTMapper, group string) error { return miss(m, group, "v1") },
	"versions":      func(m *apiutil.DynamicRESTMapper, group string) error { return miss(m, group, "v1", "v2", "v3") },
	"a group":       func(m *apiutil.DynamicRESTMapper, group string) error { return miss(m, group) },
	"a prefix":      missByResource,
	"any group":     func(m *apiutil.DynamicRESTMapper, _ string) error { return missByResource(m, "") },
	"after a Reset": func(m *apiutil.DynamicRESTMapper, group string) error { m.Reset(); return miss(m, group, "v1") },
	"after a ResetGroup": func(m *apiutil.DynamicRESTMapper, group string) error {
		m.ResetGroup(group)
		return miss(m, group)
	},
}

// unheard is a group that the server has and the mapper does not know yet.
const unheard = "unheard.example.com"

// eachRace runs test in both modes at each moment of all that others may read of a group,
// with a warm mapper of a slow server. when says what that is. others waits for them.
func eachRace(t *testing.T, group string, test func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper, when string, others func())) {
	eachMode(t, bothModes, func(t *testing.T, forms fakeapi.Forms) {
		for what, read := range othersReads {
			for moment := 5 * time.Millisecond; moment < 160*time.Millisecond; moment += 10 * time.Millisecond {
				inBubble(t, func(t *testing.T) {
					server := newServer(forms)
					m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
					readAll(t, m)
					server.PutVersion(unheard, fakeVersion("v1", "Whatever"))
					server.SetLatency(latency)
					var others sync.WaitGroup
					others.Go(func() { _ = read(m, group) })
					time.Sleep(moment)
					test(t, server, m, fmt.Sprintf("%v after others began to read %s", moment, what), others.Wait)
					others.Wait()
				})
			}
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
			eachRace(t, gvk.Group, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper, when string, _ func()) {
				kinds := []string{gvk.Kind}
				if where == "known version" {
					kinds = []string{"Foo", "Bar", gvk.Kind}
				}
				server.PutVersion(gvk.Group, fakeVersion(gvk.Version, kinds...))
				forms := lookupForms(gvk)
				allAtOnce(len(forms), func(i int) { forms[i].wantAnswer(t, m, when) })
			})
		})
	}
}

// F3: a reset is settled by no read that began before it, of no part of what a
// lookup needs.
func TestResetsBesideOlderReads(t *testing.T) {
	for name, reset := range map[string]func(*apiutil.DynamicRESTMapper){
		"Reset":      func(m *apiutil.DynamicRESTMapper) { m.Reset() },
		"ResetGroup": func(m *apiutil.DynamicRESTMapper) { m.ResetGroup(fooKind.Group) },
	} {
		for lookups, wait := range map[string]bool{"at once": false, "when the others are done": true} {
			t.Run(name+"/"+lookups, func(t *testing.T) {
				eachRace(t, fooKind.Group, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper, when string, others func()) {
					server.PutVersion(fooKind.Group, fakeVersion("v1", "Foo:cluster"))
					reset(m)
					if wait {
						others()
					}
					questions := [][]string{nil, {"v1"}, {"v2", "v1"}}
					allAtOnce(len(questions), func(i int) {
						mapping, err := m.RESTMapping(fooKind.GroupKind(), questions[i]...)
						if err != nil || mapping.Scope.Name() != meta.RESTScopeNameRoot {
							t.Errorf("%s: %q: %s", when, questions[i], answered(mappingText(mapping), err))
						}
						if _, err := m.RESTMapping(barKind.GroupKind(), questions[i]...); !meta.IsNoMatchError(err) {
							t.Errorf("%s: %q of what has gone: %v", when, questions[i], err)
						}
					})
				})
			})
		}
	}
}
