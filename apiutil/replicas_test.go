// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// Two replicas of an API server behind one address, one of which has heard of a
// new kind and the other has not.
func twoReplicas(forms fakeapi.Forms) (ahead, behind *fakeapi.Server) {
	ahead, behind = lifeServer(forms), lifeServer(forms)
	lifeServe(ahead, lifeLate)
	lifeServe(ahead, lifeNew)
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

// What live reads find is there, whichever replica the document comes from.
func TestDocumentsOfTwoReplicas(t *testing.T) {
	for mode, forms := range map[string]fakeapi.Forms{"aggregated": fakeapi.Aggregated(), "legacy": fakeapi.Legacy()} {
		for when, meanwhile := range meanwhiles {
			t.Run(mode+"/"+when, func(t *testing.T) {
				lifeBubble(t, func(t *testing.T) {
					ahead, behind := twoReplicas(forms)
					m := newLifeMapper(t, ahead, documentsInTurn(ahead, behind), apiutil.DynamicRESTMapperOptions{RefreshInterval: 5 * time.Second})
					lifeReadAll(t, m)
					defer lifeStart(t, m)()
					for n := range 8 {
						for _, gvk := range []schema.GroupVersionKind{lifeLate, lifeFoo, lifeNew} {
							if err := lifeAsk(m, gvk); err != nil {
								t.Errorf("round %d, %s: %v", n, gvk, err)
							}
						}
						if _, err := m.RESTMapping(lifeLate.GroupKind()); err != nil {
							t.Errorf("round %d, without a version: %v", n, err)
						}
						meanwhile(t, m)
					}
				})
			})
		}
	}
}

// A program for a kind of a group that both replicas have, in a version that one of
// them lacks, runs on: what ends it is confirmed live.
func TestRunWhileServedByTwoReplicas(t *testing.T) {
	lifeBubble(t, func(t *testing.T) {
		ahead, behind := twoReplicas(fakeapi.Aggregated())
		m := newLifeMapper(t, ahead, documentsInTurn(ahead, behind), apiutil.DynamicRESTMapperOptions{RefreshInterval: 5 * time.Second})
		defer lifeStart(t, m)()
		c := runController(m, lifeFoo, lifeLate, lifeNew)
		time.Sleep(5 * time.Minute)
		c.want(t, 1, 0)
		c.wantReturn(t, true, nil)
	})
}

// Whatever a load balancer does, what both replicas have is always found, what
// neither has never, and nothing is an error.
func TestRoundRobin(t *testing.T) {
	for mode, forms := range map[string]fakeapi.Forms{"aggregated": fakeapi.Aggregated(), "legacy": fakeapi.Legacy()} {
		t.Run(mode, func(t *testing.T) {
			lifeBubble(t, func(t *testing.T) {
				ahead, behind := twoReplicas(forms)
				m := newLifeMapper(t, ahead, fakeapi.RoundRobin(ahead, behind), apiutil.DynamicRESTMapperOptions{RefreshInterval: 5 * time.Second})
				defer lifeStart(t, m)()
				lifeReadAll(t, m)
				resets := []func(){func() {}, m.Reset, func() { m.ResetGroup(lifeFoo.Group) }}
				for n := range 60 {
					resets[n%3]()
					for _, form := range lookupForms(lifeFoo) {
						if n%2 == 0 && (form.group == "" || form.version == "") {
							continue // so that an odd number of requests shifts the turns
						}
						form.wantAnswer(t, m, fmt.Sprintf("round %d", n))
					}
					for _, gvk := range []schema.GroupVersionKind{lifeLate, lifeNew} {
						if err := lifeAsk(m, gvk); err != nil && !meta.IsNoMatchError(err) {
							t.Errorf("round %d, %s: %v", n, gvk, err)
						}
					}
					lifeWantAbsent(t, m, schema.GroupVersionKind{Group: lifeFoo.Group, Version: "v1", Kind: "Absent"})
					time.Sleep(time.Second)
				}
				// In the end both have heard of it.
				lifeServe(behind, lifeLate)
				lifeServe(behind, lifeNew)
				time.Sleep(12 * time.Second)
				lifeWantServed(t, m, lifeLate, lifeNew, lifeFoo)
			})
		})
	}
}

// The validators of one replica are none of the other's, and each is believed for
// its own content alone: with no new kind in sight nothing moves.
func TestSameContentOfTwoReplicas(t *testing.T) {
	lifeBubble(t, func(t *testing.T) {
		a, b := lifeServer(fakeapi.Aggregated()), lifeServer(fakeapi.Aggregated())
		m := newLifeMapper(t, a, fakeapi.RoundRobin(a, b), apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Second})
		lifeReadAll(t, m)
		generation := m.Generation()
		stop := lifeStart(t, m)
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
