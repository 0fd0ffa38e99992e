// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/apiutil"
)

var (
	mappers = flag.Int("mappers", 5, "how many mappers the soak has")
	rate    = flag.Int("rate", 500, "lookups a second in the soak, of all mappers")
)

const (
	soakInterval = 10 * time.Second
	soakUsers    = 8
	crdsAtMost   = 10
	// warm is the part of the run in which things fill up. It does not count.
	warm = 0.25
	// grows is the share by which something may grow from the first third of the rest to the
	// last.
	grows = 0.04
	// restOf is a number of samples of which, most likely, at least one is taken while
	// nothing is under way.
	restOf = 50
)

var soakSteady = []kind{
	{gvk: gvk{Version: "v1", Kind: "Pod"}, resource: "pods"},
	{gvk: gvk{Version: "v1", Kind: "ConfigMap"}, resource: "configmaps"},
	{gvk: gvk{Group: "apps", Version: "v1", Kind: "Deployment"}, resource: "deployments"},
	{gvk: gvk{Group: "batch", Version: "v1", Kind: "Job"}, resource: "jobs"},
	{gvk: gvk{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}, resource: "customresourcedefinitions", cluster: true},
}

// soak is many mappers, with a connection of their own each, and who uses them.
type soak struct {
	*campaign
	lasting time.Duration
	mappers []*apiutil.DynamicRESTMapper
	crds    dynamic.ResourceInterface

	open                           atomic.Int64 // connections of all mappers
	lookups, late, misses, changed atomic.Int64 // late are those that the users could not make in time
	series                         []*series
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
	s := &soak{campaign: begin(t), lasting: cmp.Or(*lasting, 12*time.Second)}
	if err := s.prepare(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeout(s.ctx, s.lasting)
	defer cancel()
	var running sync.WaitGroup
	for _, m := range s.mappers {
		running.Go(func() { _ = m.Start(ctx) })
	}
	for n := range soakUsers {
		running.Go(func() { s.use(ctx, s.random(n)) })
	}
	running.Go(func() { s.change(ctx) })
	running.Go(func() { s.sample(ctx) })
	running.Wait()
	s.page(time.Since(begin))
}

func (s *soak) prepare() error {
	plane := startPlane(s.campaign, 1)
	var err error
	if s.crds, err = crdsOf(plane.Servers[0]); err != nil {
		return err
	}
	s.series = []*series{
		{name: "live heap", unit: "KiB", now: func() float64 { return liveHeap() * (1 << 10) }},
		{name: "goroutines", now: func() float64 { return float64(runtime.NumGoroutine()) }},
		{name: "open connections", now: func() float64 { return float64(s.open.Load()) }},
	}
	for range *mappers {
		cfg := plane.Servers[0].Config()
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

// use makes its part of the lookups, evenly in time: a few at each tick.
func (s *soak) use(ctx context.Context, r *rand.Rand) {
	for _, m := range s.mappers { // the first lookup of a mapper is no hit
		if err := s.find(ctx, m, soakSteady[0]); err != nil && ctx.Err() == nil {
			s.broken("the first lookup: %v", err)
		}
	}
	begin, made := time.Now(), 0
	for ctx.Err() == nil {
		due := int(time.Since(begin).Seconds() * float64(*rate) / soakUsers)
		if due-made > *rate/soakUsers {
			s.late.Add(int64(due - made))
			made = due // a machine that stood still for a second does not catch up
		}
		for ; made < due; made++ {
			s.lookUp(ctx, r)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// lookUp makes a lookup. One in 10,000 is a miss.
func (s *soak) lookUp(ctx context.Context, r *rand.Rand) {
	m := s.mappers[r.IntN(len(s.mappers))]
	s.lookups.Add(1)
	if r.IntN(10000) == 0 {
		s.misses.Add(1)
		_ = s.miss(ctx, m, gvk{Group: "soak.example.com", Kind: "Ghost"})
		return
	}
	k := soakSteady[r.IntN(len(soakSteady))]
	versions := []string{k.Version}[:r.IntN(2)]
	if err := s.find(ctx, m, k, versions...); err != nil && ctx.Err() == nil {
		s.broken("%s: %v", k.gvk, err)
	}
}

// change creates and deletes CRDs, in turn until there are crdsAtMost and until
// there are none.
func (s *soak) change(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		crd := newCRD("soak.example.com", fmt.Sprintf("Soak%02d", n%crdsAtMost), false, "v1")
		var err error
		if n/crdsAtMost%2 == 0 {
			_, err = s.crds.Create(ctx, crd, metav1.CreateOptions{})
		} else {
			err = s.crds.Delete(ctx, crd.GetName(), metav1.DeleteOptions{})
		}
		// A CRD goes only once its objects have, so it may still be there.
		if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			s.broken("changing the API: %v", err)
		}
		s.changed.Add(1)
		pause(ctx, min(2*time.Second, s.lasting/50))
	}
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

func (s *soak) page(took time.Duration) {
	s.Text("%d mappers of a real API server, each with a RefreshInterval of %v, WatchAPIs and a transport of its own, and %d goroutines that use them.",
		*mappers, soakInterval, soakUsers)
	s.Text("CRDs come and go: %d changes. The clients, the mappers and what measures them are one process; the heap is that of all, after a garbage collection.\n", s.changed.Load())
	s.Text("%d lookups, %.0f a second, %d of them misses; %d more were due while the machine was busy with something else.\n",
		s.lookups.Load(), float64(s.lookups.Load())/took.Seconds(), s.misses.Load(), s.late.Load())
	var rows [][]string
	for _, each := range s.series {
		warmed := each.samples[int(warm*float64(len(each.samples))):]
		third := len(warmed) / 3
		if third < restOf {
			s.Text("The run was too short to tell whether the %s grow.\n", each.name)
			continue
		}
		first, last := slices.Min(warmed[:third]), slices.Min(warmed[len(warmed)-third:])
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
