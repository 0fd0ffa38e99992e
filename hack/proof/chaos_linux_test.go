// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

var (
	kills = flag.Int("kills", 2, "how often the chaos kills an API server")
	etcds = flag.Int("etcd", 1, "how often the chaos kills etcd")
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

// chaos is a load, and how the mapper got over what was killed.
type chaos struct {
	*load
	runs  atomic.Int64 // of RunWhileServed, for a kind that comes and goes
	times map[string][]time.Duration
}

// TestChaos kills real API servers and their etcd while a mapper is in heavy use. For the
// first half of the kills the mapper talks to one API server; for the second half to two,
// through a proxy that sends each request to the next of them, dead or alive.
func TestChaos(t *testing.T) {
	c := &chaos{
		load: &load{
			campaign: begin(t), steady: chaosSteady, never: chaosNever, resetting: 8, waiting: 3, missing: 69, churning: 40, rest: 40 * time.Millisecond,
		},
		times: map[string][]time.Duration{},
	}
	for n := range 2 {
		servers, etcd := (*kills+1-n)/2, (*etcds+1-n)/2 // the halves
		if servers+etcd == 0 {
			continue
		}
		t.Logf("%d API servers: %d kills of one, %d of etcd", n+1, servers, etcd)
		if err := c.half(n+1, servers, etcd); err != nil {
			c.broken("the run ended early: %v", err)
			break
		}
	}
	c.page()
}

var victims = []string{"API server, 1", "API server, 2", "etcd"}

func (c *chaos) page() {
	var rows [][]string
	for _, name := range slices.Sorted(maps.Keys(c.times)) {
		times := c.times[name]
		slices.Sort(times)
		row := []string{name, fmt.Sprint(len(times))}
		for _, part := range []float64{0.5, 0.9, 1} {
			row = append(row, fmt.Sprintf("%.2f s", times[int(part*float64(len(times)-1)+0.5)].Seconds()))
		}
		rows = append(rows, row)
	}
	killed := func(victim int) int { return len(c.times[victims[victim]+": kill to readyz"]) }
	c.Text("SIGKILL for an API server %d times and for etcd %d times, while %d goroutines, two subscribers and two RunWhileServed use one mapper",
		killed(0)+killed(1), killed(2), chaosUsers)
	c.Text("with a RefreshInterval of %v and WatchAPIs, and CRDs come, go and change. For the second half there are two API servers behind a proxy that sends", chaosInterval)
	c.Text("each request to the next of them, dead or alive. Seed %d.\n", c.seed)
	c.Text("The mapper made %d lookups of what is served, %d of what never was, %d resets and %d waits; RunWhileServed began %d times for a kind that comes and goes.",
		c.lookups.Load(), c.misses.Load(), c.resets.Load(), c.waits.Load(), c.runs.Load())
	c.Text("The longest call took %s; calls with a context had %v, the others the %v of each request.\n",
		report.Rounded(time.Duration(c.longest.Load())), waitsFor, chaosRequest)
	c.Table([]string{"", "times", "median", "90 %", "longest"}, rows...)
	c.Text("A number after \"API server\" says how many there were. Healthy must be within %v. Every %d kills the API stands still until the subscribers converge.\n",
		healthyFor, convergeEvery)
	c.finish("Chaos on real API servers")
}

// half is a part of the chaos with a control plane of its own: everything that uses one
// mapper at once.
type half struct {
	*world
	all      *chaos
	m        *apiutil.DynamicRESTMapper
	views    []*view
	running  sync.WaitGroup
	balancer *httptest.Server // nil with one API server
	client   *http.Client     // the mapper's
}

func (c *chaos) half(servers, kills, etcd int) error {
	w, err := newWorld(c.load, servers)
	if err != nil {
		return err
	}
	defer func() { _ = w.plane.Stop() }() // the next half has the machine for itself
	h := &half{world: w, all: c}
	if err := h.prepare(); err != nil {
		return err
	}
	before := goleak.IgnoreCurrent()
	ctx, cancel := context.WithCancel(c.ctx)
	h.start(ctx)
	err = h.kill(kills, etcd)
	cancel()
	h.stop()
	if left := leaked(before); left != nil {
		c.broken("goroutines are left: %v", left)
	}
	return err
}

func (h *half) prepare() error {
	config := h.plane.Servers[0].Config()
	var err error
	if len(h.servers) > 1 {
		if h.balancer, err = balance(h.plane); err != nil {
			return err
		}
		config = &rest.Config{Host: h.balancer.URL, BearerToken: config.BearerToken, QPS: -1}
	}
	if h.client, err = rest.HTTPClientFor(config); err != nil {
		return err
	}
	h.m, err = apiutil.NewDynamicRESTMapperWithOptions(config, h.client, apiutil.DynamicRESTMapperOptions{
		RefreshInterval: chaosInterval, WatchAPIs: true, RequestTimeout: chaosRequest, UnhealthyAfter: time.Second,
	})
	return err
}

func (h *half) start(ctx context.Context) {
	h.running.Go(func() { _ = h.m.Start(ctx) })
	for _, slow := range []time.Duration{0, 200 * time.Millisecond} {
		v := &view{served: map[gvk]string{}}
		h.views = append(h.views, v)
		h.running.Go(func() { v.follow(h.m.Subscribe(ctx), slow) })
	}
	h.running.Go(func() { h.runSteady(ctx) })
	h.running.Go(func() {
		_ = h.m.RunWhileServed(ctx, func(runs context.Context) error {
			h.all.runs.Add(1)
			<-runs.Done()
			return nil
		}, h.churned[0])
	})
	h.running.Go(func() { h.change(ctx) })
	h.run(ctx, &h.running, h.m, chaosUsers, 1000*len(h.servers)) // the halves differ
}

// runSteady calls RunWhileServed for kinds that are served throughout. Nothing may end
// what it runs.
func (h *half) runSteady(ctx context.Context) {
	var kinds []gvk
	for _, k := range h.steady {
		kinds = append(kinds, k.gvk)
	}
	_ = h.m.RunWhileServed(ctx, func(runs context.Context) error {
		<-runs.Done()
		time.Sleep(10 * time.Millisecond) // ctx may be what ended it
		if ctx.Err() == nil {
			h.broken("RunWhileServed stopped what needs only kinds that are served throughout: %v", context.Cause(runs))
		}
		return nil
	}, kinds...)
}

// stop waits until everything has ended, and closes the connections.
func (h *half) stop() {
	ended := make(chan struct{})
	go func() {
		h.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(withoutEnd):
		h.broken("something has not ended %v after its context", withoutEnd)
	}
	if h.balancer != nil {
		h.balancer.CloseClientConnections()
		h.balancer.Close()
	}
	utilnet.CloseIdleConnectionsFor(h.client.Transport)
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
func (h *half) kill(kills, etcd int) error {
	r := h.random(1000*len(h.servers) + 200)
	time.Sleep(2 * time.Second)
	for n, victim := range r.Perm(kills + etcd) {
		if err := h.killOne(r, victim < etcd); err != nil {
			return err
		}
		if n%convergeEvery == convergeEvery-1 || n == kills+etcd-1 {
			h.converge()
		}
	}
	return h.ctx.Err()
}

// killOne starts what it kills again up to a second later.
func (h *half) killOne(r *rand.Rand, etcd bool) error {
	servers := h.plane.Servers
	process, victim := servers[r.IntN(len(servers))], len(servers)-1
	if etcd {
		process, victim = h.plane.Etcd, 2
	}
	killed := time.Now()
	process.Kill()
	time.Sleep(time.Duration(r.Int64N(int64(time.Second))))
	if err := process.Start(); err != nil {
		return err
	}
	for _, s := range servers {
		if err := s.AwaitReady(h.ctx); err != nil {
			return err
		}
	}
	ready := time.Now()
	healthy, ok := within(h.ctx, 2*healthyFor, func() bool {
		status := h.m.Status()
		return h.m.Healthz(nil) == nil && status.UnhealthySince.IsZero() && status.LastSuccess.After(ready)
	})
	name := victims[victim]
	if !ok || healthy > healthyFor {
		h.broken("not healthy %v after readyz (%s): %v", healthy, name, h.m.Status().LastError)
	}
	h.all.took(name+": kill to readyz", ready.Sub(killed))
	h.all.took(name+": readyz to healthy", healthy)
	time.Sleep(time.Duration(r.Int64N(int64(2 * time.Second))))
	return h.ctx.Err()
}

// converge stops all changes of the API, and waits until the mapper watches again
// and all servers and subscribers agree on what is served.
func (h *half) converge() {
	h.await("all watches are open", watchesFor, func() bool { return h.m.Status().Watching })
	h.churn.Lock()
	defer h.churn.Unlock()
	time.Sleep(time.Second) // what is under way on the servers
	h.await("subscribers converge", convergesFor, func() bool {
		for _, s := range h.servers {
			truth, err := s.truth()
			if err != nil || slices.ContainsFunc(h.views, func(v *view) bool { return !v.is(truth) }) {
				return false
			}
		}
		return true
	})
}

func (h *half) await(what string, most time.Duration, yes func() bool) {
	took, ok := within(h.ctx, most, yes)
	if ok {
		h.all.took(what, took)
	} else if h.ctx.Err() == nil {
		h.broken("not within %v: %s", took, what)
	}
}

func (c *chaos) took(what string, took time.Duration) {
	c.times[what] = append(c.times[what], took)
	c.Logf("%s %s: %.2f s", time.Now().UTC().Format(time.TimeOnly), what, took.Seconds())
}
