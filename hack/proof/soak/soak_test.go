// SPDX-License-Identifier: Apache-2.0

// Package soak has 50 mappers of a real API server answer 5,000 lookups a second while
// CRDs come and go, and looks for what grows.
//
//	go test ./soak -v -timeout 0 -args -time 30m -mappers 50 -rate 5000 [-o results]
//
// With the flags -artifacts and -outputdir of go test it leaves two profiles of the
// heap: one when the mappers are warm and one at the end.
package soak

import (
	"bytes"
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
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/hack/bench/chart"
	"github.com/freshmapper/freshmapper/hack/control"
	"github.com/freshmapper/freshmapper/hack/proof/internal/campaign"
)

var (
	lasting = flag.Duration("time", 12*time.Second, "how long")
	mappers = flag.Int("mappers", 5, "how many mappers")
	rate    = flag.Int("rate", 500, "lookups a second, of all")
)

const (
	interval   = 10 * time.Second
	changes    = 2 * time.Second // between two changes of the API
	crdsAtMost = 10
	clients    = 8
)

// soak is many mappers, with a connection of their own each, and who uses them.
type soak struct {
	*campaign.Campaign
	mappers []*apiutil.DynamicRESTMapper
	crds    dynamic.ResourceInterface

	open    atomic.Int64 // connections of all mappers
	lookups atomic.Int64
	late    atomic.Int64 // that the clients could not make in time
	misses  atomic.Int64
	changed atomic.Int64 // changes of the API
	hits    histogram
	nothing histogram // as long as a hit is waited for, but nothing is done
	series  []*series
}

// series is something that must stay flat.
type series struct {
	name, unit string
	now        func() float64
	points     []chart.Point // by minutes
}

func TestCampaign(t *testing.T) {
	s := &soak{Campaign: campaign.Begin(t, "soak")}
	if err := s.prepare(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeout(s.Ctx, *lasting)
	defer cancel()
	var running sync.WaitGroup
	for _, m := range s.mappers {
		running.Go(func() { _ = m.Start(ctx) })
	}
	for n := range clients {
		running.Go(func() { s.use(ctx, s.Random(uint64(n))) })
	}
	running.Go(func() { s.change(ctx) })
	running.Go(func() { s.sample(ctx) })
	running.Wait()
	s.write(time.Since(begin))
}

func (s *soak) prepare() error {
	plane, err := s.Plane(1)
	if err != nil {
		return err
	}
	if s.crds, err = plane.Servers[0].CRDs(); err != nil {
		return err
	}
	s.series = []*series{
		{name: "live heap", unit: "KiB", now: func() float64 { return campaign.LiveHeap() / (1 << 10) }},
		{name: "goroutines", now: func() float64 { return float64(runtime.NumGoroutine()) }},
		{name: "open connections", now: func() float64 { return float64(s.open.Load()) }},
	}
	for range *mappers {
		m, err := s.newMapper(plane.Servers[0].Config())
		if err != nil {
			return err
		}
		s.mappers = append(s.mappers, m)
	}
	return nil
}

func (s *soak) newMapper(cfg *rest.Config) (*apiutil.DynamicRESTMapper, error) {
	cfg.Dial = s.dial // which also keeps client-go from sharing a transport
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	return apiutil.NewDynamicRESTMapperWithOptions(cfg, client, apiutil.DynamicRESTMapperOptions{RefreshInterval: interval, WatchAPIs: true})
}

// dial counts the connections that are open.
func (s *soak) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
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

// kinds are served throughout.
var kinds = []campaign.Kind{
	{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, Resource: "pods"},
	{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Resource: "configmaps"},
	{GroupVersionKind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, Resource: "deployments"},
	{GroupVersionKind: schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}, Resource: "jobs"},
	{GroupVersionKind: schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}, Resource: "customresourcedefinitions", Cluster: true},
}

// use makes its part of the lookups, evenly in time: a few at each tick.
func (s *soak) use(ctx context.Context, r *rand.Rand) {
	for _, m := range s.mappers { // the first lookup of a mapper is no hit
		if err := s.Find(ctx, m, kinds[0]); err != nil && ctx.Err() == nil {
			s.Broken("the first lookup: %v", err)
		}
	}
	begin, made := time.Now(), 0
	for ctx.Err() == nil {
		due := int(time.Since(begin).Seconds() * float64(*rate) / clients)
		if due-made > *rate/clients {
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
		s.Miss(ctx, m, schema.GroupVersionKind{Group: "soak.example.com", Kind: "Ghost"})
		return
	}
	k := kinds[r.IntN(len(kinds))]
	versions := []string{k.Version}[:r.IntN(2)]
	begin := time.Now()
	err := s.Find(ctx, m, k, versions...)
	s.hits.add(time.Since(begin))
	begin = time.Now()
	s.nothing.add(time.Since(begin))
	if err != nil && !meta.IsNoMatchError(err) && ctx.Err() == nil {
		s.Broken("%s: %v", k, err)
	}
}

// change creates and deletes CRDs, in turn until there are crdsAtMost and until
// there are none.
func (s *soak) change(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		crd := control.CRD("soak.example.com", fmt.Sprintf("Soak%02d", n%crdsAtMost), false, "v1")
		var err error
		if n/crdsAtMost%2 == 0 {
			_, err = s.crds.Create(ctx, crd, metav1.CreateOptions{})
		} else {
			err = s.crds.Delete(ctx, crd.GetName(), metav1.DeleteOptions{})
		}
		// A CRD goes only once its objects have, so it may still be there.
		if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			s.Broken("changing the API: %v", err)
		}
		s.changed.Add(1)
		campaign.Pause(ctx, min(changes, *lasting/50))
	}
}

// sample notes what must stay flat, every few seconds.
func (s *soak) sample(ctx context.Context) {
	begin, warmed := time.Now(), false
	for ctx.Err() == nil {
		at := time.Since(begin)
		for _, each := range s.series {
			each.points = append(each.points, chart.Point{X: at.Minutes(), Y: each.now()})
		}
		if !warmed && at.Seconds() > warm*lasting.Seconds() {
			s.profile("warm.pprof")
			warmed = true
		}
		campaign.Pause(ctx, max(*lasting/360, time.Second))
	}
	s.profile("end.pprof")
}

// profile writes what is live, if somebody wants to look into it.
func (s *soak) profile(name string) {
	var live bytes.Buffer
	runtime.GC() // it says what was live then
	if err := errors.Join(pprof.WriteHeapProfile(&live), os.WriteFile(filepath.Join(s.ArtifactDir(), name), live.Bytes(), 0o644)); err != nil {
		s.Broken("profile: %v", err)
	}
}
