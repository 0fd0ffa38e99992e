// SPDX-License-Identifier: Apache-2.0

// Package chaos kills real API servers and their etcd while a mapper is in heavy use,
// and holds it to what DESIGN.md promises.
//
//	go test ./chaos -v -timeout 0 -args -kills 100 -etcd 20 [-seed N] [-o results]
//
// For the first half of the kills the mapper talks to one API server; for the second
// half to two, through a proxy that sends each request to the next of them, dead or
// alive.
package chaos

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/freshmapper/freshmapper/hack/bench/chart"
	"github.com/freshmapper/freshmapper/hack/proof/internal/campaign"
	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

var (
	kills = flag.Int("kills", 2, "how often an API server is killed")
	etcd  = flag.Int("etcd", 1, "how often etcd is killed")
)

const (
	settleEvery  = 10 // kills
	convergesFor = 90 * time.Second
	watchesFor   = 60 * time.Second // after kill upon kill a watch is opened again after half a minute
)

// findings are those of both halves.
type findings struct {
	*campaign.Campaign
	heals               []heal
	converged, watching []time.Duration

	lookups, misses, resets, waits, runs atomic.Int64
	longest                              atomic.Int64 // of all calls, in nanoseconds
}

// heal is how the mapper got over one kill.
type heal struct {
	what          string
	down, healthy time.Duration // from the kill to readyz, and from there on
}

func TestCampaign(t *testing.T) {
	f := &findings{Campaign: campaign.Begin(t, "chaos")}
	for n := range 2 {
		servers, etcd := (*kills+1-n)/2, (*etcd+1-n)/2 // the halves
		if servers+etcd == 0 {
			continue
		}
		t.Logf("%d API servers: %d kills of one, %d of etcd", n+1, servers, etcd)
		if err := f.half(n+1, servers, etcd); err != nil {
			f.Broken("the run ended early: %v", err)
			break
		}
	}
	f.write()
}

// half runs the load against a control plane of its own, and kills servers.
func (f *findings) half(servers, kills, etcd int) error {
	plane, err := f.Plane(servers)
	if err != nil {
		return err
	}
	defer func() { _ = plane.Stop() }() // the next half has the machine for itself
	l, err := newLoad(f, plane)
	if err != nil {
		return err
	}
	before := goleak.IgnoreCurrent()
	l.start()
	err = l.kill(kills, etcd)
	l.stop()
	if left := leaked(before); left != nil {
		f.Broken("goroutines are left: %v", left)
	}
	return err
}

// leaked returns an error that names the goroutines which have begun and not ended.
// It gives them time, because requests that nobody waits for end by their timeouts.
// The connections of our own clients do not count: the next half uses them, too.
func leaked(before goleak.Option) (err error) {
	for range 40 {
		if err = goleak.Find(before,
			goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
			goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*clientConnReadLoop).run"),
			goleak.IgnoreAnyFunction("net/http.(*http2clientConnReadLoop).run")); err == nil {
			return nil
		}
		time.Sleep(time.Second)
	}
	return err
}

// kill kills API servers and etcd in random order, one at a time.
func (l *load) kill(kills, etcd int) error {
	r := l.Random(200)
	time.Sleep(2 * time.Second)
	for n, victim := range r.Perm(kills + etcd) {
		if err := l.killOne(r, victim < etcd); err != nil {
			return err
		}
		if n%settleEvery == settleEvery-1 || n == kills+etcd-1 {
			l.converge()
		}
	}
	return l.Ctx.Err()
}

// killOne starts what it kills again up to a second later.
func (l *load) killOne(r *rand.Rand, etcd bool) error {
	servers := l.plane.Servers
	victim, what := servers[r.IntN(len(servers))], fmt.Sprintf("API server, %d", len(servers))
	if etcd {
		victim, what = l.plane.Etcd, "etcd"
	}
	killed := time.Now()
	victim.Kill()
	time.Sleep(time.Duration(r.Int64N(int64(time.Second))))
	if err := victim.Start(); err != nil {
		return err
	}
	for _, s := range servers {
		if err := s.AwaitReady(l.Ctx); err != nil {
			return err
		}
	}
	h := heal{what: what, down: time.Since(killed)}
	ready := time.Now()
	var ok bool
	h.healthy, ok = within(l.Ctx, 2*(interval+grace), func() bool {
		status := l.m.Status()
		return l.m.Healthz(nil) == nil && status.UnhealthySince.IsZero() && status.LastSuccess.After(ready)
	})
	if !ok || h.healthy > interval+grace {
		l.Broken("not healthy %v after readyz (%s): %v", h.healthy, what, l.m.Status().LastError)
	}
	l.heals = append(l.heals, h)
	l.Logf("%s %s: down for %.1f s, healthy after %.2f s", time.Now().UTC().Format(time.TimeOnly), what, h.down.Seconds(), h.healthy.Seconds())
	time.Sleep(time.Duration(r.Int64N(int64(2 * time.Second))))
	return l.Ctx.Err()
}

// within waits for something, and returns how long it took.
func within(ctx context.Context, most time.Duration, yes func() bool) (time.Duration, bool) {
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		ok, took := yes(), time.Since(begin)
		if ok || took > most || ctx.Err() != nil {
			return took, ok
		}
	}
}

// converge stops all changes of the API, and waits until the mapper watches again
// and all servers and subscribers agree on what is served.
func (l *load) converge() {
	took, ok := within(l.Ctx, watchesFor, func() bool { return l.m.Status().Watching })
	if ok {
		l.watching = append(l.watching, took)
	} else if l.Ctx.Err() == nil {
		l.Broken("not watching %v after the last kill", took)
	}
	l.churning.Lock()
	defer l.churning.Unlock()
	time.Sleep(time.Second) // what is under way on the servers
	took, ok = within(l.Ctx, convergesFor, func() bool {
		for _, s := range l.servers {
			truth, err := s.truth()
			if err != nil || slices.ContainsFunc(l.views, func(v *view) bool { return !v.is(truth) }) {
				return false
			}
		}
		return true
	})
	if ok {
		l.converged = append(l.converged, took)
		l.Logf("subscribers converged after %.2f s", took.Seconds())
	} else if l.Ctx.Err() == nil {
		l.Broken("subscribers do not know after %v what is served", took)
	}
}

var (
	sorts   = []string{"API server, 1", "API server, 2", "etcd"}
	down    = func(h heal) time.Duration { return h.down }
	healthy = func(h heal) time.Duration { return h.healthy }
)

func (f *findings) write() {
	p := f.Page("Chaos on real API servers")
	ofEtcd := len(f.times("etcd", down))
	p.Text("SIGKILL for an API server %d times and for etcd %d times, while %d goroutines, two subscribers and two RunWhileServed use one mapper",
		len(f.heals)-ofEtcd, ofEtcd, workers)
	p.Text("with a RefreshInterval of %v and WatchAPIs, and CRDs come, go and change. For the second half there are two API servers behind a proxy that sends", interval)
	p.Text("each request to the next of them, dead or alive. Seed %d.\n", f.Seed)
	p.Text("The mapper made %d lookups of what is served, %d of what never was, %d resets and %d waits; RunWhileServed began %d times for a kind that comes and goes.",
		f.lookups.Load(), f.misses.Load(), f.resets.Load(), f.waits.Load(), f.runs.Load())
	p.Text("The longest call took %s; calls with a context had %v, the others the %v of each request.\n",
		report.Rounded(time.Duration(f.longest.Load())), waitsFor, oneRequest)
	var rows [][]string
	row := func(name string, times []time.Duration) {
		if len(times) == 0 {
			return
		}
		slices.Sort(times)
		at := func(part float64) string {
			return fmt.Sprintf("%.2f s", times[int(part*float64(len(times)-1)+0.5)].Seconds())
		}
		rows = append(rows, []string{name, fmt.Sprint(len(times)), at(0.5), at(0.9), at(1)})
	}
	for _, sort := range sorts {
		row(sort+": down", f.times(sort, down))
		row(sort+": readyz to healthy", f.times(sort, healthy))
	}
	row(fmt.Sprintf("every %d kills: subscribers converge", settleEvery), f.converged)
	row(fmt.Sprintf("every %d kills: all watches are open", settleEvery), f.watching)
	p.Table([]string{"", "times", "median", "90 %", "longest"}, rows)
	p.Text("A number after \"API server\" says how many there were. Healthy must be within %v.\n", interval+grace)
	p.Text("![times to heal](chaos.svg)\n")
	first := f.plot("From readyz to healthy", healthy)
	first.Lines = append(first.Lines, chart.Level("bound", (interval+grace).Seconds(), 0, float64(len(f.heals))))
	f.Finish(p, first, f.plot("From the kill to readyz", down))
}

func (f *findings) times(sort string, of func(heal) time.Duration) (times []time.Duration) {
	for _, h := range f.heals {
		if h.what == sort {
			times = append(times, of(h))
		}
	}
	return times
}

func (f *findings) plot(title string, of func(heal) time.Duration) chart.Plot {
	p := chart.Plot{Title: title, X: chart.Axis{Label: "kill"}, Y: chart.Axis{Label: "seconds"}}
	for _, sort := range sorts {
		line := chart.Line{Name: sort, Cloud: true}
		for n, h := range f.heals {
			if h.what == sort {
				line.Points = append(line.Points, chart.Point{X: float64(n + 1), Y: of(h).Seconds()})
			}
		}
		if len(line.Points) > 0 {
			p.Lines = append(p.Lines, line)
		}
	}
	return p
}
