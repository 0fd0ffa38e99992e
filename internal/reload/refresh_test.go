// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package reload

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

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

// Refreshes that wait less than a request may take come past a version that hangs: the read goes on
// without them, and has failed.
func TestShortRefreshesComePastWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, r := known(t, fakeapi.Aggregated())
		server.SetFault(fakeapi.Under("/apis/"+group+"/v3"), fakeapi.Timeout())
		reset := r.Now()
		r.ResetGroup(group)
		for range 10 {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			_ = r.Refresh(ctx)
			cancel()
		}
		if v := r.Snapshot().Group(group).Version("v1"); v.Asked <= reset {
			t.Errorf("v1 was last read at %d, before the reset at %d", v.Asked, reset)
		}
		time.Sleep(time.Minute)
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
			r.RefreshIfDue()
			if synctest.Wait(); !r.Stale() {
				t.Errorf("after %d failures what is known is not stale", i+1)
			}
			if got := becomesDue(); got != want {
				t.Errorf("after %d failures due in %v, not %v", i+1, got, want)
			}
		}
		server.ClearFaults()
		r.RefreshIfDue()
		if synctest.Wait(); r.Stale() {
			t.Error("after a success what is known is stale")
		}
		if got := becomesDue(); got != maxAge {
			t.Errorf("after a success due in %v, not %v", got, maxAge)
		}
	})
}

// A group that goes before a refresh comes to it is nothing to read.
func TestGroupGoesDuringRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const last = "g0099.example.com"
		server := fakeapi.New(fakeapi.Typical(100, 1, 1)...)
		server.SetForms(fakeapi.Legacy())
		r := newReloader(t, server)
		defer r.KeepAll()()
		if err := r.Refresh(context.Background()); err != nil {
			t.Fatal(err)
		}
		server.SetLatency(time.Second)
		time.AfterFunc(2500*time.Millisecond, func() { // the document is read, and the first groups are
			server.Remove(last)
			_, _ = r.ReadLive(context.Background(), schema.GroupVersion{Group: last, Version: "v1"})
			_ = r.ReadDocument(context.Background())
		})
		if err := r.Refresh(context.Background()); err != nil || r.Snapshot().Group(last) != nil {
			t.Errorf("%v; the group is known: %t", err, r.Snapshot().Group(last) != nil)
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
