// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package reload

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

const group = "g0001.example.com"

// known is a reloader that has read a server of a few groups with three versions each.
func known(t *testing.T, forms fakeapi.Forms) (*fakeapi.Server, *Reloader) {
	t.Helper()
	server := fakeapi.New(fakeapi.Typical(4, 3, 1)...)
	server.SetForms(forms)
	r := newReloader(t, server)
	defer r.KeepAll()()
	if err := r.Refresh(context.Background()); err != nil {
		t.Fatal(err)
	}
	server.TakeRequests()
	return server, r
}

// A lookup of something known waits once for a read that cannot begin, because an earlier one of the
// same version hangs.
func TestWaitsOnceForAHangingRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, r := known(t, fakeapi.Legacy())
		server.PutVersion(group, fakeapi.Version{Name: "v1", Resources: []fakeapi.Resource{resource("Old")}})
		if _, err := find(context.Background(), r, group, "Old", "v1"); err != nil {
			t.Fatal(err)
		}
		server.SetFault(fakeapi.At("/apis/"+group+"/v1"), fakeapi.Timeout())
		go func() { _, _ = find(context.Background(), r, group, "Absent", "v1") }()
		synctest.Wait()
		r.ResetGroup(group)
		began := time.Now()
		v, err := find(context.Background(), r, group, "Old", "v1")
		if took := time.Since(began); v != "v1" || took != 2*silentWait {
			t.Errorf("%q, %v after %v; want it after %v", v, err, took, 2*silentWait)
		}
		time.Sleep(2 * time.Minute) // until both reads have ended
	})
}

// A 404 for a built-in version that the document has is checked against the document
// without peers: not listed there means that a peer serves it.
func TestVersionOfAPeerStays(t *testing.T) {
	const builtIn = "policy"
	for name, local := range map[string]bool{"a peer's": false, "the document is behind": true} {
		synctest.Test(t, func(t *testing.T) {
			all := append(fakeapi.Typical(1, 1, 1), fakeapi.Group{Name: builtIn, Versions: []fakeapi.Version{
				{Name: "v2", Resources: []fakeapi.Resource{resource("New")}}, {Name: "v1", Resources: []fakeapi.Resource{resource("Old")}},
			}})
			server, alone := fakeapi.New(all...), fakeapi.New(all...)
			if !local {
				alone.RemoveVersion(builtIn, "v2")
			}
			server.SetFault(fakeapi.At("/apis/"+builtIn+"/v2"), fakeapi.Text(404, "404 page not found\n"))
			server.SetFault(func(req *http.Request) bool { return strings.Contains(req.Header.Get("Accept"), "profile=nopeer") },
				fakeapi.Func("alone", func(req *http.Request) (*http.Response, error) { return alone.Client().Transport.RoundTrip(req) }))
			r := newReloader(t, server)
			for i, ask := range []string{"New", "Absent", "New"} {
				v, err := find(context.Background(), r, builtIn, ask, "v2")
				if want := ask == "New" && (i == 0 || !local); want != (v == "v2") || !want && !meta.IsNoMatchError(err) {
					t.Errorf("%s, %d: %q, %v", name, i, v, err)
				}
			}
			server.TakeRequests()
			if _, err := find(context.Background(), r, builtIn, "New", "v9"); !meta.IsNoMatchError(err) || len(server.TakeRequests()) != 1 {
				t.Errorf("%s, a version that the document does not list: %v; want no match after one request", name, err)
			}
			if r.Reset(); !local {
				if v, err := find(context.Background(), r, builtIn, "New", "v2"); v != "v2" {
					t.Errorf("%s, after a reset: %v", name, err)
				}
			}
		})
	}
}

// Of the reads of a version that a starting server is asked for again, the last counts: it is
// later than a document that was read meanwhile.
func TestLastOfRepeatedReadsCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, r := known(t, fakeapi.Aggregated())
		end := server.SetFault(fakeapi.All(), fakeapi.Status(503, 0))
		if r.Refresh(context.Background()) == nil {
			t.Error("the server does not fail")
		}
		end()
		server.SetFault(fakeapi.At("/apis/"+group+"/v1"), fakeapi.Text(404, "404 page not found\n"))
		server.PutVersion(group, fakeapi.Version{Name: "v1", Resources: []fakeapi.Resource{resource("News")}})
		go func() {
			time.Sleep(100 * time.Millisecond)
			if err := r.ReadDocument(context.Background()); err != nil || !r.Snapshot().Serves(group, "v1") {
				t.Errorf("the document has the version: %v", err)
			}
		}()
		if v, err := find(context.Background(), r, group, "News", "v1"); !meta.IsNoMatchError(err) || r.Snapshot().Serves(group, "v1") {
			t.Errorf("found in %q, %v; want no match: the version was gone at last", v, err)
		}
		synctest.Wait()
	})
}

// Whoever's context has ended reads nothing, and gets its cause.
func TestEndedContextReadsNothing(t *testing.T) {
	server, r := known(t, fakeapi.Legacy())
	reason := errors.New("changed its mind")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(reason)
	for name, read := range map[string]func() error{
		"a lookup":    func() error { _, err := find(ctx, r, group, "Absent"); return err },
		"a version":   func() error { _, err := r.ReadLive(ctx, schema.GroupVersion{Group: group, Version: "v1"}); return err },
		"two groups":  func() error { return r.RefreshGroups(ctx, []string{group, "g0002.example.com"}) },
		"all":         func() error { return r.Refresh(ctx) },
		"many groups": func() error { return r.Lookup(ctx, snapshot.Query{ByResource: true, Name: "absents"}, notFound).Err },
	} {
		if err := read(); !errors.Is(err, reason) || len(server.TakeRequests()) > 0 {
			t.Errorf("%s: %v; want %v, and no request", name, err, reason)
		}
	}
}
