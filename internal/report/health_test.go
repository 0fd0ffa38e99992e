// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Only a success of the same sort, or a gap, ends a failure. What the program's own rate limiter refuses is no failure,
// and a failure that is older than a success does not count.
func TestHealth(t *testing.T) {
	const gap = time.Minute
	refused := errors.New("refused")
	notSent := fmt.Errorf("%w: rate limiter", discovery.ErrNotSent)
	document, version := snapshot.PartDocument, snapshot.PartVersion
	type read struct {
		after time.Duration // since the start
		part  snapshot.Part
		seq   snapshot.Seq
		err   error
	}
	const s = time.Second
	for name, test := range map[string]struct {
		reads          []read
		document, live int           // failures
		since          time.Duration // of the document
		success        time.Duration // the last one; 0: none
	}{
		"a failure":                   {[]read{{s, document, 1, refused}}, 1, 0, s, 0},
		"two":                         {[]read{{s, document, 1, refused}, {2 * s, document, 2, refused}}, 2, 0, s, 0},
		"a success between":           {[]read{{s, document, 1, refused}, {2 * s, document, 2, nil}, {3 * s, document, 3, refused}}, 1, 0, 3 * s, 2 * s},
		"a success of another sort":   {[]read{{s, document, 1, refused}, {2 * s, version, 2, nil}, {3 * s, document, 3, refused}}, 2, 0, s, 2 * s},
		"a failure of another sort":   {[]read{{s, document, 1, nil}, {2 * s, version, 2, refused}}, 0, 1, 0, s},
		"as far apart as the gap":     {[]read{{s, document, 1, refused}, {s + gap, document, 2, refused}}, 2, 0, s, 0},
		"further apart than the gap":  {[]read{{s, document, 1, refused}, {2*s + gap, document, 2, refused}}, 1, 0, 2*s + gap, 0},
		"older than a success":        {[]read{{s, document, 2, nil}, {2 * s, document, 1, refused}}, 0, 0, 0, s},
		"older than an older success": {[]read{{s, document, 3, nil}, {2 * s, document, 1, nil}, {3 * s, document, 2, refused}}, 0, 0, 0, 2 * s},
		"not sent":                    {[]read{{s, document, 1, refused}, {2 * s, document, 2, notSent}, {3 * s, version, 3, notSent}}, 1, 0, s, 0},
	} {
		start := time.Now()
		h := Health{}
		for _, r := range test.reads {
			h = h.after(start.Add(r.after), r.part, snapshot.Outcome{Seq: r.seq, Err: r.err}, gap)
		}
		last := test.reads[len(test.reads)-1]
		if h.Document.Failures != test.document || h.Live.Failures != test.live || h.LastAttempt != start.Add(last.after) {
			t.Errorf("%s: %+v; want %d failures of the document and %d of live reads", name, h, test.document, test.live)
		}
		if test.document > 0 && h.Document.FailingSince != start.Add(test.since) {
			t.Errorf("%s: failing since %v; want %v", name, h.Document.FailingSince.Sub(start), test.since)
		}
		if (h.Document.Err != nil) != (test.document > 0) || (h.Live.Err != nil) != (test.live > 0) {
			t.Errorf("%s: the last errors are %v and %v", name, h.Document.Err, h.Live.Err)
		}
		success := time.Time{}
		if test.success > 0 {
			success = start.Add(test.success)
		}
		if h.LastSuccess != success {
			t.Errorf("%s: the last success was at %v; want %v", name, h.LastSuccess, success)
		}
	}
}

// UnhealthyAfter, and with it the gap, may be the longest duration there is.
func TestFirstFailureHasATimeWhateverTheGap(t *testing.T) {
	now := time.Now()
	h := Health{}.after(now, snapshot.PartDocument, snapshot.Outcome{Seq: 1, Err: errors.New("refused")}, math.MaxInt64)
	if h.Document.FailingSince != now {
		t.Errorf("failing since %v; want %v", h.Document.FailingSince, now)
	}
}
