// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
)

var errDown = errors.New("connection refused")

// fakeView is down from the start of the test until up.
type fakeView struct {
	since, up time.Time
	repairs   atomic.Int32
	hang      bool // a repair ends with its context
}

func (v *fakeView) Health() health {
	if time.Now().Before(v.up) {
		return health{FailingSince: v.since, Reason: errDown}
	}
	return health{LastSuccess: time.Now()}
}

func (v *fakeView) Repair(ctx context.Context) error {
	v.repairs.Add(1)
	if v.hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return v.Health().Reason
}

func testOptions(t *testing.T) options {
	return options{
		check: time.Second, tolerate: 10 * time.Second, attempt: 5 * time.Second,
		backoff: time.Second, most: 8 * time.Second, deadline: time.Minute,
		status: filepath.Join(t.TempDir(), "status.json"),
	}
}

// watch runs a watchdog over a view that is down for a while, for as long.
func watch(t *testing.T, opts options, down, runs time.Duration, v *fakeView) *watchdog {
	t.Helper()
	v.since, v.up = time.Now(), time.Now().Add(down)
	w := newWatchdog(v, opts, logr.Discard())
	ctx, cancel := context.WithTimeout(t.Context(), runs)
	defer cancel()
	if err := w.start(ctx); err != nil {
		t.Error(err)
	}
	return w
}

// hack/e2e has outages that are tolerated, and that are repaired.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &fakeView{hang: true}
		w := watch(t, testOptions(t), time.Hour, 5*time.Minute, v)
		if s := w.now(); s.State != gaveUp || w.alive(nil) == nil || w.ready(nil) == nil {
			t.Errorf("got %+v", s)
		}
		if n := v.repairs.Load(); n < 5 || n > 12 { // of 5 seconds each, in a minute
			t.Errorf("%d attempts", n)
		}
		w = watch(t, w.opts, 0, 5*time.Second, v)
		if s := w.now(); s.State != healthy || w.alive(nil) != nil {
			t.Errorf("the server is back: got %+v", s)
		}
	})
}

func TestOneRepairAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatchdog(&fakeView{hang: true, up: time.Now().Add(time.Hour)}, testOptions(t), logr.Discard())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.start(ctx) }()

		if err := w.askRepair(); err != nil {
			t.Error(err)
		}
		for range 3 {
			if err := w.askRepair(); !errors.Is(err, errRepairing) {
				t.Errorf("got %v", err)
			}
			time.Sleep(10 * time.Second)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := w.askRepair(); err != nil {
			t.Errorf("after it has ended: %v", err)
		}
	})
}

func TestStatusFile(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want state
		err  string
	}{
		"unhealthy": {`{"state":"Unhealthy","attempts":3}`, unhealthy, ""},
		"gave up":   {`{"state":"GaveUp","attempts":3}`, unhealthy, ""},
		"healthy":   {`{"state":"Healthy","attempts":3}`, unknown, ""},
		"no status": {`{"state":`, unknown, "is not a status"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "status.json")
			if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := load(file)
			if s.State != test.want || (s.Attempts != 3) != (test.err != "") {
				t.Errorf("got %+v", s)
			}
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("got error %v, want %q", err, test.err)
			}
			if err := save(file, s); err != nil {
				t.Error(err)
			}
			if files, err := os.ReadDir(filepath.Dir(file)); err != nil || len(files) != 1 {
				t.Errorf("left %v, %v", files, err)
			}
		})
	}
	if s, err := load(filepath.Join(t.TempDir(), "none")); err != nil || s.State != unknown {
		t.Errorf("no file: got %+v, %v", s, err)
	}
}

func TestOptions(t *testing.T) {
	for args, want := range map[string]string{
		"-tolerate=0": "-tolerate must be positive", "-status=": "-status must name a file", "-kinds=widgets": `"widgets" is no kind`,
	} {
		if err := run(t.Context(), []string{args}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", args, err, want)
		}
	}
}
