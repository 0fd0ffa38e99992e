// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

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
