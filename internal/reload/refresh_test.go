// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package reload

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"weak"

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

// While somebody keeps all, a refresh of a legacy server reads every version. Otherwise it
// reads those that were asked for since the last one left.
func TestKeepAllReadsEveryVersion(t *testing.T) {
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
	next := r.KeepAll()
	release()
	refresh(2 + 13)
	next()
	refresh(2) // until a lookup needs it again
	_, _ = find(context.Background(), r, group, "Kind0001A", "v1")
	refresh(3)
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

// Reports of reads are made in their order, may look something up themselves, and keep no
// lookup waiting.
func TestReportsKeepNoLookupWaiting(t *testing.T) {
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

const maxAge = 30 * time.Second

// After a failure it is due after twice the time, and no later.
func TestAgeBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fakeapi.New(fakeapi.Typical(2, 1, 1)...)
		r := newReloaderWith(t, server, Options{MaxAge: maxAge})
		if err := r.Refresh(context.Background()); err != nil {
			t.Fatal(err)
		}
		// becomesDue returns how long it takes after a confirmation.
		becomesDue := func() time.Duration {
			for start := time.Now(); ; time.Sleep(time.Second) {
				if synctest.Wait(); r.Due() {
					return time.Since(start)
				}
			}
		}
		becomesDue()
		server.SetFault(fakeapi.All(), fakeapi.Refused())
		for i, want := range []time.Duration{2 * maxAge, 2 * maxAge, 2 * maxAge} {
			r.Confirm()
			if got := becomesDue(); got != want {
				t.Errorf("after %d failures due in %v, not %v", i+1, got, want)
			}
		}
		server.ClearFaults()
		r.Confirm()
		if got := becomesDue(); got != maxAge {
			t.Errorf("after a success due in %v, not %v", got, maxAge)
		}
	})
}

// The timer keeps no mapper alive.
func TestAgeLetsGo(t *testing.T) {
	r := newReloaderWith(t, fakeapi.New(fakeapi.Typical(2, 1, 1)...), Options{MaxAge: time.Hour})
	if err := r.Refresh(context.Background()); err != nil {
		t.Fatal(err)
	}
	left := weak.Make(r)
	for range 100 {
		if runtime.GC(); left.Value() == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("the mapper is still there")
}
