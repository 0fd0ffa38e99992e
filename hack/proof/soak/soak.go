// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/hack/control"
	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

const (
	interval   = 10 * time.Second
	changes    = 2 * time.Second // between two changes of the API
	crdsAtMost = 10
	clients    = 8
)

// soak is 50 mappers, with a connection of their own each, and who uses them.
type soak struct {
	options options
	mappers []*apiutil.DynamicRESTMapper
	crds    dynamic.ResourceInterface

	open    atomic.Int64 // connections of all mappers
	lookups atomic.Int64
	late    atomic.Int64 // that the clients could not make in time
	misses  atomic.Int64
	changed atomic.Int64 // changes of the API
	hits    histogram
	nothing histogram // as long as a hit is waited for, but nothing is done
	samples []sample
	broken  report.Broken
}

type sample struct {
	at                            time.Duration
	heap, goroutines, connections float64
}

func newSoak(plane *control.Plane, o options) (*soak, error) {
	s := &soak{options: o}
	var err error
	if s.crds, err = plane.Servers[0].CRDs(); err != nil {
		return nil, err
	}
	for range o.mappers {
		cfg := plane.Servers[0].Config()
		cfg.Dial = s.dial // which also keeps client-go from sharing a transport
		client, err := rest.HTTPClientFor(cfg)
		if err != nil {
			return nil, err
		}
		m, err := apiutil.NewDynamicRESTMapperWithOptions(cfg, client, apiutil.DynamicRESTMapperOptions{RefreshInterval: interval, WatchAPIs: true})
		if err != nil {
			return nil, err
		}
		s.mappers = append(s.mappers, m)
	}
	return s, nil
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

func (s *soak) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.options.lasting)
	defer cancel()
	var running sync.WaitGroup
	for _, m := range s.mappers {
		running.Go(func() { _ = m.Start(ctx) })
	}
	for n := range clients {
		running.Go(func() { s.use(ctx, rand.New(rand.NewPCG(1, uint64(n)))) })
	}
	running.Go(func() { s.change(ctx) })
	running.Go(func() { s.sample(ctx) })
	running.Wait()
	return nil
}

// hits are kinds that are served throughout.
func hits() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		{Version: "v1", Kind: "Pod"}, {Version: "v1", Kind: "ConfigMap"}, {Group: "apps", Version: "v1", Kind: "Deployment"},
		{Group: "batch", Version: "v1", Kind: "Job"}, {Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
	}
}

// use makes its part of the lookups, evenly in time: a few at each tick. One in
// 10,000 is a miss.
func (s *soak) use(ctx context.Context, r *rand.Rand) {
	for _, m := range s.mappers { // the first lookup of a mapper is no hit
		if _, err := m.RESTMappingWithContext(ctx, hits()[0].GroupKind()); err != nil && ctx.Err() == nil {
			s.broken.Add("the first lookup: %v", err)
		}
	}
	begin, made := time.Now(), 0
	for ctx.Err() == nil {
		due := int(time.Since(begin).Seconds() * float64(s.options.rate) / clients)
		if due-made > s.options.rate/clients {
			s.late.Add(int64(due - made))
			made = due // a machine that stood still for a second does not catch up
		}
		for ; made < due; made++ {
			s.lookUp(ctx, r)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (s *soak) lookUp(ctx context.Context, r *rand.Rand) {
	m := s.mappers[r.IntN(len(s.mappers))]
	s.lookups.Add(1)
	if r.IntN(10000) == 0 {
		s.misses.Add(1)
		if mapping, err := m.RESTMappingWithContext(ctx, schema.GroupKind{Group: "soak.example.com", Kind: "Ghost"}); err == nil {
			s.broken.Add("what never was is mapped to %v", mapping.Resource)
		}
		return
	}
	gvk := hits()[r.IntN(len(hits()))]
	versions := []string{gvk.Version}[:r.IntN(2)]
	begin := time.Now()
	_, err := m.RESTMappingWithContext(ctx, gvk.GroupKind(), versions...)
	s.hits.add(time.Since(begin))
	begin = time.Now()
	s.nothing.add(time.Since(begin))
	if err != nil && ctx.Err() == nil {
		s.broken.Add("%s: %v", gvk, err)
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
			s.broken.Add("changing the API: %v", err)
		}
		s.changed.Add(1)
		report.Pause(ctx, min(changes, s.options.lasting/50))
	}
}

// sample notes what is live, every few seconds.
func (s *soak) sample(ctx context.Context) {
	begin, every := time.Now(), max(s.options.lasting/360, time.Second)
	for warmed := false; ctx.Err() == nil; {
		var stats runtime.MemStats
		runtime.GC()
		if !warmed && time.Since(begin).Seconds() > warm*s.options.lasting.Seconds() {
			s.profile("warm.pprof")
			warmed = true
		}
		runtime.ReadMemStats(&stats)
		s.samples = append(s.samples, sample{
			time.Since(begin), float64(stats.HeapAlloc), float64(runtime.NumGoroutine()), float64(s.open.Load()),
		})
		report.Pause(ctx, every)
	}
	s.profile("end.pprof")
}

// profile writes what is live, if somebody wants to look into it.
func (s *soak) profile(name string) {
	if s.options.profiles == "" {
		return
	}
	file, err := os.Create(filepath.Join(s.options.profiles, name))
	if err == nil {
		runtime.GC()
		err = errors.Join(pprof.WriteHeapProfile(file), file.Close())
	}
	if err != nil {
		s.broken.Add("profile: %v", err)
	}
}
