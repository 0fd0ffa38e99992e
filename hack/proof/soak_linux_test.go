// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/apiutil"
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

// soak is many mappers, with a connection of their own each, and who uses them.
type soak struct {
	*world
	lasting time.Duration
	mappers []*apiutil.DynamicRESTMapper
	open    atomic.Int64 // connections of all mappers
	series  []*series
}

// series is something that must stay flat.
type series struct {
	name, unit string
	now        func() float64
	samples    []float64
}

// TestSoak has many mappers of a real API server answer lookups while CRDs come and go,
// and looks for what grows. With the flags -artifacts and -outputdir of go test it leaves
// two profiles of the heap: one when the mappers are warm and one at the end.
func TestSoak(t *testing.T) {
	l := &load{campaign: begin(t), steady: chaosSteady, never: chaosNever, missing: 1, churning: 1}
	l.rest = 2 * time.Second * time.Duration(*mappers) / time.Duration(*rate) // on the average half of it
	w, err := newWorld(l, 1)
	if err != nil {
		t.Fatal(err)
	}
	s := &soak{world: w, lasting: cmp.Or(*lasting, 12*time.Second)}
	if err := s.prepare(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.lasting)
	defer cancel()
	var running sync.WaitGroup
	for n, m := range s.mappers {
		running.Go(func() { _ = m.Start(ctx) })
		s.run(ctx, &running, m, 1, n)
	}
	running.Go(func() { s.change(ctx) })
	running.Go(func() { s.sample(ctx) })
	running.Wait()
	if n := s.errors.Load(); n > 0 {
		s.broken("%d lookups of what is served failed", n)
	}
	s.page()
}

func (s *soak) prepare() error {
	s.series = []*series{
		{name: "live heap", unit: "KiB", now: func() float64 { return liveHeap() * (1 << 10) }},
		{name: "goroutines", now: func() float64 { return float64(runtime.NumGoroutine()) }},
		{name: "open connections", now: func() float64 { return float64(s.open.Load()) }},
	}
	for range *mappers {
		cfg := s.plane.Servers[0].Config()
		cfg.Dial = s.dial // which also keeps client-go from sharing a transport
		client, err := rest.HTTPClientFor(cfg)
		if err != nil {
			return err
		}
		m, err := apiutil.NewDynamicRESTMapperWithOptions(cfg, client, apiutil.DynamicRESTMapperOptions{RefreshInterval: soakInterval, WatchAPIs: true})
		if err != nil {
			return err
		}
		s.mappers = append(s.mappers, m)
	}
	return nil
}

// dial counts the connections that are open.
func (s *soak) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	s.open.Add(1)
	return &counted{Conn: conn, closed: sync.OnceFunc(func() { s.open.Add(-1) })}, nil
}

type counted struct {
	net.Conn
	closed func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.closed()
	return c.Conn.Close()
}

// sample notes what must stay flat, every few seconds.
func (s *soak) sample(ctx context.Context) {
	begin, warmed := time.Now(), false
	for ctx.Err() == nil {
		at := time.Since(begin)
		for _, each := range s.series {
			each.samples = append(each.samples, each.now())
		}
		if !warmed && at.Seconds() > warm*s.lasting.Seconds() {
			s.profile("warm.pprof")
			warmed = true
		}
		pause(ctx, max(s.lasting/360, time.Second))
	}
	s.profile("end.pprof")
}

// profile writes what is live, if somebody wants to look into it.
func (s *soak) profile(name string) {
	var live bytes.Buffer
	runtime.GC() // it says what was live then
	if err := errors.Join(pprof.WriteHeapProfile(&live), os.WriteFile(filepath.Join(s.ArtifactDir(), name), live.Bytes(), 0o644)); err != nil {
		s.broken("profile: %v", err)
	}
}

func (s *soak) page() {
	s.Text("%d mappers of a real API server, each with a RefreshInterval of %v, WatchAPIs and a transport of its own, and a goroutine that uses it.",
		*mappers, soakInterval)
	s.Text("CRDs come and go: %d changes. The clients, the mappers and what measures them are one process; the heap is that of all, after a garbage collection.\n", s.changes.Load())
	s.Text("%d lookups of what is served, %.0f a second, and %d of what never was.\n", s.lookups.Load(), float64(s.lookups.Load())/s.lasting.Seconds(), s.misses.Load())
	warmed := int(warm * float64(len(s.series[0].samples)))
	third := (len(s.series[0].samples) - warmed) / 3
	if third < restOf {
		s.Text("The run was too short to tell what grows.\n")
		s.finish("Soak")
		return
	}
	var rows [][]string
	for _, each := range s.series {
		first, last := slices.Min(each.samples[warmed:][:third]), slices.Min(each.samples[len(each.samples)-third:])
		if last > (1+grows)*first {
			s.broken("%s: grew from %.0f %s to %.0f", each.name, first, each.unit, last)
		}
		rows = append(rows, []string{
			each.name, fmt.Sprintf("%.0f %s", first, each.unit), fmt.Sprintf("%.0f %s", last, each.unit), fmt.Sprintf("%+.2f %%", 100*(last/first-1)),
		})
	}
	s.Table([]string{"at rest", "warm", "at the end", "growth"}, rows...)
	s.Text("\"At rest\" is the least of all samples of a part of the run: requests under way, of which there are more the busier the machine is, are not in it.")
	s.Text("The first quarter of the run does not count; \"warm\" and \"at the end\" are the first and the last third of the rest. More than %.0f %% counts as growth.\n", 100*grows)
	s.finish("Soak")
}
