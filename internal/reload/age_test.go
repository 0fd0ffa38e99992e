// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package reload

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

const maxAge = 30 * time.Second

// A confirmation is due MaxAge after the last read of the document. The first call of
// Confirm starts one refresh, and does not wait.
func TestAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fakeapi.New(fakeapi.Typical(2, 1, 1)...)
		server.SetLatency(time.Second)
		r := newReloaderWith(t, server, Options{MaxAge: maxAge})
		if r.Due() {
			t.Error("due before anything was read")
		}
		if err := r.Refresh(context.Background()); err != nil {
			t.Fatal(err)
		}
		server.TakeRequests()
		time.Sleep(maxAge - time.Nanosecond)
		if synctest.Wait(); r.Due() {
			t.Error("due before its time")
		}
		time.Sleep(time.Nanosecond)
		if synctest.Wait(); !r.Due() {
			t.Error("not due")
		}
		start := time.Now()
		for range 10 {
			r.Confirm()
		}
		if took := time.Since(start); took != 0 || r.Due() {
			t.Errorf("Confirm took %v, and leaves it due: %v", took, r.Due())
		}
		time.Sleep(2 * time.Second)
		if synctest.Wait(); len(server.TakeRequests()) != 2 {
			t.Error("not one refresh")
		}
		time.Sleep(maxAge)
		if synctest.Wait(); !r.Due() {
			t.Error("not due again")
		}
	})
}

// Without lookups nothing happens.
func TestAgeIsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fakeapi.New(fakeapi.Typical(2, 1, 1)...)
		r := newReloaderWith(t, server, Options{MaxAge: maxAge})
		if err := r.Refresh(context.Background()); err != nil {
			t.Fatal(err)
		}
		server.TakeRequests()
		time.Sleep(time.Hour)
		if synctest.Wait(); len(server.TakeRequests()) > 0 || !r.Due() {
			t.Errorf("requests without a lookup, or not due: %v", r.Due())
		}
	})
}

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

// Without MaxAge there is no timer.
func TestNoAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloader(t, fakeapi.New(fakeapi.Typical(2, 1, 1)...))
		if err := r.Refresh(context.Background()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if synctest.Wait(); r.Due() || r.age.timer != nil {
			t.Errorf("due: %v, timer %v", r.Due(), r.age.timer)
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
