// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

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
func TestKindOfBothReplicasIsAlwaysFound(t *testing.T) {
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
