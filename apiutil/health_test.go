// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Health has two sorts of reads, the document and live ones. Each is ended by its own
// success only.
func TestEachSortOfReadHasItsOwnHealth(t *testing.T) {
	document, live := snapshot.Read{}, snapshot.ReadVersion("example.com", "v1")
	answered, refused := errors.New("503"), &net.OpError{Op: "dial", Err: errors.New("refused")}
	limited := fmt.Errorf("%w: limiter", discovery.ErrNotSent)
	type read struct {
		snapshot.Read
		err  error
		wait time.Duration
	}
	for name, test := range map[string]struct {
		reads          []read
		document, live int           // failures in a row
		since          time.Duration // of the document's
	}{
		"nothing was read":             {nil, 0, 0, 0},
		"a success":                    {[]read{{document, nil, 1}}, 0, 0, 0},
		"the document fails":           {[]read{{document, answered, 1}}, 1, 0, 0},
		"a version fails":              {[]read{{live, answered, 1}}, 0, 1, 0},
		"a version, no connection":     {[]read{{live, refused, 1}}, 0, 1, 0},
		"in a row":                     {[]read{{document, answered, 1}, {document, answered, time.Minute}}, 2, 0, time.Minute},
		"a good version hides nothing": {[]read{{document, answered, 1}, {live, nil, 1}, {document, answered, time.Minute}}, 2, 0, time.Minute + 1},
		"a good document ends it":      {[]read{{document, answered, 1}, {live, answered, 1}, {document, nil, 1}}, 0, 1, 0},
		"an hour apart":                {[]read{{document, answered, 1}, {document, answered, time.Hour}}, 1, 0, 0},
		"a success between":            {[]read{{document, answered, 1}, {document, nil, 1}, {document, answered, 1}}, 1, 0, 0},
		"the program's own limiter":    {[]read{{document, limited, 1}, {live, limited, 1}}, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var h health
			now := time.Unix(1000, 0)
			for i, r := range test.reads {
				now = now.Add(r.wait)
				h = h.after(now, r.Part, snapshot.Outcome{Tick: snapshot.Tick(i + 1), Err: r.err}, 10*time.Minute)
			}
			if h.document.failures != test.document || h.live.failures != test.live {
				t.Errorf("%d failures of the document, %d of live reads", h.document.failures, h.live.failures)
			}
			if (h.document.err != nil) != (test.document > 0) || (h.live.err != nil) != (test.live > 0) {
				t.Errorf("errors %v, %v", h.document.err, h.live.err)
			}
			if test.document > 0 && now.Sub(h.document.failingSince) != test.since {
				t.Errorf("the document fails since %v", now.Sub(h.document.failingSince))
			}
			if test.document == 0 && !h.document.failingSince.IsZero() {
				t.Error("the document fails since a time, and does not fail")
			}
		})
	}
}

// An answer to a read that began earlier is no news, whenever it comes.
func TestLateFailureSaysNothing(t *testing.T) {
	h := health{}
	for _, tick := range []snapshot.Tick{5, 3} { // the one that began last has ended first
		h = h.after(time.Now(), snapshot.PartVersion, snapshot.Outcome{Tick: tick}, 10*time.Minute)
	}
	failed := errors.New("503")
	if h = h.after(time.Now(), snapshot.PartVersion, snapshot.Outcome{Tick: 4, Err: failed}, 10*time.Minute); h.live.err != nil {
		t.Errorf("a read that began before one that succeeded is taken for news: %v", h.live.err)
	}
	if h = h.after(time.Now(), snapshot.PartVersion, snapshot.Outcome{Tick: 6, Err: failed}, 10*time.Minute); h.live.err == nil {
		t.Error("a read that began last has failed, and that is not kept")
	}
}
