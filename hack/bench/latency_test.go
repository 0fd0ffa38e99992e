// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
)

// BenchmarkOnceLatency: how long hits take while nothing else happens ("quiet"),
// and while somebody else asks, twice, for an absent group of a server that takes
// 300 ms to answer ("busy"). Hits come on a schedule, as from a program with work
// to do. A hit that waits delays those behind it. Their time counts from the moment
// when they were due, so that one long wait is not only one sample.
func BenchmarkOnceLatency(b *testing.B) {
	const (
		quiet = 500 * time.Millisecond
		busy  = 1250 * time.Millisecond // two discoveries of two requests, and the pause
	)
	forEach(b, []int{100, 500}, func(b *testing.B, groups int, f flavour) {
		for b.Loop() {
			e := newEndpoint(groupsOf(groups))
			mapper := f.warmMapper(b, e)
			e.render(b, f.accept)
			report(b, "quiet", hitLatencies(b, e, mapper, quiet))

			e.server.SetLatency(300 * time.Millisecond)
			done := missTwice(mapper)
			report(b, "busy", hitLatencies(b, e, mapper, busy))
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(0, "ns/op")
	})
}

// missTwice causes two discoveries, one after the other. The pause lets the hits
// through that waited for the first. Without it, a mapper that makes hits wait
// would let only one hit pass in each discovery.
func missTwice(mapper meta.RESTMapper) (done chan error) {
	done = make(chan error, 1)
	go func() {
		err := askAbsent(mapper, absentGroup)
		time.Sleep(50 * time.Millisecond)
		if err == nil {
			err = askAbsent(mapper, absentGroup)
		}
		done <- err
	}()
	return done
}

// hitLatencies makes a hit each interval for so long, and returns the sorted times.
func hitLatencies(b *testing.B, e *endpoint, mapper meta.RESTMapper, length time.Duration) []time.Duration {
	const interval = 500 * time.Microsecond // more than any mapper needs for a hit
	times := make([]time.Duration, 0, length/interval)
	start := time.Now()
	ready := time.Duration(0) // when the hit before was done
	for due := time.Duration(0); due < length; due += interval {
		begin := due
		if ready < due {
			begin = spinUntil(start, due)
		}
		mustFind(b, mapper, e.kind)
		ready = time.Since(start)
		times = append(times, ready-begin)
	}
	slices.Sort(times)
	return times
}

// spinUntil does not sleep: a timer is late by more than a hit takes, and the
// processor's caches would be cold after it.
func spinUntil(start time.Time, due time.Duration) time.Duration {
	for {
		if now := time.Since(start); now >= due {
			return now
		}
	}
}

func report(b *testing.B, when string, sorted []time.Duration) {
	at := max(0, (len(sorted)*990+999)/1000-1)
	b.ReportMetric(float64(sorted[at]), when+"-p99-ns")
}
