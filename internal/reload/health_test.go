// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package reload

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// TestHealth: which errors are the server's, and which only a group's.
func TestHealth(t *testing.T) {
	document, ofGroup := snapshot.Read{Part: snapshot.PartDocument}, version(group, "v1")
	answered, refused := errors.New("503"), &net.OpError{Op: "dial", Err: errors.New("refused")}
	type read struct {
		snapshot.Read
		err error
	}
	for name, test := range map[string]struct {
		reads     []read
		failures  int
		since     int // the read after which the server fails; 0 for never
		wantError bool
	}{
		"nothing was read":               {nil, 0, 0, false},
		"a success":                      {[]read{{document, nil}}, 0, 0, false},
		"the document fails":             {[]read{{document, answered}}, 1, 1, true},
		"a group fails":                  {[]read{{ofGroup, answered}}, 1, 0, true},
		"a group, and no connection":     {[]read{{ofGroup, refused}}, 1, 1, true},
		"since the first failure":        {[]read{{document, nil}, {ofGroup, answered}, {document, answered}, {document, answered}}, 3, 3, true},
		"any success ends it":            {[]read{{document, answered}, {ofGroup, nil}}, 0, 0, false},
		"a group after a single failure": {[]read{{document, answered}, {document, nil}, {ofGroup, answered}}, 1, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			var h Health
			start := time.Unix(1000, 0)
			at := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
			for i, r := range test.reads {
				h = h.after(at(i+1), r.Read, snapshot.Outcome{Tick: snapshot.Tick(i + 1), Err: r.err})
			}
			if h.ConsecutiveFailures != test.failures || (h.LastError != nil) != test.wantError {
				t.Errorf("%d failures, the last error is %v", h.ConsecutiveFailures, h.LastError)
			}
			if (test.since == 0) != h.FailingSince.IsZero() || test.since > 0 && !h.FailingSince.Equal(at(test.since)) {
				t.Errorf("failing since %v", h.FailingSince)
			}
			if len(test.reads) > 0 && !h.LastAttempt.Equal(at(len(test.reads))) {
				t.Errorf("the last attempt was at %v", h.LastAttempt)
			}
		})
	}
}

// An answer to a read that began earlier is no news, whenever it comes.
func TestLateAnswersSayNothing(t *testing.T) {
	read := version(group, "v1")
	h := Health{}
	for _, tick := range []snapshot.Tick{5, 3} { // the one that began last has ended first
		h = h.after(time.Now(), read, snapshot.Outcome{Tick: tick})
	}
	if h = h.after(time.Now(), read, snapshot.Outcome{Tick: 4, Err: errors.New("503")}); h.LastError != nil {
		t.Errorf("a read that began before one that succeeded is taken for news: %v", h.LastError)
	}
	if h = h.after(time.Now(), read, snapshot.Outcome{Tick: 6, Err: errors.New("503")}); h.LastError == nil {
		t.Error("a read that began last has failed, and that is not kept")
	}
}

// If there was no read for a long time, that is no reason for one.
func TestNoDoubtWithoutFailure(t *testing.T) {
	now := time.Now()
	h := Health{LastSuccess: now.Add(-time.Hour)}
	if h.doubtful(now, time.Minute) {
		t.Error("a server that nobody asked for an hour is doubted")
	}
	h.LastError = errors.New("503")
	if !h.doubtful(now, time.Minute) {
		t.Error("reads fail, the server was last heard an hour ago, and it is not doubted")
	}
}

// While only a group fails, the mapper checks from time to time whether the server works,
// with the cheapest request. No lookup waits for that.
func TestDoubtIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, r := known(t, fakeapi.Aggregated())
		server.SetFault(fakeapi.Under("/apis/"+group), fakeapi.Status(401, 0))
		absent(r, "v9")
		synctest.Wait()
		if got := paths(server); got != group+"/v9" {
			t.Errorf("at first: requests %s", got)
		}
		time.Sleep(time.Minute / 4)
		absent(r, "v9")
		synctest.Wait()
		if got := paths(server); got != group+"/v9 /api" {
			t.Errorf("later: requests %s", got)
		}
		if h := r.Health(); h.LastError != nil || !h.FailingSince.IsZero() {
			t.Errorf("%+v", h)
		}
		server.SetFault(fakeapi.At("/api"), fakeapi.Status(503, 0))
		time.Sleep(time.Minute / 4)
		absent(r, "v9")
		synctest.Wait()
		if h := r.Health(); h.FailingSince.IsZero() || h.FailedWith == nil {
			t.Errorf("%+v", h)
		}
		if err := r.Refresh(context.Background()); err == nil {
			t.Error("the document can be read")
		}
	})
}

// A flight that was given up says nothing of the server.
func TestGivenUpIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, r := known(t, fakeapi.Aggregated())
		server.SetFault(fakeapi.All(), fakeapi.Timeout())
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := r.Refresh(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		synctest.Wait()
		if h := r.Health(); h.LastError != nil {
			t.Errorf("%+v", h)
		}
	})
}
