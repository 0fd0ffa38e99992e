// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package reload

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

const (
	group = "g0001.example.com"
	other = "g0002.example.com"
)

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

// paths forgets the requests and returns their paths, without what most begin with.
func paths(server *fakeapi.Server) string {
	var all []string
	for _, r := range server.TakeRequests() {
		all = append(all, strings.TrimPrefix(r.Path, "/apis/"))
	}
	return strings.Join(all, " ")
}

func resource(kind string) fakeapi.Resource {
	singular := strings.ToLower(kind)
	return fakeapi.Resource{Name: singular + "s", Singular: singular, Kind: kind, Namespaced: true}
}

// search looks for a resource in all groups.
func search(r *Reloader, name string) (kinds []schema.GroupVersionKind, found Finding) {
	gvr := schema.GroupVersionResource{Resource: name}
	found = r.Lookup(context.Background(), snapshot.ResourceQuery(gvr), func(s *snapshot.Snapshot) (known, current bool) {
		_, current, err := s.KindsFor(gvr)
		return err == nil, current
	})
	kinds, _, _ = found.Snapshot.KindsFor(gvr)
	return kinds, found
}

// A lookup makes the reads that are missing, one after the other.
func TestLookupMakesItsReadsInTurn(t *testing.T) {
	server, r := known(t, fakeapi.Aggregated())
	for _, test := range []struct{ kind, version, want string }{
		{"Absent", "", group + "/v3 " + group + "/v2 " + group + "/v1 " + group},
		{"Absent", "v9", group + "/v9"},
		{"Kind0001A", "", ""},
	} {
		_, err := find(context.Background(), r, group, test.kind, slices.DeleteFunc([]string{test.version}, func(v string) bool { return v == "" })...)
		if got := paths(server); got != test.want || meta.IsNoMatchError(err) != (test.kind == "Absent") {
			t.Errorf("%s %s: requests %q, %v", test.kind, test.version, got, err)
		}
	}
}

// Reads that others made before a lookup began do not count for it; those that begin later do.
func TestOnlyLaterReadsCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, r := known(t, fakeapi.Aggregated())
		server.SetLatency(time.Second)
		go func() { _, _ = find(context.Background(), r, group, "Late", "v1") }()
		time.Sleep(time.Second / 2) // its read is under way
		server.PutVersion(group, fakeapi.Version{Name: "v1", Resources: []fakeapi.Resource{resource("Late")}})
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				if v, err := find(context.Background(), r, group, "Late", "v1"); v != "v1" {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got := len(server.TakeRequests()); got > 2 {
			t.Errorf("%d requests for 201 lookups", got)
		}
	})
}

// A lookup of something known waits 3 s for a server, or a group, that gave no answer the
// last time. Others wait as long as the read takes.
func TestLookupOfSomethingKnownDoesNotWaitLong(t *testing.T) {
	for name, hangs := range map[string]func(*http.Request) bool{"the group": fakeapi.Under("/apis/" + group), "the server": fakeapi.All()} {
		synctest.Test(t, func(t *testing.T) {
			server, r := known(t, fakeapi.Aggregated())
			server.SetFault(hangs, fakeapi.Timeout())
			r.Reset()
			r.ResetGroup(group)
			took := func(kind string) time.Duration {
				start := time.Now()
				version, _ := find(context.Background(), r, group, kind, "v1")
				if (kind == "Kind0001A") != (version == "v1") {
					t.Errorf("%s: %s in %q", name, kind, version)
				}
				return time.Since(start)
			}
			if got := took("Kind0001A"); got != 30*time.Second {
				t.Errorf("%s: the first took %v", name, got)
			}
			if got := took("Kind0001A"); got != knownWait {
				t.Errorf("%s: the second took %v", name, got)
			}
			if got := took("Absent"); got < 30*time.Second {
				t.Errorf("%s: an unknown kind took %v", name, got)
			}
			time.Sleep(5 * time.Minute)
		})
	}
}

// A lookup that names a version waits for nothing else of its group, and for no refresh.
func TestNamedVersionWaitsForNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, r := known(t, fakeapi.Legacy())
		server.SetFault(fakeapi.At("/apis/"+group+"/v2", "/apis/"+group, "/apis/"+other+"/v1"), fakeapi.Timeout())
		go func() { _, _ = find(context.Background(), r, group, "Absent") }()
		go func() { _ = r.Refresh(context.Background()) }()
		synctest.Wait()
		start := time.Now()
		if _, err := find(context.Background(), r, group, "Absent", "v1"); !meta.IsNoMatchError(err) || time.Since(start) != 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		time.Sleep(5 * time.Minute)
	})
}

// A lookup in many groups reads so many side by side, and no more.
func TestGroupsAreReadSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const groups = 50
		server := fakeapi.New(fakeapi.Typical(groups, 1, 1)...)
		server.SetForms(fakeapi.Legacy())
		r := newReloader(t, server)
		server.SetLatency(time.Second)
		start := time.Now()
		if kinds, found := search(r, "kind0050as"); len(kinds) != 1 || found.Err != nil {
			t.Error(kinds, found.Err)
		}
		want := time.Duration(2+(groups+1+mostParallel-1)/mostParallel) * time.Second
		if got := len(server.TakeRequests()); got != groups+3 || time.Since(start) != want {
			t.Errorf("%d requests in %v, not in %v", got, time.Since(start), want)
		}
	})
}

// A lookup whose context ends returns its cause at once.
func TestLookupGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, r := known(t, fakeapi.Aggregated())
		server.SetFault(fakeapi.All(), fakeapi.Timeout())
		reason := errors.New("changed its mind")
		ctx, cancel := context.WithTimeoutCause(context.Background(), time.Second, reason)
		defer cancel()
		start := time.Now()
		if _, err := find(ctx, r, group, "Absent"); !errors.Is(err, reason) || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		time.Sleep(time.Minute)
	})
}

// A version that fails is an error that names it, and only for lookups that need it.
func TestFailureIsNoAbsence(t *testing.T) {
	server, r := known(t, fakeapi.Aggregated())
	server.SetFault(fakeapi.At("/apis/"+group+"/v2"), fakeapi.Status(503, 0))
	if _, err := find(context.Background(), r, group, "Absent"); err == nil || meta.IsNoMatchError(err) || !strings.Contains(err.Error(), "/apis/"+group+"/v2") {
		t.Error(err)
	}
	if _, err := find(context.Background(), r, group, "Absent", "v1"); !meta.IsNoMatchError(err) {
		t.Error(err)
	}
	if v, err := find(context.Background(), r, group, "Kind0001A", "v2"); v != "v2" {
		t.Errorf("what is known is not served: %v", err)
	}
	if kinds, found := search(r, "pods"); len(kinds) != 1 || len(found.Failed) > 0 {
		t.Error(kinds, found.Failed)
	}
}

// A NoMatch after a known version was found gone must not be kept.
func TestNoMatchBesideAGoneVersionIsPartial(t *testing.T) {
	server, r := known(t, fakeapi.Aggregated())
	server.RemoveVersion(group, "v3")
	q := snapshot.Query{Group: group, Name: "Absent"}
	never := func(*snapshot.Snapshot) (bool, bool) { return false, false }
	if found := r.Lookup(context.Background(), q, never); !found.Partial {
		t.Errorf("%+v", found)
	}
	if found := r.Lookup(context.Background(), q, never); found.Partial || len(found.Failed) > 0 || found.Err != nil {
		t.Errorf("the next one: %+v", found)
	}
}

// LookupSince counts nothing that was read before.
func TestLookupSinceReadsAgain(t *testing.T) {
	server, r := known(t, fakeapi.Aggregated())
	server.PutVersion(group, fakeapi.Version{Name: "v1", Resources: []fakeapi.Resource{resource("Other")}})
	gk := schema.GroupKind{Group: group, Kind: "Kind0001A"}
	found := r.LookupSince(context.Background(), r.Now(), snapshot.KindQuery(gk, []string{"v1"}), func(s *snapshot.Snapshot) (known, current bool) {
		_, current, err := s.RESTMapping(gk, []string{"v1"})
		return err == nil, current
	})
	if _, _, err := found.Snapshot.RESTMapping(gk, []string{"v1"}); !meta.IsNoMatchError(err) || found.Err != nil {
		t.Errorf("%v, %v after %s", err, found.Err, paths(server))
	}
}

// For 30 s after the server failed, a 404 for something known is asked twice more within a
// second. One that starts answers 404 for what it serves.
func TestAbsenceAfterAFailureIsAskedTwiceMore(t *testing.T) {
	for name, test := range map[string]struct {
		ago      time.Duration // since the failure; 0: none
		version  string
		requests int
	}{
		"no failure":       {0, "v1", 1},
		"a moment ago":     {time.Second, "v1", 3},
		"long ago":         {time.Minute, "v1", 1},
		"an unknown thing": {time.Second, "v9", 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			server, r := known(t, fakeapi.Aggregated())
			if test.ago > 0 {
				server.SetFault(fakeapi.All(), fakeapi.Times(1, fakeapi.Status(503, 5)))
				_ = r.Refresh(context.Background())
				time.Sleep(test.ago)
			}
			server.RemoveVersion(group, "v1")
			server.TakeRequests()
			_, err := find(context.Background(), r, group, "Absent", test.version)
			if got := len(server.TakeRequests()); got != test.requests || !meta.IsNoMatchError(err) {
				t.Errorf("%s: %d requests, %v", name, got, err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		server, r := known(t, fakeapi.Aggregated())
		server.SetFault(fakeapi.All(), fakeapi.Times(1, fakeapi.Status(503, 5)))
		_ = r.Refresh(context.Background())
		server.SetFault(fakeapi.Under("/apis/"+group), fakeapi.Times(2, fakeapi.StatusText(404)))
		r.ResetGroup(group)
		if v, err := find(context.Background(), r, group, "Kind0001A", "v1"); v != "v1" {
			t.Errorf("a server that starts: %v", err)
		}
		if !r.Snapshot().Serves(group, "v1") {
			t.Error("the version is gone")
		}
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
			if r.Reset(); !local {
				if v, err := find(context.Background(), r, builtIn, "New", "v2"); v != "v2" {
					t.Errorf("%s, after a reset: %v", name, err)
				}
			}
		})
	}
}
