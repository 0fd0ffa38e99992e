// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A subscriber keeps what it is sent.
type subscriber struct {
	changes <-chan []apiutil.APIChange
	cancel  context.CancelFunc
	kinds   map[schema.GroupVersionKind]string // the mappings of what is served, as text
}

func subscribe(m *apiutil.DynamicRESTMapper) *subscriber {
	ctx, cancel := context.WithCancel(context.Background())
	return &subscriber{changes: m.Subscribe(ctx), cancel: cancel, kinds: map[schema.GroupVersionKind]string{}}
}

// take returns what has been sent by now as text, a line each; nil if nothing has been.
func (s *subscriber) take(t *testing.T) []string {
	t.Helper()
	synctest.Wait()
	select {
	case batch, open := <-s.changes:
		if !open {
			t.Error("the channel is closed")
		}
		return s.apply(t, batch)
	default:
		return nil
	}
}

// apply takes over a batch, which must be a difference to what was sent before.
func (s *subscriber) apply(t *testing.T, batch []apiutil.APIChange) []string {
	t.Helper()
	if len(batch) == 0 {
		t.Error("an empty batch")
	}
	var lines []string
	removing := true
	for _, change := range batch {
		gvk, text := change.Mapping.GroupVersionKind, mappingText(&change.Mapping)
		before, known := s.kinds[gvk]
		switch change.Type {
		case apiutil.APIAdded, apiutil.APIChanged:
			if removing = false; known != (change.Type == apiutil.APIChanged) {
				t.Errorf("%s of %s, which was %q", change.Type, gvk, before)
			}
			s.kinds[gvk] = text
		case apiutil.APIRemoved:
			if !known || !removing || text != before {
				t.Errorf("removal of %q, which was %q; or after an addition", text, before)
			}
			delete(s.kinds, gvk)
		default:
			t.Errorf("a change of type %q", change.Type)
		}
		lines = append(lines, fmt.Sprintf("%s %s", change.Type, text))
	}
	return lines
}

func (s *subscriber) want(t *testing.T, what string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, s.take(t)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// close ends the subscription and waits until the channel is closed.
func (s *subscriber) close(t *testing.T) {
	t.Helper()
	s.cancel()
	synctest.Wait()
	select {
	case batch, open := <-s.changes:
		if open {
			t.Errorf("%v was sent after the end", batch)
		}
	default:
		t.Error("the channel is still open")
	}
}

// The channel is closed when the context ends, whatever goes on.
func TestSubscriptionEndsWithItsContext(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		pending := subscribe(m) // is never received from
		synctest.Wait()
		pending.cancel()
		synctest.Wait()
		for range pending.changes {
			t.Error("sent after the end")
		}
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		for range m.Subscribe(ended) {
			t.Error("sent after the end")
		}
		server.SetLatency(time.Second)
		reading := subscribe(m)
		synctest.Wait()
		reading.close(t)
		time.Sleep(time.Minute)
	})
}

// What is sent belongs to the receiver, verbs included.
func TestSubscribersShareNothing(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		spoiler, other := subscribe(m), subscribe(m)
		spoiled := <-spoiler.changes
		want := fmt.Sprint(spoiled)
		for i := range spoiled {
			for j := range spoiled[i].Verbs {
				spoiled[i].Verbs[j] = "spoiled"
			}
			spoiled[i] = apiutil.APIChange{}
		}
		if got := fmt.Sprint(<-other.changes); got != want {
			t.Errorf("at first: %s; want %s", got, want)
		}
		spoiler.close(t)
		other.close(t)
	})
}

// withVerbs is fakeVersion with one kind, whose resource has these verbs.
func withVerbs(kind string, verbs ...string) fakeapi.Version {
	v := fakeVersion("v1", kind)
	v.Resources[0].Verbs = verbs
	return v
}

// verbsOf returns the verbs of a kind in a batch, after the type of the change.
func verbsOf(batch []apiutil.APIChange, kind string) string {
	for _, change := range batch {
		if change.Mapping.GroupVersionKind.Kind == kind {
			return string(change.Type) + " " + strings.Join(change.Verbs, " ")
		}
	}
	return ""
}

// Subscribers are told of the verbs, also when these alone change; and of a kind that goes,
// what they were.
func TestVerbsAreAPartOfTheAPI(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{MaxAge: -1})
		ctx, cancel := context.WithCancel(context.Background())
		changes := m.Subscribe(ctx)
		told := func(what, kind, want string) {
			t.Helper()
			synctest.Wait()
			var batch []apiutil.APIChange
			select {
			case batch = <-changes:
			default:
			}
			if got := verbsOf(batch, kind); got != want || what != "at first" && len(batch) > 1 {
				t.Errorf("%s: %q of %d changes, want %q", what, got, len(batch), want)
			}
		}
		refresh := func() {
			t.Helper()
			if err := m.Refresh(ctx); err != nil {
				t.Error(err)
			}
		}
		told("at first", "Other", "Added create delete deletecollection get list patch update watch")
		generation := m.Generation()
		for _, step := range []struct {
			what  string
			verbs []string
			told  string
			moves bool
		}{
			{"as of a CRD that is being deleted", []string{"delete", "deletecollection", "get", "list", "watch"}, "Changed delete deletecollection get list watch", true},
			{"in another order", []string{"watch", "get", "list", "deletecollection", "delete", "get"}, "", false},
			{"with one that is none", []string{"watch", "dance", "get", "list", "deletecollection", "delete"}, "", false},
			{"none", []string{}, "Changed ", true},
		} {
			server.PutVersion("other.example.com", withVerbs("Other", step.verbs...))
			refresh()
			told(step.what, "Other", step.told)
			if now := m.Generation(); now > generation != step.moves {
				t.Errorf("%s: generation %d after %d", step.what, now, generation)
			} else {
				generation = now
			}
		}
		server.PutVersion("other.example.com", withVerbs("Other", "get"))
		refresh()
		told("one", "Other", "Changed get")
		server.Remove("other.example.com")
		refresh()
		told("gone", "Other", "Removed get")
		cancel()
		synctest.Wait()
	})
}

// The document and the live list may have verbs in another order. That is no difference: a
// refresh after a live read is still two 304s.
func TestOrderOfVerbsIsNoDifference(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		server.PutVersion("other.example.com", withVerbs("Other", "get", "list", "watch"))
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{MaxAge: -1})
		readAll(t, m)
		server.SetLag(fakeapi.PartDocument, fakeapi.Forever)
		server.PutVersion("other.example.com", withVerbs("Other", "watch", "list", "get", "list"))
		generation := m.Generation()
		absent := schema.GroupVersionKind{Group: "other.example.com", Version: "v1", Kind: "Absent"}
		for range 3 {
			wantAbsent(t, m, absent) // reads the version
			server.TakeRequests()
			if err := m.Refresh(context.Background()); err != nil {
				t.Error(err)
			}
			wantRequests(t, server, "a refresh", "/api 304", "/apis 304")
		}
		if m.Generation() != generation {
			t.Error("the generation moved")
		}
	})
}

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
		refresh("after the end", 2)
		wantServed(t, m, otherKind)
		wantRequests(t, server, "a kind that nobody has needed since", "/apis/other.example.com/v1 200")
		wantServed(t, m, otherKind)
		wantRequests(t, server, "again")
		refresh("after a lookup", 3)
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
