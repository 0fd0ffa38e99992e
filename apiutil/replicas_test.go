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

// missElsewhere makes lookups that read the whole document and find nothing.
func missElsewhere(t *testing.T, m *apiutil.DynamicRESTMapper) {
	t.Helper()
	for _, err := range []error{miss(m, "nowhere.example.com"), miss(m, otherKind.Group), missByResource(m, "")} {
		if !meta.IsNoMatchError(err) {
			t.Errorf("a lookup of what is nowhere: %v", err)
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

// What live reads have found stays, whichever replica the document comes from, and whatever
// happens meanwhile that does not change it.
func TestDocumentsOfTwoReplicas(t *testing.T) {
	eachMode(t, bothModes, func(t *testing.T, forms fakeapi.Forms) {
		inBubble(t, func(t *testing.T) {
			ahead, behind := twoReplicas(forms)
			m := newMapperThrough(t, ahead, documentsInTurn(ahead, behind), apiutil.DynamicRESTMapperOptions{RefreshInterval: 5 * time.Second})
			readAll(t, m)
			defer startMapper(t, m)()
			aRefresh := func() { time.Sleep(6 * time.Second) }
			meanwhiles := [][]func(){
				{}, {func() { missElsewhere(t, m) }}, {m.Reset}, {func() { m.ResetGroup(lateKind.Group) }},
				{m.Reset, func() { missElsewhere(t, m) }, m.Reset}, {aRefresh}, {m.Reset, aRefresh},
			}
			for n := range 8 * len(meanwhiles) {
				wantServed(t, m, lateKind, fooKind, newKind)
				if _, err := m.RESTMapping(lateKind.GroupKind()); err != nil || t.Failed() {
					t.Fatalf("after %d, without a version: %v", n%len(meanwhiles), err)
				}
				for _, meanwhile := range meanwhiles[n/8] {
					meanwhile()
				}
			}
		})
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
					if n%2 == 1 || form.group != "" && form.version != "" { // so that an odd number of requests shifts the turns
						form.wantAnswer(t, m, fmt.Sprintf("round %d", n))
					}
				}
				for _, gvk := range []schema.GroupVersionKind{lateKind, newKind} {
					if err := lookUp(m, gvk); err != nil && !meta.IsNoMatchError(err) {
						t.Errorf("round %d, %s: %v", n, gvk, err)
					}
				}
				wantAbsent(t, m, fooKind.GroupVersion().WithKind("Absent"))
				time.Sleep(time.Second)
			}
			serve(behind, lateKind)
			serve(behind, newKind)
			time.Sleep(12 * time.Second)
			wantServed(t, m, lateKind, newKind, fooKind)
		})
	})
}
