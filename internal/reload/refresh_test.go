// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package reload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// After any history a refresh of an unchanged server makes two requests without a body.
func TestRefreshOfAnUnchangedServerIsTwo304(t *testing.T) {
	server, r := known(t, fakeapi.Aggregated())
	for n := 1; n <= 4; n++ {
		name := fmt.Sprintf("g%04d.example.com", n)
		_, _ = find(context.Background(), r, name, "Absent")
		_, _ = find(context.Background(), r, name, "Absent", "v7")
		r.ResetGroup(name)
		_, _ = find(context.Background(), r, name, "Absent")
	}
	r.Reset()
	if err := r.Refresh(context.Background()); err != nil {
		t.Fatal(err)
	}
	server.TakeRequests()
	if err := r.Refresh(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, req := range server.TakeRequests() {
		if req.Code != 304 {
			t.Error(req)
		}
	}
}

// Who asked for a refresh waits until all of it is done.
func TestRefreshWaitsUntilAllIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const gone = 100
		server := fakeapi.New(fakeapi.Typical(gone+1, 1, 1)...)
		server.SetForms(fakeapi.Legacy())
		r := newReloader(t, server)
		defer r.KeepAll()()
		if err := r.Refresh(context.Background()); err != nil {
			t.Fatal(err)
		}
		server.SetLatency(100 * time.Millisecond)
		for n := 1; n <= gone; n++ {
			server.Remove(fmt.Sprintf("g%04d.example.com", n))
		}
		if err := r.Refresh(context.Background()); err != nil {
			t.Fatal(err)
		}
		if got := r.Snapshot().Kinds(); got != 7+1 {
			t.Errorf("%d kinds are served after a refresh, not 8", got)
		}
	})
}

// Groups that the document dropped are read until one is still served, or fails.
func TestRefreshStopsAtTheFirstDroppedGroupThatIsStillServed(t *testing.T) {
	const dropped = 20
	for name, test := range map[string]struct{ down, left, requests int }{
		"all are gone":   {0, 0, 2 + 2*dropped},
		"all are served": {dropped, dropped, 2 + 1},
		"some are gone":  {5, 5, 2 + 2*(dropped-5) + 1},
	} {
		t.Run(name, func(t *testing.T) {
			server := fakeapi.New(fakeapi.Typical(1, 1, 1)...)
			group := func(n int) string { return fmt.Sprintf("d%02d.example.org", n) }
			for n := range dropped {
				server.PutVersion(group(n), fakeapi.Version{Name: "v1", Resources: []fakeapi.Resource{resource("Foo")}})
			}
			r := newReloader(t, server)
			if err := r.Refresh(context.Background()); err != nil {
				t.Fatal(err)
			}
			for n := range dropped {
				if server.Remove(group(n)); n >= dropped-test.down {
					server.SetFault(fakeapi.Under("/apis/"+group(n)), fakeapi.Status(503, 0))
				}
			}
			server.TakeRequests()
			if err := r.Refresh(context.Background()); err != nil {
				t.Fatal(err)
			}
			left := len(r.Snapshot().Groups()) - 2
			if requests := len(server.TakeRequests()); left != test.left || requests > test.requests {
				t.Errorf("%d groups left, %d requests", left, requests)
			}
		})
	}
}

// Only a refresh that succeeds confirms what is known: neither lookups, whatever they read,
// nor refreshes of groups.
func TestOnlyARefreshMovesTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fakeapi.New(fakeapi.Typical(2, 1, 1)...)
		r := newReloaderWith(t, server, Options{MaxAge: maxAge})
		if err := r.Refresh(context.Background()); err != nil {
			t.Fatal(err)
		}
		for range 29 {
			time.Sleep(maxAge / 29)
			_, _ = find(context.Background(), r, "absent.example.com", "Absent")
			_, _ = find(context.Background(), r, group, "Absent")
			_ = r.RefreshGroups(context.Background(), []string{group})
		}
		time.Sleep(time.Second)
		if synctest.Wait(); !r.Due() {
			t.Error("lookups have confirmed what is known")
		}
		if err := r.Refresh(context.Background()); err != nil || r.Due() {
			t.Errorf("%v; after a refresh it is due: %v", err, r.Due())
		}
	})
}

// While somebody keeps all, a refresh of a legacy server reads every version. Otherwise it
// reads those that were asked for.
func TestKeepAll(t *testing.T) {
	server := fakeapi.New(fakeapi.Typical(4, 3, 1)...)
	server.SetForms(fakeapi.Legacy())
	r := newReloader(t, server)
	refresh := func(want int) {
		t.Helper()
		server.TakeRequests()
		if err := r.Refresh(context.Background()); err != nil {
			t.Fatal(err)
		}
		if got := len(server.TakeRequests()); got != want {
			t.Errorf("%d requests, not %d", got, want)
		}
	}
	refresh(2)
	_, _ = find(context.Background(), r, group, "Kind0001A", "v1")
	refresh(3)
	release := r.KeepAll()
	refresh(2 + 13)
	release()
}

// A refresh, of groups or of all, whose context ends while a version hangs ends with it.
func TestRefreshEndsAmongLiveReads(t *testing.T) {
	for name, refresh := range map[string]func(*Reloader, context.Context) error{
		"groups": func(r *Reloader, ctx context.Context) error { return r.RefreshGroups(ctx, []string{group}) },
		"all":    (*Reloader).Refresh,
	} {
		synctest.Test(t, func(t *testing.T) {
			server, r := known(t, fakeapi.Aggregated())
			r.ResetGroup(group) // so that a refresh reads it live
			server.SetFault(fakeapi.Under("/apis/"+group+"/v3"), fakeapi.Timeout())
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			start := time.Now()
			if err := refresh(r, ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
				t.Errorf("%s: %v after %v", name, err, time.Since(start))
			}
			time.Sleep(time.Minute)
		})
	}
}

// RefreshGroups reads each group live, also one that is new, and joins the errors.
func TestRefreshGroups(t *testing.T) {
	server, r := known(t, fakeapi.Aggregated())
	server.PutVersion("new.example.com", fakeapi.Version{Name: "v1", Resources: []fakeapi.Resource{resource("New")}})
	if err := r.RefreshGroups(context.Background(), []string{"new.example.com", "absent.example.com", group, group}); err != nil {
		t.Error(err)
	}
	if v := r.Snapshot().Group("new.example.com").Version("v1"); v == nil || v.Table == nil {
		t.Error("the new group is not known")
	}
	if got := len(server.TakeRequests()); got != 2+1+4 {
		t.Errorf("%d requests", got)
	}
	server.SetFault(fakeapi.At("/apis/"+group+"/v2", "/apis/"+other), fakeapi.Status(503, 0))
	if err := r.RefreshGroups(context.Background(), []string{group, other}); err == nil {
		t.Error("no error")
	}
}

// A live read that is not waited for is an error, and no snapshot.
func TestReadLiveGivesUp(t *testing.T) {
	_, r := known(t, fakeapi.Aggregated())
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(gone)
	for _, version := range []string{"v1", ""} {
		s, err := r.ReadLive(ctx, schema.GroupVersion{Group: group, Version: version})
		if !errors.Is(err, gone) || version != "" && s != nil {
			t.Errorf("version %q: %v, a snapshot: %v", version, err, s != nil)
		}
	}
}

// Reports of reads are made in their order, may look something up themselves, and keep no
// lookup waiting.
func TestReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fakeapi.New(fakeapi.Typical(2, 1, 1)...)
		var r *Reloader
		var told []string
		r = newReloaderWith(t, server, Options{Report: func(report Report) {
			if len(told) == 0 {
				time.Sleep(time.Minute)
				_, _ = find(context.Background(), r, group, "Absent", "v8")
			}
			told = append(told, report.Read.Part.String())
		}})
		start := time.Now()
		if err := r.Refresh(context.Background()); err != nil {
			t.Fatal(err)
		}
		_, _ = find(context.Background(), r, group, "Absent", "v9")
		if took := time.Since(start); took != 0 {
			t.Errorf("reads waited %v for a report", took)
		}
		time.Sleep(2 * time.Minute)
		if synctest.Wait(); !slices.Equal(told, []string{"document", "version", "version"}) {
			t.Errorf("told %q", told)
		}
	})
}

// A change of the snapshot closes the channel that Changed has returned before.
func TestChanged(t *testing.T) {
	_, r := known(t, fakeapi.Aggregated())
	changed := r.Changed()
	select {
	case <-changed:
		t.Error("closed without a change")
	default:
	}
	r.Reset()
	select {
	case <-changed:
	default:
		t.Error("not closed")
	}
}
