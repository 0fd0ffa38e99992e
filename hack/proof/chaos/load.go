// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
)

const (
	interval = 5 * time.Second
	grace    = 5 * time.Second // beyond the interval, until the mapper must be healthy
	workers  = 8

	// waitsFor is after how long a call gives up; slack is how much longer it may take
	// to return on a machine that also starts API servers. A call without a context
	// has only the timeouts of its requests, of which it makes several.
	waitsFor    = 10 * time.Second
	slack       = 5 * time.Second
	withoutEnd  = 60 * time.Second
	oneRequest  = 5 * time.Second
	betweenCall = 20 * time.Millisecond
)

// A served kind is there all the time.
type served struct {
	gvk  schema.GroupVersionKind
	want string // resource and scope
}

func steady() []served {
	list := []served{
		{schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, describe("pods", true)},
		{schema.GroupVersionKind{Version: "v1", Kind: "Node"}, describe("nodes", false)},
		{schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, describe("deployments", true)},
	}
	for _, k := range steadyCRDs() {
		list = append(list, served{k.gvk("v1"), describe(k.plural(), !k.cluster)})
	}
	return list
}

// steadyCRDs are served throughout: one alone in its group, one beside others that
// come and go.
func steadyCRDs() []kind {
	return []kind{
		{group: "steady.example.com", kind: "Rock", versions: []string{"v1"}},
		{group: "mixed.example.com", kind: "Cliff", versions: []string{"v1"}, cluster: true},
	}
}

// never are kinds that are never served, in groups that are and one that is not.
func never() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		{Group: "steady.example.com", Version: "v1", Kind: "Ghost"},
		{Group: "steady.example.com", Version: "v9", Kind: "Rock"},
		{Group: "mixed.example.com", Version: "v1", Kind: "Ghost"},
		{Group: "never.example.com", Version: "v1", Kind: "Ghost"},
		{Version: "v1", Kind: "Ghost"},
	}
}

// load is everything that uses one mapper at once.
type load struct {
	c      *cluster
	m      *apiutil.DynamicRESTMapper
	random func(stream uint64) *rand.Rand
	found  *findings
	views  []*view

	churning sync.Mutex // held by whoever wants the API to stand still
	running  sync.WaitGroup
	cancel   context.CancelFunc

	lookups, misses, resets, waits, runs atomic.Int64
	longest                              atomic.Int64 // of all calls, in nanoseconds
}

func newLoad(c *cluster, seed uint64, found *findings) (*load, error) {
	m, err := apiutil.NewDynamicRESTMapperWithOptions(c.config, c.client, apiutil.DynamicRESTMapperOptions{
		RefreshInterval: interval, WatchAPIs: true, RequestTimeout: oneRequest, UnhealthyAfter: time.Second,
	})
	if err != nil {
		return nil, err
	}
	return &load{c: c, m: m, found: found, random: func(stream uint64) *rand.Rand {
		return rand.New(rand.NewPCG(seed, stream))
	}}, nil
}

func (l *load) start(ctx context.Context) {
	ctx, l.cancel = context.WithCancel(ctx)
	l.running.Go(func() { _ = l.m.Start(ctx) })
	for _, pause := range []time.Duration{0, 200 * time.Millisecond} {
		v := newView(pause)
		l.views = append(l.views, v)
		l.running.Go(func() { v.follow(l.m.Subscribe(ctx)) })
	}
	l.running.Go(func() { l.runSteady(ctx) })
	l.running.Go(func() { l.runChurned(ctx) })
	l.running.Go(func() { l.churn(ctx, l.random(1000)) })
	for n := range workers {
		l.running.Go(func() { l.work(ctx, l.random(uint64(n))) })
	}
}

// stop ends everything.
func (l *load) stop() {
	l.cancel()
	ended := make(chan struct{})
	go func() {
		l.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(withoutEnd):
		l.found.broken.Add("something has not ended %v after its context", withoutEnd)
	}
	l.found.count(l)
}

// work calls the mapper, again and again.
func (l *load) work(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		switch n := r.IntN(1000); {
		case n < 4:
			l.m.Reset()
			l.resets.Add(1)
		case n < 8:
			l.m.ResetGroup(l.pickSteady(r).gvk.Group)
			l.resets.Add(1)
		case n < 11:
			l.wait(ctx, r)
		case n < 80:
			l.miss(ctx, r)
		case n < 120:
			l.lookUpChurned(ctx, r)
		default:
			l.hit(ctx, r)
		}
		time.Sleep(time.Duration(r.Int64N(int64(2 * betweenCall))))
	}
}

func (l *load) pickSteady(r *rand.Rand) served { return steady()[r.IntN(len(steady()))] }

// hit looks up what is served throughout. That it is absent must never be said; any
// other error is allowed while a server is down.
func (l *load) hit(ctx context.Context, r *rand.Rand) {
	s, sort := l.pickSteady(r), r.IntN(4)
	l.lookups.Add(1)
	var mapping *meta.RESTMapping
	var err error
	l.timed(ctx, sort != 3, fmt.Sprintf("lookup %d of %s", sort, s.gvk), func(ctx context.Context) {
		switch sort {
		case 0:
			mapping, err = l.m.RESTMappingWithContext(ctx, s.gvk.GroupKind())
		case 1:
			_, err = l.m.KindForWithContext(ctx, resourceOf(s).WithVersion(""))
		case 2:
			_, err = l.m.ResourcesForWithContext(ctx, resourceOf(s).WithVersion(s.gvk.Version))
		default:
			mapping, err = l.m.RESTMapping(s.gvk.GroupKind(), s.gvk.Version)
		}
	})
	if meta.IsNoMatchError(err) {
		l.found.broken.Add("lookup %d of %s, which is served throughout: %v", sort, s.gvk, err)
	}
	if mapping != nil && describe(mapping.Resource.Resource, mapping.Scope.Name() == meta.RESTScopeNameNamespace) != s.want {
		l.found.broken.Add("lookup of %s: %v %v", s.gvk, mapping.Resource, mapping.Scope.Name())
	}
}

func resourceOf(s served) schema.GroupResource {
	var resource string
	_, _ = fmt.Sscan(s.want, &resource)
	return schema.GroupResource{Group: s.gvk.Group, Resource: resource}
}

// miss looks up what never was.
func (l *load) miss(ctx context.Context, r *rand.Rand) {
	gvk := never()[r.IntN(len(never()))]
	l.misses.Add(1)
	l.timed(ctx, true, "lookup of "+gvk.String(), func(ctx context.Context) {
		if mapping, err := l.m.RESTMappingWithContext(ctx, gvk.GroupKind(), gvk.Version); err == nil {
			l.found.broken.Add("%s, which never was, is mapped to %v", gvk, mapping.Resource)
		}
	})
}

// lookUpChurned looks up what comes and goes: anything may be said of it.
func (l *load) lookUpChurned(ctx context.Context, r *rand.Rand) {
	k := churned()[r.IntN(len(churned()))]
	l.lookups.Add(1)
	l.timed(ctx, true, "lookup of "+k.name(), func(ctx context.Context) {
		_, _ = l.m.RESTMappingWithContext(ctx, k.gvk("").GroupKind())
	})
}

// wait waits for kinds, one of which may never come.
func (l *load) wait(ctx context.Context, r *rand.Rand) {
	gvks := []schema.GroupVersionKind{l.pickSteady(r).gvk, churned()[r.IntN(len(churned()))].gvk("v1")}
	ghost := r.IntN(3) == 0
	if ghost {
		gvks = append(gvks, never()[0])
	}
	l.waits.Add(1)
	l.timed(ctx, true, fmt.Sprintf("WaitForKinds(%v)", gvks), func(ctx context.Context) {
		if err := l.m.WaitForKinds(ctx, gvks...); err == nil && ghost {
			l.found.broken.Add("WaitForKinds says that %s is served", never()[0])
		}
	})
}

// timed makes a call that must end in time: soon after its context, if it is given
// one that ends.
func (l *load) timed(ctx context.Context, ends bool, what string, call func(context.Context)) {
	most := withoutEnd
	if ends {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, waitsFor)
		defer cancel()
		most = waitsFor + slack
	}
	begin := time.Now()
	call(ctx)
	took := time.Since(begin)
	if took > most {
		l.found.broken.Add("%s took %v", what, took)
	}
	for longest := l.longest.Load(); int64(took) > longest && !l.longest.CompareAndSwap(longest, int64(took)); {
		longest = l.longest.Load()
	}
}
