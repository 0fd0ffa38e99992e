// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/hack/control"
	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

var (
	kills  = flag.Int("kills", 2, "how often the chaos kills an API server")
	etcds  = flag.Int("etcd", 1, "how often the chaos kills etcd")
	routes = flag.Int("routes", 1, "how often the gateway loses its route, and two replicas disagree")
	gap    = flag.Duration("gap", 3*time.Second, "for how long")
)

const (
	chaosInterval = 5 * time.Second
	chaosRequest  = 5 * time.Second
	chaosUsers    = 8
	healthyFor    = chaosInterval + 5*time.Second // until the mapper must be healthy
	convergeEvery = 10                            // kills
	convergesFor  = 90 * time.Second
	watchesFor    = 75 * time.Second // after kill upon kill the pause before a watch is 30 to 60 seconds
)

// times are how long it took until something was so.
type times map[string][]time.Duration

// await waits for something that must come.
func (t times) await(c *report.Campaign, what string, most time.Duration, yes func() bool) {
	took, ok := report.Within(c.Ctx, most, yes)
	t[what] = append(t[what], took)
	c.Logf("%s %s: %.2f s", time.Now().UTC().Format(time.TimeOnly), what, took.Seconds())
	if !ok && c.Ctx.Err() == nil {
		c.Broken("not within %v: %s", most, what)
	}
}

func (t times) table(c *report.Campaign) {
	var rows [][]string
	for _, name := range slices.Sorted(maps.Keys(t)) {
		took := slices.Sorted(slices.Values(t[name]))
		row := []string{name, fmt.Sprint(len(took))}
		for _, part := range []float64{0.5, 0.9, 1} {
			row = append(row, fmt.Sprintf("%.2f s", took[int(part*float64(len(took)-1)+0.5)].Seconds()))
		}
		rows = append(rows, row)
	}
	c.Table([]string{"", "times", "median", "90 %", "longest"}, rows...)
}

// users are all who use one mapper at once.
type users struct {
	*world
	times
	m       *apiutil.DynamicRESTMapper
	views   []*view
	runs    atomic.Int64 // of RunWhileServed, for a kind that comes and goes
	running sync.WaitGroup
}

// use puts a mapper in heavy use while something happens to its API server. All that was begun
// must end.
func (w *world) use(cfg *rest.Config, took times, happens func(u *users)) {
	client, err := rest.HTTPClientFor(cfg)
	w.Must(err)
	u := &users{world: w, times: took}
	u.m, err = apiutil.NewDynamicRESTMapperWithOptions(cfg, client, apiutil.DynamicRESTMapperOptions{
		RefreshInterval: chaosInterval, WatchAPIs: true, RequestTimeout: chaosRequest, UnhealthyAfter: time.Second,
	})
	w.Must(err)
	before := goleak.IgnoreCurrent()
	ctx, cancel := context.WithCancel(w.Ctx)
	u.start(ctx)
	time.Sleep(2 * time.Second)
	happens(u)
	cancel()
	ended := make(chan struct{})
	go func() {
		u.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(withoutEnd):
		w.Broken("something has not ended %v after its context", withoutEnd)
	}
	w.front.CloseClientConnections()
	w.front.Close()
	utilnet.CloseIdleConnectionsFor(client.Transport)
	if left := leaked(before); left != nil {
		w.Broken("goroutines are left: %v", left)
	}
	w.Text("The mapper made %d lookups of what is served, %d of what never was, %d resets and %d waits; RunWhileServed began %d times for a kind that comes and goes.",
		w.lookups.Load(), w.misses.Load(), w.resets.Load(), w.waits.Load(), u.runs.Load())
}

func (u *users) start(ctx context.Context) {
	u.running.Go(func() { _ = u.m.Start(ctx) })
	for _, slow := range []time.Duration{0, 200 * time.Millisecond} {
		v := &view{served: map[gvk]string{}}
		u.views = append(u.views, v)
		u.running.Go(func() { v.follow(u.m.Subscribe(ctx), slow) })
	}
	u.running.Go(func() { u.runSteady(ctx, u.m) })
	u.running.Go(func() {
		_ = u.m.RunWhileServed(ctx, func(runs context.Context) error {
			u.runs.Add(1)
			<-runs.Done()
			return nil
		}, u.churned[0])
	})
	u.running.Go(func() { u.change(ctx) })
	u.run(ctx, &u.running, u.m, chaosUsers, 1000*len(u.admins)) // one server or two: other calls
}

// runSteady calls RunWhileServed for kinds that are served throughout. Nothing may end
// what it runs.
func (l *load) runSteady(ctx context.Context, m *apiutil.DynamicRESTMapper) {
	var kinds []gvk
	for _, k := range l.steady {
		kinds = append(kinds, k.gvk)
	}
	_ = m.RunWhileServed(ctx, func(runs context.Context) error {
		<-runs.Done()
		time.Sleep(10 * time.Millisecond) // ctx may be what ended it
		if ctx.Err() == nil {
			l.Broken("RunWhileServed stopped what needs only kinds that are served throughout: %v", context.Cause(runs))
		}
		return nil
	}, kinds...)
}

// leaked returns an error that names the goroutines which have begun and not ended.
// It gives them time, because requests that nobody waits for end by their timeouts.
// The connections of our own clients do not count: they are used again.
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

// healthy waits until the mapper is healthy, after the server is.
func (u *users) healthy(what string) {
	ready := time.Now()
	u.await(u.Campaign, what+" to healthy", healthyFor, func() bool {
		status := u.m.Status()
		return u.m.Healthz(nil) == nil && status.UnhealthySince.IsZero() && status.LastSuccess.After(ready)
	})
}

// converge stops all changes of the API, and waits until the mapper watches again
// and all servers and subscribers agree on what is served.
func (u *users) converge() {
	u.await(u.Campaign, "all watches are open", watchesFor, func() bool { return u.m.Status().Watching })
	u.churn.Lock()
	defer u.churn.Unlock()
	time.Sleep(time.Second) // what is under way on the servers
	u.await(u.Campaign, "subscribers converge", convergesFor, func() bool {
		return !slices.ContainsFunc(u.admins, func(a *admin) bool {
			truth, err := a.truth()
			return err != nil || slices.ContainsFunc(u.views, func(v *view) bool { return !v.is(truth) })
		})
	})
}

// TestChaos kills real API servers and their etcd while a mapper is in heavy use. For the
// first half of the kills the mapper talks to one API server; for the second half to two,
// through a proxy that sends each request to the next of them, dead or alive.
func TestChaos(t *testing.T) {
	c, took := report.Begin(t), times{}
	l := busy(c)
	for n := range 2 {
		servers, etcd := (*kills+1-n)/2, (*etcds+1-n)/2 // the halves
		if servers+etcd == 0 {
			continue
		}
		w := newWorld(l, n+1)
		cfg := w.plane.Servers[0].Config()
		if n > 0 {
			cfg = w.front.config()
		}
		w.use(cfg, took, func(u *users) { u.kill(servers, etcd) })
		_ = w.plane.Stop() // the next half has the machine for itself
	}
	c.Text("The longest call took %s; calls with a context had %v, the others the %v of each request.\n",
		report.Rounded(time.Duration(l.longest.Load())), waitsFor, chaosRequest)
	took.table(c)
	c.Finish("Chaos on real API servers")
}

// kill kills API servers and etcd in random order, one at a time.
func (u *users) kill(kills, etcd int) {
	r := u.Random(1000*len(u.admins) + 200)
	for n, victim := range r.Perm(kills + etcd) {
		if u.Ctx.Err() != nil {
			return
		}
		process, name := u.plane.Servers[r.IntN(len(u.admins))], fmt.Sprintf("API server, %d", len(u.admins))
		if victim < etcd {
			process, name = u.plane.Etcd, "etcd"
		}
		u.killOne(r, process, name)
		if n%convergeEvery == convergeEvery-1 || n == kills+etcd-1 {
			u.converge()
		}
	}
}

// killOne starts what it kills again up to a second later.
func (u *users) killOne(r *rand.Rand, process *control.Process, name string) {
	killed := time.Now()
	process.Kill()
	time.Sleep(time.Duration(r.Int64N(int64(time.Second))))
	u.Must(process.Start())
	for _, s := range u.plane.Servers {
		u.Must(s.AwaitReady(u.Ctx))
	}
	u.times[name+": kill to readyz"] = append(u.times[name+": kill to readyz"], time.Since(killed))
	u.healthy(name + ": readyz")
	time.Sleep(time.Duration(r.Int64N(int64(2 * time.Second))))
}

// TestGateway puts a gateway before a real API server that loses its route time after time, and
// then answers 404 to everything. Kinds that are known are served on, nothing is said to be
// absent, and no work is stopped.
func TestGateway(t *testing.T) {
	c, took := report.Begin(t), times{}
	w := newWorld(busy(c), 1)
	w.use(w.front.config(), took, func(u *users) {
		for n := range *routes {
			w.front.lead()
			report.Pause(c.Ctx, *gap)
			w.front.lead(w.plane.Servers...)
			u.healthy("route is back")
			if n%convergeEvery == convergeEvery-1 || n == *routes-1 {
				u.converge()
			}
		}
	})
	c.Text("%d of the lookups of what is served ended with an error that is no NoMatch.\n", w.errors.Load())
	took.table(c)
	c.Finish("A gateway that loses its route")
}

var (
	mappers = flag.Int("mappers", 5, "how many mappers the soak has")
	rate    = flag.Int("rate", 500, "lookups a second in the soak, of all mappers")
)

const (
	soakInterval = 10 * time.Second
	// warm is the part of the run in which things fill up. It does not count.
	warm = 0.25
	// grows is the share by which something may grow from the first third of the rest to the
	// last.
	grows = 0.04
	// restOf is a number of samples of which, most likely, at least one is taken while
	// nothing is under way.
	restOf = 50
)

// series is something that must stay flat.
type series struct {
	name    string
	now     func() float64
	samples []float64
}

// TestSoak has many mappers of a real API server, with a connection of their own each, answer
// lookups while CRDs come and go, and looks for what grows. The flag -memprofile of go test shows what is live.
func TestSoak(t *testing.T) {
	l, most := busy(report.Begin(t)), cmp.Or(*lasting, 12*time.Second)
	l.resetting, l.waiting, l.missing, l.churning = 0, 0, 1, 1
	l.rest = 2 * time.Second * time.Duration(*mappers) / time.Duration(*rate) // on the average half of it
	w := newWorld(l, 1)
	ctx, cancel := context.WithTimeout(w.Ctx, most)
	defer cancel()
	var running sync.WaitGroup
	for n := range *mappers {
		cfg := w.plane.Servers[0].Config()
		cfg.Dial = (&net.Dialer{}).DialContext // which also keeps client-go from sharing a transport
		client, err := rest.HTTPClientFor(cfg)
		w.Must(err)
		m, err := apiutil.NewDynamicRESTMapperWithOptions(cfg, client, apiutil.DynamicRESTMapperOptions{RefreshInterval: soakInterval, WatchAPIs: true})
		w.Must(err)
		running.Go(func() { _ = m.Start(ctx) })
		w.run(ctx, &running, m, 1, n)
	}
	running.Go(func() { w.change(ctx) })
	all := []*series{
		{name: "live heap in KiB", now: func() float64 { return liveHeap() * (1 << 10) }},
		{name: "goroutines", now: func() float64 { return float64(runtime.NumGoroutine()) }},
		{name: "open files and connections", now: func() float64 {
			open, _ := os.ReadDir("/proc/self/fd")
			return float64(len(open))
		}},
	}
	for ctx.Err() == nil {
		for _, each := range all {
			each.samples = append(each.samples, each.now())
		}
		report.Pause(ctx, max(most/360, time.Second))
	}
	running.Wait()
	if n := w.errors.Load(); n > 0 {
		w.Broken("%d lookups of what is served failed", n)
	}
	w.Text("%d lookups of what is served, %.0f a second, and %d of what never was, while CRDs changed %d times.\n",
		w.lookups.Load(), float64(w.lookups.Load())/most.Seconds(), w.misses.Load(), w.changes.Load())
	growth(w.Campaign, all)
	w.Finish("Soak")
}

func growth(c *report.Campaign, all []*series) {
	warmed := int(warm * float64(len(all[0].samples)))
	third := (len(all[0].samples) - warmed) / 3
	if third < restOf {
		c.Text("The run was too short to tell what grows.\n")
		return
	}
	var rows [][]string
	for _, each := range all {
		first, last := slices.Min(each.samples[warmed:][:third]), slices.Min(each.samples[len(each.samples)-third:])
		if last > (1+grows)*first {
			c.Broken("%s: grew from %.0f to %.0f", each.name, first, last)
		}
		rows = append(rows, []string{each.name, fmt.Sprintf("%.0f", first), fmt.Sprintf("%.0f", last), fmt.Sprintf("%+.2f %%", 100*(last/first-1))})
	}
	c.Table([]string{"at rest", "warm", "at the end", "growth"}, rows...)
}
