// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

const (
	oneRequest = 200 * time.Millisecond
	maxBytes   = 1 << 20
	// longestCall is how long a lookup may take: several requests, each with its
	// timeout, on a busy machine.
	longestCall = 20 * time.Second
	// mostHeap bounds the live heap: the mappers, the server, and a few bodies of
	// maxBytes while they are read.
	mostHeap = 128 << 20
	users    = 8
)

// world is one server, some mappers of it, and all who use them.
type world struct {
	seed    uint64
	server  *fakeapi.Server
	mappers []*apiutil.DynamicRESTMapper

	lookups, errs atomic.Int64
	set           map[string]int // how often each fault was set
	heap          []sample
	broken        report.Broken
}

type sample struct {
	at    time.Duration
	bytes uint64
}

func steadyKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		{Group: "steady.example.com", Version: "v1", Kind: "Rock"}, {Group: "steady.example.com", Version: "v1", Kind: "Hill"},
	}
}

func churnedGroups() []string { return []string{"churn.example.com", "gusts.example.com"} }

func newWorld(seed uint64) (*world, error) {
	w := &world{seed: seed, set: map[string]int{}}
	w.server = fakeapi.New(append(fakeapi.Typical(20, 2, 3), group("steady.example.com", "Rock", "Hill"))...)
	for _, opts := range []apiutil.DynamicRESTMapperOptions{
		{}, {RefreshInterval: time.Second, WatchAPIs: true}, {MaxAge: 100 * time.Millisecond, NegativeTTL: 50 * time.Millisecond},
		{RefreshInterval: 300 * time.Millisecond, MaxAge: -1},
	} {
		opts.RequestTimeout, opts.MaxResponseBytes = oneRequest, maxBytes
		m, err := apiutil.NewDynamicRESTMapperWithOptions(w.server.Config(), w.server.Client(), opts)
		if err != nil {
			return nil, err
		}
		for _, gvk := range steadyKinds() {
			// From here on the kinds are known: a first lookup believes a document.
			if _, err := m.RESTMapping(gvk.GroupKind(), gvk.Version); err != nil {
				return nil, err
			}
		}
		w.mappers = append(w.mappers, m)
	}
	return w, nil
}

func group(name string, kinds ...string) fakeapi.Group {
	v := fakeapi.Version{Name: "v1"}
	for _, kind := range kinds {
		v.Resources = append(v.Resources, fakeapi.Resource{Name: plural(kind), Singular: "", Kind: kind, Namespaced: true})
	}
	return fakeapi.Group{Name: name, Versions: []fakeapi.Version{v}}
}

func plural(kind string) string { return "the" + strings.ToLower(kind) + "s" }

// run lets all go on for so long, and heals the server at the end.
func (w *world) run(ctx context.Context, lasting time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, lasting)
	defer cancel()
	var running sync.WaitGroup
	for i, m := range w.mappers {
		running.Go(func() { _ = m.Start(ctx) })
		running.Go(func() {
			for range m.Subscribe(ctx) {
			}
		})
		for n := range users / len(w.mappers) {
			running.Go(func() { w.use(ctx, m, w.random(uint64(100*i+n))) })
		}
	}
	running.Go(func() { w.change(ctx, w.random(1000)) })
	running.Go(func() { w.sample(ctx) })
	w.fault(ctx, w.random(2000))
	running.Wait()
	w.server.ClearFaults()
	w.recovered()
}

func (w *world) random(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(w.seed, stream)) }

// fault sets and takes away faults, up to three at a time.
func (w *world) fault(ctx context.Context, r *rand.Rand) {
	names := make([]string, 0, len(faults()))
	for name := range faults() {
		names = append(names, name)
	}
	slices.Sort(names)
	for ctx.Err() == nil {
		if r.IntN(4) == 0 {
			w.server.ClearFaults()
		}
		for range r.IntN(3) {
			name := names[r.IntN(len(names))]
			w.set[name]++
			w.server.SetFault(place(r, believable(name)), faults()[name](r))
		}
		report.Pause(ctx, time.Duration(r.Int64N(int64(100*time.Millisecond))))
	}
}

// change has groups come, go and change, and the server speak in other ways.
func (w *world) change(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		name := churnedGroups()[r.IntN(len(churnedGroups()))]
		switch r.IntN(6) {
		case 0, 1:
			w.server.Put(group(name, []string{"Leaf", "Wave", "Gust"}[:1+r.IntN(3)]...))
		case 2:
			w.server.Remove(name)
		case 3:
			w.server.PutVersion(name, fakeapi.Version{Name: "v2", Stale: r.IntN(2) == 0})
		case 4:
			forms := []fakeapi.Forms{fakeapi.Aggregated(), fakeapi.Aggregated(), fakeapi.V2Beta1Only(), fakeapi.Legacy()}
			w.server.SetForms(forms[r.IntN(len(forms))])
		default:
			w.server.SetLag(fakeapi.PartDocument, time.Duration(r.IntN(3))*time.Second)
		}
		w.server.TakeRequests() // or they would be what grows
		report.Pause(ctx, time.Duration(r.Int64N(int64(500*time.Millisecond))))
	}
}

// use looks kinds up, and resets now and then.
func (w *world) use(ctx context.Context, m *apiutil.DynamicRESTMapper, r *rand.Rand) {
	for ctx.Err() == nil {
		begin := time.Now()
		switch n := r.IntN(100); {
		case n == 0:
			m.Reset()
		case n == 1:
			m.ResetGroup("steady.example.com")
		case n < 10:
			w.never(m, schema.GroupVersionKind{Group: "steady.example.com", Version: "v1", Kind: "Ghost"})
		case n < 15:
			w.never(m, schema.GroupVersionKind{Group: "never.example.com", Version: "v1", Kind: "Ghost"})
		case n < 25:
			_, _ = m.RESTMapping(schema.GroupKind{Group: churnedGroups()[r.IntN(2)], Kind: "Leaf"})
		case n < 27:
			w.steadyResource(m, steadyKinds()[r.IntN(len(steadyKinds()))])
		default:
			w.steady(m, r)
		}
		if took := time.Since(begin); took > longestCall {
			w.broken.Add("a call took %v", took)
		}
		w.lookups.Add(1)
		report.Pause(ctx, time.Duration(r.Int64N(int64(4*time.Millisecond))))
	}
}

// steady looks up what is served all the time.
func (w *world) steady(m *apiutil.DynamicRESTMapper, r *rand.Rand) {
	gvk := steadyKinds()[r.IntN(len(steadyKinds()))]
	versions := []string{gvk.Version}[:r.IntN(2)]
	mapping, err := m.RESTMapping(gvk.GroupKind(), versions...)
	switch {
	case meta.IsNoMatchError(err):
		w.broken.Add("%s with the versions %v: %v", gvk, versions, err)
	case err != nil:
		w.errs.Add(1)
	case mapping.Resource != gvk.GroupVersion().WithResource(plural(gvk.Kind)) || mapping.Scope.Name() != meta.RESTScopeNameNamespace:
		w.broken.Add("%s is mapped to %v, %v", gvk, mapping.Resource, mapping.Scope.Name())
	}
}

// steadyResource looks it up in any group.
func (w *world) steadyResource(m *apiutil.DynamicRESTMapper, gvk schema.GroupVersionKind) {
	kinds, err := m.KindsFor(schema.GroupVersionResource{Resource: plural(gvk.Kind)})
	switch {
	case meta.IsNoMatchError(err):
		w.broken.Add("%s in any group: %v", plural(gvk.Kind), err)
	case err != nil:
		w.errs.Add(1)
	case !slices.Contains(kinds, gvk):
		w.broken.Add("%s in any group: it is in %v", plural(gvk.Kind), kinds)
	}
}

func (w *world) never(m *apiutil.DynamicRESTMapper, gvk schema.GroupVersionKind) {
	if mapping, err := m.RESTMapping(gvk.GroupKind(), gvk.Version); err == nil {
		w.broken.Add("%s, which never was, is mapped to %v", gvk, mapping.Resource)
	}
}

// recovered looks everything up once more.
func (w *world) recovered() {
	time.Sleep(2 * oneRequest)
	for n, m := range w.mappers {
		m.Reset()
		for _, gvk := range steadyKinds() {
			if _, err := m.RESTMapping(gvk.GroupKind(), gvk.Version); err != nil {
				w.broken.Add("mapper %d, once the server is well again: %v", n, err)
			}
		}
	}
}

// sample notes the live heap every few seconds.
func (w *world) sample(ctx context.Context) {
	begin := time.Now()
	for ctx.Err() == nil {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		w.heap = append(w.heap, sample{time.Since(begin), stats.HeapAlloc})
		if stats.HeapAlloc > mostHeap {
			w.broken.Add("%d bytes are live after %v", stats.HeapAlloc, time.Since(begin))
		}
		report.Pause(ctx, 2*time.Second)
	}
}
