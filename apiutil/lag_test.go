// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// laggingServer is a server of which mapper m knows everything, with documents
// that stand still from now on. Its lists do so as well, if they are given.
func laggingServer(t *testing.T, server *fakeapi.Server, lists bool, opts apiutil.DynamicRESTMapperOptions) *apiutil.DynamicRESTMapper {
	t.Helper()
	m := newMapper(t, server, opts)
	readAll(t, m)
	server.SetLag(fakeapi.PartDocument, fakeapi.Forever)
	if lists {
		server.SetLag(fakeapi.PartLists, fakeapi.Forever)
	}
	server.TakeRequests()
	return m
}

// missElsewhere makes lookups that read the whole document and find nothing.
func missElsewhere(t *testing.T, m *apiutil.DynamicRESTMapper) {
	t.Helper()
	for _, lookup := range []func() error{
		func() error {
			_, err := m.RESTMapping(schema.GroupKind{Group: "nowhere.example.com", Kind: "Absent"})
			return err
		},
		func() error {
			_, err := m.RESTMapping(schema.GroupKind{Group: otherKind.Group, Kind: "Absent"})
			return err
		},
		func() error { _, err := m.KindFor(schema.GroupVersionResource{Resource: "absents"}); return err },
	} {
		if err := lookup(); !meta.IsNoMatchError(err) {
			t.Errorf("a lookup of what is nowhere: %v", err)
		}
	}
}

// meanwhiles are what may happen between two lookups of a kind, none of which
// changes that it is served.
var meanwhiles = map[string]func(*testing.T, *apiutil.DynamicRESTMapper){
	"nothing":        func(*testing.T, *apiutil.DynamicRESTMapper) {},
	"misses":         missElsewhere,
	"Reset":          func(_ *testing.T, m *apiutil.DynamicRESTMapper) { m.Reset() },
	"ResetGroup":     func(_ *testing.T, m *apiutil.DynamicRESTMapper) { m.ResetGroup(lateKind.Group) },
	"two Resets":     func(t *testing.T, m *apiutil.DynamicRESTMapper) { m.Reset(); missElsewhere(t, m); m.Reset() },
	"a refresh":      refreshOnce,
	"Reset, refresh": func(t *testing.T, m *apiutil.DynamicRESTMapper) { m.Reset(); refreshOnce(t, m) },
}

// refreshOnce lets a mapper with a RefreshInterval refresh at least once.
func refreshOnce(t *testing.T, m *apiutil.DynamicRESTMapper) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := m.WaitForKinds(ctx, fooKind); err != nil {
		t.Error(err)
	}
	before := m.Status().LastAttempt
	for !m.Status().LastAttempt.After(before) && ctx.Err() == nil {
		time.Sleep(time.Second)
	}
}

// What was read live stays, even if a document repeats older content: a 304 is no news.
func TestLiveReadsOutliveALaggingDocument(t *testing.T) {
	for when, meanwhile := range meanwhiles {
		for _, form := range lookupForms(lateKind) {
			t.Run(when+"/"+form.name, func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					server := newServer(fakeapi.Aggregated())
					m := laggingServer(t, server, false, apiutil.DynamicRESTMapperOptions{RefreshInterval: 5 * time.Second})
					defer startMapper(t, m)()
					synctest.Wait() // until it has refreshed
					serve(server, lateKind)
					wantServed(t, m, lateKind)
					meanwhile(t, m)
					if form.group == "" && when != "nothing" && when != "misses" && when != "a refresh" {
						return // a lookup of any group after a reset believes the document
					}
					form.wantAnswer(t, m, "read live before")
				})
			})
		}
	}
}

// A reset makes no lookup weaker: one with a version still ends at that version.
// So NoMatch, ResetOnNoMatch and another try heal, however late the document is.
func TestResetWhileTheDocumentLags(t *testing.T) {
	for _, gvk := range []schema.GroupVersionKind{
		lateKind, newKind, {Group: fooKind.Group, Version: "v1", Kind: "Added"},
	} {
		t.Run(gvk.String(), func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				m := laggingServer(t, server, true, apiutil.DynamicRESTMapperOptions{})
				err := lookUp(m, gvk)
				if !apiutil.ResetOnNoMatch(err, m) {
					t.Fatalf("not reset on %v", err)
				}
				kinds := []string{gvk.Kind}
				if gvk.GroupVersion() == fooKind.GroupVersion() {
					kinds = []string{"Foo", "Bar", gvk.Kind}
				}
				server.PutVersion(gvk.Group, fakeVersion(gvk.Version, kinds...))
				for range 3 {
					wantServed(t, m, gvk)
					m.Reset()
				}
				wantServed(t, m, gvk, fooKind, otherKind)
			})
		})
	}
}

// What a live read found gone stays gone, although the document still has it. The first
// document after a Reset is news, also over what was read live before (R4).
func TestLiveAbsenceOutlivesALaggingDocument(t *testing.T) {
	for what, remove := range map[string]func(*fakeapi.Server){
		"kind":    func(s *fakeapi.Server) { s.PutVersion("example.com", fakeVersion("v1", "Bar")) },
		"version": func(s *fakeapi.Server) { s.Put(fakeGroup("example.com", fakeVersion("v2", "Bar"))) },
		"group":   func(s *fakeapi.Server) { s.Remove("example.com") },
	} {
		for when, meanwhile := range map[string]func(*testing.T, *apiutil.DynamicRESTMapper){
			"nothing": meanwhiles["nothing"], "misses": missElsewhere, "Reset": meanwhiles["Reset"], "ResetGroup": meanwhiles["ResetGroup"],
		} {
			t.Run(what+"/"+when, func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					server := newServer(fakeapi.Aggregated())
					m := laggingServer(t, server, false, apiutil.DynamicRESTMapperOptions{})
					remove(server)
					m.ResetGroup("example.com")
					wantAbsent(t, m, fooKind)
					meanwhile(t, m)
					if when == "Reset" {
						wantServed(t, m, fooKind) // by the lagging document, and until it says otherwise
						return
					}
					wantAbsent(t, m, fooKind)
					if _, err := m.RESTMapping(fooKind.GroupKind()); !meta.IsNoMatchError(err) {
						t.Errorf("without a version: %v", err)
					}
				})
			})
		}
	}
}

// A document that drops a kind, or its group, ends no program as long as the kind
// is served: that is confirmed live first.
func TestRunWhileServedConfirmsLive(t *testing.T) {
	for what, remove := range map[string]func(*fakeapi.Server){
		"kind":  func(s *fakeapi.Server) { s.PutVersion("example.com", fakeVersion("v1", "Bar")) },
		"group": func(s *fakeapi.Server) { s.Remove("example.com") },
		"scope": func(s *fakeapi.Server) { s.PutVersion("example.com", fakeVersion("v1", "Foo:cluster", "Bar")) },
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				server := newServer(fakeapi.Aggregated())
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: 5 * time.Second})
				defer startMapper(t, m)()
				c := runController(m, fooKind)
				time.Sleep(time.Minute)
				remove(server)
				server.SetLag(fakeapi.PartDocument, fakeapi.Forever)
				server.PutVersion("example.com", fakeVersion("v1", "Foo", "Bar"))
				time.Sleep(time.Minute)
				c.want(t, 1, 0)
				server.SetLag(fakeapi.PartDocument, 0)
				remove(server)
				time.Sleep(time.Minute)
				begun := int32(1)
				if what == "scope" {
					begun = 2 // with the other scope
				}
				c.want(t, begun, 1)
				c.wantReturn(t, true, nil)
			})
		})
	}
}

// Without aggregated discovery the lists lag.
func TestLiveReadsOutliveLaggingLists(t *testing.T) {
	for when, meanwhile := range meanwhiles {
		t.Run(when, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				server := newServer(fakeapi.Legacy())
				m := laggingServer(t, server, true, apiutil.DynamicRESTMapperOptions{RefreshInterval: 5 * time.Second})
				defer startMapper(t, m)()
				synctest.Wait()
				serve(server, lateKind)
				serve(server, newKind)
				for range 3 {
					wantServed(t, m, lateKind, newKind)
					meanwhile(t, m)
				}
				wantServed(t, m, lateKind, newKind, fooKind)
			})
		})
	}
}

// When a kind goes and comes back, the document is the same as before, so a 304 hides
// both. The kind is found all the same, whatever was read live in between.
func TestReturnsUnderTheSameETag(t *testing.T) {
	gone := map[string]func(*fakeapi.Server){
		"kind":    func(s *fakeapi.Server) { s.PutVersion("example.com", fakeVersion("v1", "Bar")) },
		"version": func(s *fakeapi.Server) { s.Put(fakeGroup("example.com", fakeVersion("v2", "Bar"))) },
		"group":   func(s *fakeapi.Server) { s.Remove("example.com") },
	}
	for what, remove := range gone {
		for _, form := range lookupForms(fooKind) {
			t.Run(what+"/"+form.name, func(t *testing.T) {
				eachServer(t, func(t *testing.T, server *fakeapi.Server) {
					m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
					readAll(t, m)
					groups := []fakeapi.Group{
						fakeGroup("", fakeVersion("v1", "Pod", "Node:cluster")),
						fakeGroup("example.com", fakeVersion("v1", "Foo", "Bar")),
						fakeGroup("other.example.com", fakeVersion("v1", "Other")),
					}
					for _, reset := range []func(){func() {}, m.Reset, func() { m.ResetGroup("example.com") }} {
						remove(server)
						m.ResetGroup("example.com")
						wantAbsent(t, m, fooKind)
						server.SetGroups(groups...)
						reset()
						form.wantAnswer(t, m, "when it is back")
					}
				})
			})
		}
	}
}

// Two replicas of an API server behind one address, one of which has heard of a
// new kind and the other has not.
func twoReplicas(forms fakeapi.Forms) (ahead, behind *fakeapi.Server) {
	ahead, behind = newServer(forms), newServer(forms)
	serve(ahead, lateKind)
	serve(ahead, newKind)
	return ahead, behind
}

// documentsInTurn sends requests for the documents to one server and the other in
// turn, and all others to the one ahead.
func documentsInTurn(ahead, behind *fakeapi.Server) fakeapi.Balancer {
	turns := fakeapi.RoundRobin(ahead, ahead, behind, behind) // /api and /apis each
	return func(req *http.Request) *fakeapi.Server {
		if req.URL.Path == "/api" || req.URL.Path == "/apis" {
			return turns(req)
		}
		return ahead
	}
}

// What live reads have found stays, whichever replica the document comes from.
func TestDocumentsOfTwoReplicas(t *testing.T) {
	eachMode(t, bothModes, func(t *testing.T, forms fakeapi.Forms) {
		for when, meanwhile := range meanwhiles {
			t.Run(when, func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					ahead, behind := twoReplicas(forms)
					m := newMapperThrough(t, ahead, documentsInTurn(ahead, behind), apiutil.DynamicRESTMapperOptions{RefreshInterval: 5 * time.Second})
					readAll(t, m)
					defer startMapper(t, m)()
					for n := range 8 {
						for _, gvk := range []schema.GroupVersionKind{lateKind, fooKind, newKind} {
							if err := lookUp(m, gvk); err != nil {
								t.Errorf("round %d, %s: %v", n, gvk, err)
							}
						}
						if _, err := m.RESTMapping(lateKind.GroupKind()); err != nil {
							t.Errorf("round %d, without a version: %v", n, err)
						}
						meanwhile(t, m)
					}
				})
			})
		}
	})
}

// Whatever a load balancer does, a kind that both replicas have is always found, a kind
// that neither has never is, and no lookup returns another error.
func TestRoundRobin(t *testing.T) {
	eachMode(t, bothModes, func(t *testing.T, forms fakeapi.Forms) {
		inBubble(t, func(t *testing.T) {
			ahead, behind := twoReplicas(forms)
			m := newMapperThrough(t, ahead, fakeapi.RoundRobin(ahead, behind), apiutil.DynamicRESTMapperOptions{RefreshInterval: 5 * time.Second})
			defer startMapper(t, m)()
			readAll(t, m)
			resets := []func(){func() {}, m.Reset, func() { m.ResetGroup(fooKind.Group) }}
			for n := range 60 {
				resets[n%3]()
				for _, form := range lookupForms(fooKind) {
					if n%2 == 0 && (form.group == "" || form.version == "") {
						continue // so that an odd number of requests shifts the turns
					}
					form.wantAnswer(t, m, fmt.Sprintf("round %d", n))
				}
				for _, gvk := range []schema.GroupVersionKind{lateKind, newKind} {
					if err := lookUp(m, gvk); err != nil && !meta.IsNoMatchError(err) {
						t.Errorf("round %d, %s: %v", n, gvk, err)
					}
				}
				wantAbsent(t, m, schema.GroupVersionKind{Group: fooKind.Group, Version: "v1", Kind: "Absent"})
				time.Sleep(time.Second)
			}
			// In the end both have heard of it.
			serve(behind, lateKind)
			serve(behind, newKind)
			time.Sleep(12 * time.Second)
			wantServed(t, m, lateKind, newKind, fooKind)
		})
	})
}

// A validator of one replica means nothing to the other, and each replica is believed
// only for its own content. As long as no new kind is seen, nothing moves.
func TestSameContentOfTwoReplicas(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, b := newServer(fakeapi.Aggregated()), newServer(fakeapi.Aggregated())
		m := newMapperThrough(t, a, fakeapi.RoundRobin(a, b), apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Second})
		readAll(t, m)
		generation := m.Generation()
		stop := startMapper(t, m)
		time.Sleep(time.Minute)
		for _, r := range append(a.TakeRequests()[1:], b.TakeRequests()[1:]...) {
			if r.Code != http.StatusNotModified {
				t.Errorf("%s, although both have the same content", r)
			}
		}
		if m.Generation() != generation {
			t.Error("the generation has moved")
		}
		stop()
	})
}
