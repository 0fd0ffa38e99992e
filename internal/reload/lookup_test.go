// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package reload

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/discovery"
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
	if err := r.ReadAll(context.Background()); err != nil {
		t.Fatal(err)
	}
	server.TakeRequests()
	return server, r
}

// paths forgets the requests and returns their paths, without what all begin with.
func paths(server *fakeapi.Server) string {
	var all []string
	for _, r := range server.TakeRequests() {
		all = append(all, strings.TrimPrefix(r.Path, "/apis/"))
	}
	return strings.Join(all, " ")
}

func absent(r *Reloader, versions ...string) Finding {
	q := snapshot.Query{Group: group, Name: "Absent", Versions: versions}
	return r.Lookup(context.Background(), q, func(*snapshot.Snapshot) (bool, bool) { return false, false })
}

// A lookup makes the reads that are missing, one after the other.
func TestLookup(t *testing.T) {
	server, r := known(t, fakeapi.Aggregated())
	if found := absent(r); found.Err != nil || len(found.Failed) > 0 || found.Partial {
		t.Errorf("%+v", found)
	}
	const want = "/apis " + group + " " + group + "/v3 " + group + "/v2 " + group + "/v1"
	if got := paths(server); got != want {
		t.Errorf("requests %s", got)
	}
	if m, err := mapping(r, schema.GroupKind{Group: group, Kind: "Absent"}, "v9"); !meta.IsNoMatchError(err) {
		t.Errorf("%v, %v", m, err)
	}
	if got := paths(server); got != group+"/v9" {
		t.Errorf("requests %s", got)
	}
}

// A read that settles the lookup is the last, if all are of one group.
func TestLookupStops(t *testing.T) {
	server, r := known(t, fakeapi.Aggregated())
	r.ResetGroup(group)
	if _, err := mapping(r, schema.GroupKind{Group: group, Kind: "Kind0001A"}); err != nil {
		t.Error(err)
	}
	if got := paths(server); got != group+" "+group+"/v3" {
		t.Errorf("requests %s", got)
	}
}

// After so many versions in a row that got no answer the rest is not asked for.
func TestSilentVersions(t *testing.T) {
	server, r := known(t, fakeapi.Aggregated())
	server.SetFault(fakeapi.Under("/apis/"+group), fakeapi.Refused())
	versions := []string{"v5", "v6", "v7", "v8"}
	found := absent(r, versions...)
	if got := paths(server); got != group+"/v5 "+group+"/v6" {
		t.Errorf("requests %s", got)
	}
	for _, version := range versions {
		err := found.Failed[schema.GroupVersion{Group: group, Version: version}]
		if !discovery.Unanswered(err) {
			t.Errorf("%s: %v", version, err)
		}
	}
	server.ClearFaults()
	server.SetFault(fakeapi.At("/apis/"+group+"/v5", "/apis/"+group+"/v7"), fakeapi.Refused())
	if absent(r, versions...); len(server.TakeRequests()) != 4 {
		t.Error("not every version was asked for, though one in two answers")
	}
}

// If the group, or the server, did not answer the last time, a lookup of a known kind
// does not wait long. Other lookups wait as long as the read takes.
func TestPatience(t *testing.T) {
	for name, hangs := range map[string]func(*http.Request) bool{"the group": fakeapi.Under("/apis/" + group), "the server": fakeapi.All()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, r := known(t, fakeapi.Aggregated())
				server.SetFault(hangs, fakeapi.Timeout())
				took := func(versions ...string) time.Duration {
					start := time.Now()
					q := snapshot.Query{Group: group, Name: "Kind", Versions: versions}
					r.Lookup(context.Background(), q, func(*snapshot.Snapshot) (bool, bool) { return true, false })
					return time.Since(start)
				}
				r.ResetGroup(group)
				if got := took("v1"); got < 30*time.Second {
					t.Errorf("the first took %v", got)
				}
				if got := took("v1"); got != patience {
					t.Errorf("the second took %v", got)
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

// A lookup in many groups waits a moment only for one that was reset and hangs. It fails
// then, but not once the group answers again.
func TestPatienceWithAnotherGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, r := known(t, fakeapi.Aggregated())
		search := func() (failed int, took time.Duration) {
			start := time.Now()
			q := snapshot.ResourceQuery(schema.GroupVersionResource{Resource: "absents"})
			found := r.Lookup(context.Background(), q, func(*snapshot.Snapshot) (bool, bool) { return false, false })
			if found.Err != nil {
				t.Error(found.Err)
			}
			return len(found.Failed), time.Since(start)
		}
		r.ResetGroup(group)
		up := server.SetFault(fakeapi.Under("/apis/"+group), fakeapi.Timeout())
		if failed, took := search(); failed == 0 || took < 30*time.Second {
			t.Errorf("the first: %d versions failed, after %v", failed, took)
		}
		for range 2 {
			if failed, took := search(); failed == 0 || took > 2*patience {
				t.Errorf("a later one: %d versions failed, after %v", failed, took)
			}
		}
		up()
		time.Sleep(time.Minute) // until the last read has timed out
		if failed, took := search(); failed > 0 || took > time.Second {
			t.Errorf("the group answers: %d versions failed, after %v", failed, took)
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
		found := r.Lookup(ctx, snapshot.Query{Group: group, Name: "Absent"}, func(*snapshot.Snapshot) (bool, bool) { return false, false })
		if !errors.Is(found.Err, reason) || time.Since(start) != time.Second {
			t.Errorf("%v after %v", found.Err, time.Since(start))
		}
		time.Sleep(time.Minute)
	})
}

// A refresh reads live what is in dispute, and what a reset waits for; but it does
// not wait long for a group that hangs.
func TestRefreshSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, r := known(t, fakeapi.Aggregated())
		r.ResetGroup(group)
		if err := r.Refresh(context.Background()); err != nil {
			t.Fatal(err)
		}
		if got := server.TakeRequests(); len(got) != 6 || len(r.Snapshot().Awaited()) > 0 {
			t.Errorf("%d requests, %d groups still awaited", len(got), len(r.Snapshot().Awaited()))
		}
		server.SetFault(fakeapi.Under("/apis/"+group), fakeapi.Timeout())
		r.ResetGroup(group)
		start := time.Now()
		if err := r.Refresh(context.Background()); err != nil || time.Since(start) != settleFor {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		time.Sleep(5 * time.Minute)
	})
}

// Of groups that the document drops a few are asked. If those have gone, all go; if
// they do not answer, all stay. After a failure each 404 is read two times more.
func TestDroppedGroups(t *testing.T) {
	for name, test := range map[string]struct{ dropped, down, left, requests int }{
		"one has gone":                {1, 0, 0, 3},
		"one does not answer":         {1, 1, 1, 3},
		"many have gone":              {10, 0, 0, 2 + mostDropped},
		"none of many answers":        {10, 10, 10, 2 + mostDropped},
		"one of those that are asked": {10, 1, 10 - mostDropped + 1, 2 + mostDropped + 2*(mostDropped-1)},
	} {
		t.Run(name, func(t *testing.T) {
			server := fakeapi.New(fakeapi.Typical(4, 3, 1)...)
			for n := range test.dropped {
				server.PutVersion(dropped(n), fakeapi.Version{Name: "v1", Resources: []fakeapi.Resource{resource("Foo", true)}})
			}
			r := newReloader(t, server)
			if err := r.Refresh(context.Background()); err != nil {
				t.Fatal(err)
			}
			for n := range test.dropped {
				if server.Remove(dropped(n)); n < test.down {
					server.SetFault(fakeapi.Under("/apis/"+dropped(n)), fakeapi.Status(503, 0))
				}
			}
			server.TakeRequests()
			if err := r.Refresh(context.Background()); err != nil {
				t.Fatal(err)
			}
			left := 0
			for n := range test.dropped {
				if r.Snapshot().Serves(dropped(n), "v1") {
					left++
				}
			}
			if requests := len(server.TakeRequests()); left != test.left || requests != test.requests {
				t.Errorf("%d groups left, %d requests", left, requests)
			}
		})
	}
}

func dropped(n int) string { return fmt.Sprintf("d%02d.example.org", n) }

// Reports of reads are made in their order, may look something up themselves, and keep no
// lookup waiting.
func TestReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fakeapi.New(fakeapi.Typical(2, 1, 1)...)
		var r *Reloader
		var told []string
		r = newReloaderWith(t, server, Options{UnhealthyAfter: time.Minute, Report: func(report Report) {
			if report.Reason == "document" && len(told) == 0 {
				time.Sleep(time.Minute)
				absent(r, "v8")
			}
			told = append(told, report.Reason)
		}})
		start := time.Now()
		if err := r.Refresh(context.Background()); err != nil {
			t.Fatal(err)
		}
		absent(r, "v9")
		if took := time.Since(start); took != 0 {
			t.Errorf("reads waited %v for a report", took)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if want := []string{"document", "version", "version"}; !slices.Equal(told, want) {
			t.Errorf("told %q", told)
		}
	})
}
