// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package reload

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// paths lists the paths of the requests so far, and forgets them.
func paths(server *fakeapi.Server) (all []string) {
	for _, r := range server.TakeRequests() {
		all = append(all, r.Path)
	}
	return all
}

// eachNotFound runs test, in a bubble, with each form of a server's 404.
func eachNotFound(t *testing.T, test func(t *testing.T, forms fakeapi.Forms)) {
	for _, status := range []bool{false, true} {
		forms := fakeapi.Aggregated()
		forms.StatusNotFound = status
		synctest.Test(t, func(t *testing.T) { test(t, forms) })
	}
}

// After an outage in which most groups went, one document, read a second after the first 404, decides
// for all of them.
func TestOneDocumentDecidesForAll(t *testing.T) {
	const groups = 380
	for name, legacy := range map[string]bool{"aggregated": false, "legacy": true} {
		eachNotFound(t, func(t *testing.T, forms fakeapi.Forms) {
			forms.V2 = !legacy
			all := fakeapi.Typical(groups+2, 1, 1)
			server := fakeapi.New(all...)
			server.SetForms(forms)
			r := newReloader(t, server)
			defer r.KeepAll()()
			if err := r.Refresh(context.Background()); err != nil {
				t.Fatal(err)
			}
			heal := server.SetFault(fakeapi.All(), fakeapi.Refused())
			if r.Refresh(context.Background()) == nil {
				t.Error("the server does not fail")
			}
			heal()
			server.SetGroups(all[:2]...)
			paths(server)
			start := time.Now()
			found := r.Lookup(context.Background(), snapshot.ResourceQuery(schema.GroupVersionResource{Resource: "absents"}), notFound)
			if found.Err != nil || len(found.Failed) > 0 {
				t.Errorf("%s: %v, %v", name, found.Err, found.Failed)
			}
			asked := paths(server)
			documents := len(slices.DeleteFunc(slices.Clone(asked), func(path string) bool { return path != "/apis" }))
			if took := time.Since(start); took != doubtAfter || documents > 1+3 || len(asked) > 2*groups+20 {
				t.Errorf("%s: %d requests, %d of them of the document, in %v; want one document or two to decide after %v", name, len(asked), documents, took, doubtAfter)
			}
			if n := len(r.Snapshot().Groups()); n != 2 {
				t.Errorf("%s: %d groups are left, want 2", name, n)
			}
		})
	}
}

// In doubt a 404 does not count if the document cannot be read, or has the version a second later.
// After half a minute without a failure there is no doubt any more.
func TestDoubt(t *testing.T) {
	for name, test := range map[string]struct {
		before   func(*fakeapi.Server) // in doubt, before the version is asked
		idle     time.Duration
		absent   bool
		took     time.Duration
		requests int
	}{
		"gone":                {func(s *fakeapi.Server) { s.Remove(group) }, 0, true, doubtAfter, 3},
		"the document has it": {func(s *fakeapi.Server) { s.SetFault(fakeapi.At("/apis/"+group+"/v1"), fakeapi.NotFound()) }, 0, false, doubtAfter, 3},
		"it cannot be read": {func(s *fakeapi.Server) {
			s.Remove(group)
			s.SetFault(fakeapi.At("/apis"), fakeapi.Status(503, 0))
		}, 0, false, doubtAfter, 3},
		"long ago": {func(s *fakeapi.Server) { s.Remove(group) }, doubtFor + 1, true, 0, 1},
	} {
		for _, failure := range []fakeapi.Fault{fakeapi.Refused(), fakeapi.ResetMidBody(), fakeapi.Status(429, 1), fakeapi.Status(503, 0), fakeapi.Status(500, 0)} {
			eachNotFound(t, func(t *testing.T, forms fakeapi.Forms) {
				server, r := known(t, forms)
				heal := server.SetFault(fakeapi.At("/apis/g0002.example.com/v1"), failure) // at whatever path
				_, _ = find(context.Background(), r, "g0002.example.com", "Absent", "v1")
				heal()
				time.Sleep(test.idle)
				test.before(server)
				paths(server)
				start := time.Now()
				_, err := find(context.Background(), r, group, "Absent", "v1")
				took, asked := time.Since(start), paths(server)
				if meta.IsNoMatchError(err) != test.absent || took != test.took || len(asked) != test.requests {
					t.Errorf("%s, after %s: %v, %v and %q; want no match: %t, %v and %d requests", name, failure, err, took, asked, test.absent, test.took, test.requests)
				}
				if r.Snapshot().Serves(group, "v1") == test.absent {
					t.Errorf("%s, after %s: the version is known: %t", name, failure, !test.absent)
				}
				if !test.absent && !strings.Contains(fmt.Sprint(err), "/apis/"+group+"/v1") {
					t.Errorf("%s: the error does not name the path: %v", name, err)
				}
			})
		}
	}
}

// What is not known needs no doubt, and neither does a failure of the thing itself.
func TestNoDoubt(t *testing.T) {
	eachNotFound(t, func(t *testing.T, forms fakeapi.Forms) {
		server, r := known(t, forms)
		heal := server.SetFault(fakeapi.At("/apis/g0002.example.com/v1"), fakeapi.Refused())
		_, _ = find(context.Background(), r, "g0002.example.com", "Absent", "v1")
		heal()
		paths(server)
		start := time.Now()
		if _, err := find(context.Background(), r, "nowhere.example.com", "Absent", "v1"); !meta.IsNoMatchError(err) || time.Since(start) > 0 {
			t.Errorf("unknown: %v after %v", err, time.Since(start))
		}
		if asked := paths(server); len(asked) != 1 {
			t.Errorf("unknown: %q", asked)
		}
	})
	for _, failure := range []fakeapi.Fault{fakeapi.Status(403, 0), fakeapi.LoginPage(), fakeapi.Timeout()} {
		eachNotFound(t, func(t *testing.T, forms fakeapi.Forms) {
			server, r := known(t, forms)
			server.SetFault(fakeapi.At("/apis/g0002.example.com/v1"), failure)
			_, _ = find(context.Background(), r, "g0002.example.com", "Absent", "v1")
			server.Remove(group)
			start := time.Now()
			if _, err := find(context.Background(), r, group, "Absent", "v1"); !meta.IsNoMatchError(err) || time.Since(start) > 0 {
				t.Errorf("after %s: %v after %v", failure, err, time.Since(start))
			}
		})
	}
}

// A 404 for a built-in version that the document has: the document, read again, decides whether
// another API server of the cluster serves it (KEP-4020).
func TestVersionOfAPeerStays(t *testing.T) {
	const builtIn = "policy"
	eachNotFound(t, func(t *testing.T, forms fakeapi.Forms) {
		server := fakeapi.New(append(fakeapi.Typical(1, 1, 1), fakeapi.Group{Name: builtIn, Versions: []fakeapi.Version{
			{Name: "v1", Resources: []fakeapi.Resource{resource("Old")}},
		}})...)
		server.SetForms(forms)
		server.SetPeers(fakeapi.Group{Name: builtIn, Versions: []fakeapi.Version{{Name: "v2", Resources: []fakeapi.Resource{resource("New")}}}})
		r := newReloader(t, server)
		for i, ask := range []string{"New", "Absent", "New"} {
			v, err := find(context.Background(), r, builtIn, ask, "v2")
			if want := ask == "New"; want != (v == "v2") || !want && !meta.IsNoMatchError(err) {
				t.Errorf("%d: %s in %q, %v", i, ask, v, err)
			}
		}
		r.ResetGroup(builtIn)
		if v, err := find(context.Background(), r, builtIn, "New", "v2"); v != "v2" {
			t.Errorf("after a reset of the group: %v", err)
		}
		paths(server)
		if _, err := find(context.Background(), r, builtIn, "New", "v9"); !meta.IsNoMatchError(err) || len(paths(server)) != 1 {
			t.Errorf("a version that the document does not have: %v; want no match after one request", err)
		}
		server.SetPeers()
		if _, err := find(context.Background(), r, builtIn, "Absent", "v2"); !meta.IsNoMatchError(err) || r.Snapshot().Serves(builtIn, "v2") {
			t.Errorf("the peer is gone: %v, and the version is known: %t", err, r.Snapshot().Serves(builtIn, "v2"))
		}
	})
}

// A program that starts behind a gateway which has lost a route has seen no Audit-Id when it gets the
// first 404. The document that decides has one, which shows whose 404 that was.
func TestFirstAnswerIsThatOfAGateway(t *testing.T) {
	eachNotFound(t, func(t *testing.T, forms fakeapi.Forms) {
		server := fakeapi.New(fakeapi.Typical(2, 1, 1)...)
		server.SetForms(forms)
		r := newReloader(t, server)
		server.SetFault(fakeapi.At("/api"), fakeapi.Times(1, fakeapi.Refused()))
		heal := server.SetFault(fakeapi.At("/apis/"+group+"/v1"), fakeapi.LostRoute())
		if _, err := find(context.Background(), r, group, "Absent", "v1"); err == nil || meta.IsNoMatchError(err) || !strings.Contains(err.Error(), "Audit-Id") {
			t.Errorf("behind a gateway that has lost the route: %v", err)
		}
		heal()
		if _, err := find(context.Background(), r, group, "Absent", "v1"); !meta.IsNoMatchError(err) {
			t.Errorf("when it has the route again: %v", err)
		}
	})
}

// Before work is stopped, an absence is read twice, a second apart. A failure is none.
func TestAbsentReadsTwice(t *testing.T) {
	gv := schema.GroupVersion{Group: group, Version: "v1"}
	still := func(s *snapshot.Snapshot) bool { return s.Serves(gv.Group, gv.Version) }
	for name, test := range map[string]struct {
		fault  fakeapi.Fault
		absent bool
		took   time.Duration
		reads  int
	}{
		"gone":          {fakeapi.NotFound(), true, doubtAfter, 2},
		"for a moment":  {fakeapi.Times(1, fakeapi.NotFound()), false, doubtAfter, 2},
		"it fails":      {fakeapi.Status(403, 0), false, 0, 1},
		"a lost route":  {fakeapi.LostRoute(), false, 0, 1},
		"a lost server": {fakeapi.LostService("tenant"), false, 0, 1},
	} {
		eachNotFound(t, func(t *testing.T, forms fakeapi.Forms) {
			server, r := known(t, forms)
			server.SetFault(fakeapi.At("/apis/"+group+"/v1"), test.fault)
			start := time.Now()
			if got := r.Absent(context.Background(), gv, still); got != test.absent || time.Since(start) != test.took || len(paths(server)) != test.reads {
				t.Errorf("%s: %t after %v; want %t after %v, and %d reads", name, got, time.Since(start), test.absent, test.took, test.reads)
			}
		})
	}
}
