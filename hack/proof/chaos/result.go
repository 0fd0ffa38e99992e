// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

// heal is how the mapper got over one kill.
type heal struct {
	what          string
	down, healthy time.Duration // from the kill to readyz, and from there on
}

type findings struct {
	heals     []heal
	converged []time.Duration
	watching  []time.Duration
	broken    report.Broken

	lookups, misses, resets, waits, runs int64
	longest                              time.Duration
}

func (f *findings) count(l *load) {
	f.lookups += l.lookups.Load()
	f.misses += l.misses.Load()
	f.resets += l.resets.Load()
	f.waits += l.waits.Load()
	f.runs += l.runs.Load()
	f.longest = max(f.longest, time.Duration(l.longest.Load()))
}

var sorts = []string{"API server, 1", "API server, 2", "etcd"}

// write writes the page and the plot.
func (f *findings) write(o options, out string, took time.Duration) error {
	p := report.NewPage("Chaos on real API servers", fmt.Sprintf("go run ./chaos -kills %d -etcd %d", o.kills, o.etcd), took)
	etcd := len(f.times("etcd", func(h heal) time.Duration { return h.down }))
	p.Text("SIGKILL for an API server %d times and for etcd %d times, while %d goroutines, two subscribers and two RunWhileServed use one mapper",
		len(f.heals)-etcd, etcd, workers)
	p.Text("with a RefreshInterval of %v and WatchAPIs, and CRDs come, go and change. For the second half there are two API servers behind a proxy that sends", interval)
	p.Text("each request to the next of them, dead or alive. Seed %d.\n", o.seed)
	p.Text("The mapper made %d lookups of what is served, %d of what never was, %d resets and %d waits; RunWhileServed began %d times for a kind that comes and goes.",
		f.lookups, f.misses, f.resets, f.waits, f.runs)
	p.Text("The longest call took %s; calls with a context had %v, the others the %v of each request.\n", report.Rounded(f.longest), waitsFor, oneRequest)
	var rows [][]string
	for _, sort := range sorts {
		for _, column := range []struct {
			name string
			of   func(heal) time.Duration
		}{
			{"down", func(h heal) time.Duration { return h.down }},
			{"readyz to healthy", func(h heal) time.Duration { return h.healthy }},
		} {
			if times := f.times(sort, column.of); len(times) > 0 {
				rows = append(rows, row(sort+": "+column.name, times))
			}
		}
	}
	for _, each := range []struct {
		name  string
		times []time.Duration
	}{{"subscribers converge", f.converged}, {"all watches are open", f.watching}} {
		if slices.Sort(each.times); len(each.times) > 0 {
			rows = append(rows, row(fmt.Sprintf("every %d kills: %s", settleEvery, each.name), each.times))
		}
	}
	p.Table([]string{"", "times", "median", "90 %", "longest"}, rows)
	p.Text("A number after \"API server\" says how many there were. Healthy must be within %v.\n", interval+grace)
	p.Text("![times to heal](chaos.svg)\n")
	return p.Finish(out, "chaos", &f.broken, f.plots()...)
}

func row(name string, sorted []time.Duration) []string {
	at := func(part float64) string {
		return fmt.Sprintf("%.2f s", sorted[int(part*float64(len(sorted)-1)+0.5)].Seconds())
	}
	return []string{name, fmt.Sprint(len(sorted)), at(0.5), at(0.9), at(1)}
}

func (f *findings) times(sort string, of func(heal) time.Duration) []time.Duration {
	var times []time.Duration
	for _, h := range f.heals {
		if h.what == sort {
			times = append(times, of(h))
		}
	}
	slices.Sort(times)
	return times
}

func (f *findings) plots() []report.Plot {
	return []report.Plot{
		f.plot("From readyz to healthy", interval+grace, func(h heal) time.Duration { return h.healthy }),
		f.plot("From the kill to readyz", 0, func(h heal) time.Duration { return h.down }),
	}
}

func (f *findings) plot(title string, bound time.Duration, of func(heal) time.Duration) report.Plot {
	p := report.Plot{Title: title, X: "kill", Y: "seconds"}
	for _, sort := range sorts {
		s := report.Series{Name: sort, Dots: true}
		for n, h := range f.heals {
			if h.what == sort {
				s.Points = append(s.Points, report.Point{X: float64(n + 1), Y: of(h).Seconds()})
			}
		}
		if len(s.Points) > 0 {
			p.Series = append(p.Series, s)
		}
	}
	if bound > 0 {
		p.Series = append(p.Series, report.Level("bound", bound.Seconds(), 0, float64(len(f.heals))))
	}
	return p
}
