// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
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

func TestSubscribe(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute})
		stop := startMapper(t, m)
		s := subscribe(m)
		s.want(t, "at first",
			"Added v1 Pod -> pods, namespace", "Added v1 Node -> nodes, root",
			"Added example.com/v1 Foo -> foos, namespace", "Added example.com/v1 Bar -> bars, namespace",
			"Added other.example.com/v1 Other -> others, namespace")

		const interval = 67 * time.Second
		time.Sleep(10 * interval)
		s.want(t, "nothing has changed")

		serve(server, newKind)
		time.Sleep(interval)
		s.want(t, "a new group", "Added new.example.com/v1 New -> news, namespace")
		renamed := fakeVersion("v1", "New")
		renamed.Resources[0].Name = "novelties"
		server.PutVersion(newKind.Group, renamed)
		time.Sleep(interval)
		s.want(t, "a resource's name", "Changed new.example.com/v1 New -> novelties, namespace")

		server.PutVersion(fooKind.Group, fakeVersion("v1", "Foo:cluster", "Baz"))
		time.Sleep(interval)
		s.want(t, "in a group", "Removed example.com/v1 Bar -> bars, namespace",
			"Changed example.com/v1 Foo -> foos, root", "Added example.com/v1 Baz -> bazs, namespace")
		server.PutVersion(fooKind.Group, fakeVersion("v2", "Foo:cluster"))
		time.Sleep(interval)
		s.want(t, "a version behind", "Added example.com/v2 Foo -> foos, root")
		server.Put(fakeGroup("example.com", fakeVersion("v2", "Foo:cluster"), fakeVersion("v1", "Foo:cluster", "Baz")))
		time.Sleep(interval)
		s.want(t, "the preferred version", "Changed example.com/v2 Foo -> foos, root")

		server.Remove(fooKind.Group)
		server.Remove(otherKind.Group)
		time.Sleep(interval)
		got := s.take(t)
		slices.Sort(got)
		if want := []string{
			"Removed example.com/v1 Baz -> bazs, namespace", "Removed example.com/v1 Foo -> foos, root",
			"Removed example.com/v2 Foo -> foos, root", "Removed other.example.com/v1 Other -> others, namespace",
		}; !slices.Equal(got, want) {
			t.Errorf("two groups went: %q", got)
		}
		s.close(t)
		stop()
	})
}

// A slow receiver gets one batch with the sum of all changes, and nobody waits for it.
func TestSlowSubscriber(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute})
		stop := startMapper(t, m)
		never, slow, quick := subscribe(m), subscribe(m), subscribe(m)
		slow.take(t)
		quick.take(t)
		for n := range 20 {
			server.PutVersion("example.com", fakeVersion("v1", "Foo", fmt.Sprintf("Passing%d", n)))
			if n == 10 {
				serve(server, newKind)
			}
			time.Sleep(67 * time.Second)
			if len(quick.take(t)) == 0 {
				t.Errorf("nobody was told of change %d", n)
			}
		}
		server.PutVersion("example.com", fakeVersion("v1", "Foo:cluster", "Bar"))
		time.Sleep(67 * time.Second)
		slow.want(t, "all that became of it", "Changed example.com/v1 Foo -> foos, root", "Added new.example.com/v1 New -> news, namespace")
		slow.want(t, "and no more")
		quick.take(t)
		if diff := cmp.Diff(quick.kinds, slow.kinds); diff != "" {
			t.Errorf("they end at different places:\n%s", diff)
		}
		never.take(t)
		if diff := cmp.Diff(quick.kinds, never.kinds); diff != "" {
			t.Errorf("they end at different places:\n%s", diff)
		}
		for _, s := range []*subscriber{never, slow, quick} {
			s.close(t)
		}
		stop()
	})
}

// In a lookup's answer a server without the aggregated document may list a new
// group that nobody has asked for. The subscriber is told of it all the same.
func TestSubscriberHearsOfWhatLookupsListed(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute})
		stop := startMapper(t, m)
		s := subscribe(m)
		s.take(t)
		serve(server, newKind)
		if _, err := m.RESTMapping(schema.GroupKind{Group: "absent.example.com", Kind: "Absent"}); !meta.IsNoMatchError(err) {
			t.Error(err)
		}
		time.Sleep(67 * time.Second)
		s.want(t, "a new group", "Added new.example.com/v1 New -> news, namespace")
		s.close(t)
		stop()
	})
}

// Without any refresh a subscriber receives what lookups find.
func TestSubscribeWithoutRefresh(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{MaxAge: -1})
		s := subscribe(m)
		if got := s.take(t); len(got) != 5 {
			t.Errorf("at first: %q", got)
		}
		server.TakeRequests()
		serve(server, newKind)
		time.Sleep(time.Hour)
		s.want(t, "nobody has asked")
		wantRequests(t, server, "an hour without a lookup")
		wantServed(t, m, newKind)
		s.want(t, "a lookup", "Added new.example.com/v1 New -> news, namespace")
		server.Remove(newKind.Group)
		m.Reset()
		synctest.Wait()
		wantRequests(t, server, "a miss, and a reset", "/apis/new.example.com/v1 200")
		wantAbsent(t, m, newKind)
		s.want(t, "a lookup after a reset", "Removed new.example.com/v1 New -> news, namespace")
		s.close(t)
	})
}

// The channel is closed when the context ends, whatever goes on.
func TestSubscribeEnds(t *testing.T) {
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

// What is sent belongs to the receiver.
func TestSubscribersShareNothing(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		spoiler := subscribe(m)
		batch := <-spoiler.changes
		for i := range batch {
			batch[i] = apiutil.APIChange{}
		}
		s := subscribe(m)
		if got := s.take(t); len(got) != 5 {
			t.Errorf("at first: %q", got)
		}
		spoiler.close(t)
		s.close(t)
	})
}

// At first the server is read until that succeeds.
func TestSubscribeDuringOutage(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		for _, opts := range []apiutil.DynamicRESTMapperOptions{{}, {RefreshInterval: time.Minute}} {
			heal := server.SetFault(fakeapi.All(), fakeapi.Refused())
			m := newMapper(t, server, opts)
			stop := startMapper(t, m)
			s, impatient := subscribe(m), subscribe(m)
			time.Sleep(10 * time.Minute)
			s.want(t, "during the outage")
			impatient.close(t)
			if n := len(server.TakeRequests()); n < 20 || n > 100 {
				t.Errorf("%d requests in 10 minutes", n)
			}
			heal()
			time.Sleep(time.Minute)
			if got := s.take(t); len(got) != 5 {
				t.Errorf("after the outage: %q", got)
			}
			s.close(t)
			stop()
		}
	})
}

// A server may list its versions and answer for none: that is not all there is.
func TestSubscribeWhileNoVersionAnswers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Legacy())
		versions := []string{"/api/v1", "/apis/example.com/v1", "/apis/other.example.com/v1"}
		heal := server.SetFault(fakeapi.At(versions...), fakeapi.Status(503, 0))
		s := subscribe(newMapper(t, server, apiutil.DynamicRESTMapperOptions{}))
		time.Sleep(10 * time.Minute)
		s.want(t, "while no version answers")
		heal()
		time.Sleep(time.Minute)
		if got := s.take(t); len(got) != 5 {
			t.Errorf("afterwards: %q", got)
		}
		s.close(t)
	})
}
