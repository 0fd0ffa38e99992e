// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// On a server without the aggregated document a subscriber needs every version read. After
// its end refreshes read only what lookups have asked for again; the rest stays known, is
// read before the next answer, and is served in an outage.
func TestRefreshesReadLessAfterSubscribeEnds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Legacy())
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{MaxAge: -1})
		wantServed(t, m, fooKind)
		s := subscribe(m)
		s.take(t)
		generation := m.Generation()
		refresh := func(when string, want int) {
			t.Helper()
			server.TakeRequests()
			if err := m.Refresh(context.Background()); err != nil {
				t.Errorf("%s: %v", when, err)
			}
			if got := server.TakeRequests(); len(got) != want {
				t.Errorf("%s a refresh made %d requests, want %d: %v", when, len(got), want, got)
			}
		}
		refresh("while subscribed", 5)
		s.cancel()
		time.Sleep(time.Second)
		refresh("after the end", 3)
		wantServed(t, m, otherKind)
		wantRequests(t, server, "a kind that only the subscriber needed", "/apis/other.example.com/v1 200")
		wantServed(t, m, otherKind)
		wantRequests(t, server, "again")
		refresh("after a lookup", 4)
		server.SetFault(fakeapi.All(), fakeapi.Refused())
		wantServed(t, m, schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
		if m.Generation() != generation {
			t.Error("the generation moved, but the API did not change")
		}
	})
}

// R3: a lookup of the best answer needs the groups up to it. What hangs behind costs the
// very first lookup 3 seconds, because nobody knows the answer when it begins, and no other.
func TestLookupInManyGroupsWaitsForNoLaterGroup(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Legacy())
		server.SetFault(fakeapi.At("/apis/other.example.com/v1"), fakeapi.Timeout())
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		for i, most := range []time.Duration{3 * time.Second, 0, 0} {
			start := time.Now()
			if _, err := m.KindFor(schema.GroupVersionResource{Resource: "pods"}); err != nil {
				t.Error(err)
			}
			if singular, err := m.ResourceSingularizer("foos"); singular != "foo" || err != nil {
				t.Errorf("%q, %v", singular, err)
			}
			if took := time.Since(start); took > most {
				t.Errorf("try %d: pods and foos took %v", i, took)
			}
			m.Reset()
		}
	})
}

// A list that goes on naming a version whose own path answers 404 is no change.
func TestGenerationStaysWhileListNamesGoneVersion(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		server.PutVersion("example.com", fakeVersion("v2", "Foo"))
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{MaxAge: -1})
		wantServed(t, m, fooKind)
		server.SetLag(fakeapi.PartLists, fakeapi.Forever)
		server.RemoveVersion("example.com", "v2")
		late := schema.GroupKind{Group: "example.com", Kind: "Late"}
		var moved uint64
		for i := range 6 {
			if _, err := m.RESTMapping(late); err == nil {
				t.Error("served")
			}
			if i == 2 {
				moved = m.Generation()
			}
		}
		if m.Generation() != moved {
			t.Errorf("the generation moved %d times", m.Generation()-moved)
		}
	})
}
