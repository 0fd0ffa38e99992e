// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/hack/control"
)

const (
	interval   = 5 * time.Second
	grace      = 5 * time.Second // beyond the interval, until the mapper must be healthy
	oneRequest = 5 * time.Second
	workers    = 8

	// waitsFor is the time after which a call gives up; slack is how much longer it
	// may take on a machine that also starts API servers. A call without a context
	// ends only by the timeouts of its requests, and it makes several requests.
	waitsFor   = 10 * time.Second
	slack      = 5 * time.Second
	withoutEnd = 60 * time.Second
)

// load is everything that uses one mapper at once.
type load struct {
	*findings
	plane    *control.Plane
	balancer *httptest.Server // nil with one API server
	servers  []*server
	client   *http.Client // the mapper's
	m        *apiutil.DynamicRESTMapper
	views    []*view

	churning sync.Mutex // held by whoever wants the API to stand still
	running  sync.WaitGroup
	cancel   context.CancelFunc
}

func newLoad(f *findings, plane *control.Plane) (*load, error) {
	l := &load{findings: f, plane: plane}
	for _, process := range plane.Servers {
		s, err := newServer(process)
		if err != nil {
			return nil, err
		}
		l.servers = append(l.servers, s)
	}
	if err := l.install(); err != nil {
		return nil, err
	}
	config := plane.Servers[0].Config()
	var err error
	if len(plane.Servers) > 1 {
		if l.balancer, err = balance(plane); err != nil {
			return nil, err
		}
		config = &rest.Config{Host: l.balancer.URL, BearerToken: config.BearerToken, QPS: -1}
	}
	if l.client, err = rest.HTTPClientFor(config); err != nil {
		return nil, err
	}
	l.m, err = apiutil.NewDynamicRESTMapperWithOptions(config, l.client, apiutil.DynamicRESTMapperOptions{
		RefreshInterval: interval, WatchAPIs: true, RequestTimeout: oneRequest, UnhealthyAfter: time.Second,
	})
	return l, err
}

// Random differs between the halves.
func (l *load) Random(stream uint64) *rand.Rand {
	return l.findings.Random(stream + 1000*uint64(len(l.servers)))
}

func (l *load) start() {
	ctx, cancel := context.WithCancel(l.Ctx)
	l.cancel = cancel
	l.running.Go(func() { _ = l.m.Start(ctx) })
	for _, pause := range []time.Duration{0, 200 * time.Millisecond} {
		v := &view{served: map[schema.GroupVersionKind]string{}}
		l.views = append(l.views, v)
		l.running.Go(func() { v.follow(l.m.Subscribe(ctx), pause) })
	}
	l.running.Go(func() { l.runSteady(ctx) })
	l.running.Go(func() { l.runChurned(ctx) })
	l.running.Go(func() { l.churn(ctx) })
	for n := range workers {
		l.running.Go(func() { l.work(ctx, l.Random(uint64(n))) })
	}
}

// stop ends everything, and closes the connections.
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
		l.Broken("something has not ended %v after its context", withoutEnd)
	}
	if l.balancer != nil {
		l.balancer.CloseClientConnections()
		l.balancer.Close()
	}
	utilnet.CloseIdleConnectionsFor(l.client.Transport)
}

// runSteady calls RunWhileServed for kinds that are served throughout. Nothing may
// end what it runs.
func (l *load) runSteady(ctx context.Context) {
	var gvks []schema.GroupVersionKind
	for _, k := range steady {
		gvks = append(gvks, k.GroupVersionKind)
	}
	_ = l.m.RunWhileServed(ctx, func(runs context.Context) error {
		<-runs.Done()
		time.Sleep(10 * time.Millisecond) // ctx may be what ended it
		if ctx.Err() == nil {
			l.Broken("RunWhileServed stopped what needs only kinds that are served throughout: %v", context.Cause(runs))
		}
		return nil
	}, gvks...)
}

func (l *load) runChurned(ctx context.Context) {
	_ = l.m.RunWhileServed(ctx, func(runs context.Context) error {
		l.runs.Add(1)
		<-runs.Done()
		return nil
	}, churned[0].gvk("v1"))
}

// work calls the mapper, again and again.
func (l *load) work(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		switch n := r.IntN(1000); {
		case n < 4:
			l.m.Reset()
			l.resets.Add(1)
		case n < 8:
			l.m.ResetGroup(steady[r.IntN(len(steady))].Group)
			l.resets.Add(1)
		case n < 11:
			l.wait(ctx, r)
		case n < 80:
			gvk := never[r.IntN(len(never))]
			l.misses.Add(1)
			l.timed(ctx, "lookup of "+gvk.String(), func(ctx context.Context) { l.Miss(ctx, l.m, gvk) })
		case n < 120: // of what comes and goes, anything may be said
			k := churned[r.IntN(len(churned))]
			l.lookups.Add(1)
			l.timed(ctx, "lookup of "+k.kind, func(ctx context.Context) {
				_, _ = l.m.RESTMappingWithContext(ctx, k.gvk("").GroupKind())
			})
		default:
			l.hit(ctx, r)
		}
		time.Sleep(time.Duration(r.Int64N(int64(40 * time.Millisecond))))
	}
}

// hit looks up what is served throughout. The mapper must never return NoMatch for
// it; any other error is allowed while a server is down.
func (l *load) hit(ctx context.Context, r *rand.Rand) {
	k, sort := steady[r.IntN(len(steady))], r.IntN(4)
	resource := k.GroupVersion().WithResource(k.Resource)
	what := fmt.Sprintf("lookup %d of %s", sort, k)
	l.lookups.Add(1)
	var err error
	switch sort {
	case 0:
		l.timed(ctx, what, func(ctx context.Context) { _ = l.Find(ctx, l.m, k) })
	case 1:
		l.timed(ctx, what, func(ctx context.Context) {
			_, err = l.m.KindForWithContext(ctx, resource.GroupResource().WithVersion(""))
		})
	case 2:
		l.timed(ctx, what, func(ctx context.Context) { _, err = l.m.ResourcesForWithContext(ctx, resource) })
	default:
		l.atMost(withoutEnd, what, func() { _ = l.Find(context.Background(), l.m, k, k.Version) })
	}
	if meta.IsNoMatchError(err) {
		l.Broken("%s, which is served throughout: %v", what, err)
	}
}

// wait waits for kinds, one of which may never come.
func (l *load) wait(ctx context.Context, r *rand.Rand) {
	gvks := []schema.GroupVersionKind{steady[r.IntN(len(steady))].GroupVersionKind, churned[r.IntN(len(churned))].gvk("v1")}
	ghost := r.IntN(3) == 0
	if ghost {
		gvks = append(gvks, never[0])
	}
	l.waits.Add(1)
	l.timed(ctx, fmt.Sprintf("WaitForKinds(%v)", gvks), func(ctx context.Context) {
		if err := l.m.WaitForKinds(ctx, gvks...); err == nil && ghost {
			l.Broken("WaitForKinds says that %s is served", never[0])
		}
	})
}

// timed makes a call that must end soon after its context.
func (l *load) timed(ctx context.Context, what string, call func(context.Context)) {
	ctx, cancel := context.WithTimeout(ctx, waitsFor)
	defer cancel()
	l.atMost(waitsFor+slack, what, func() { call(ctx) })
}

// atMost makes a call that must end in time.
func (l *load) atMost(most time.Duration, what string, call func()) {
	begin := time.Now()
	call()
	took := time.Since(begin)
	if took > most {
		l.Broken("%s took %v", what, took)
	}
	for longest := l.longest.Load(); int64(took) > longest && !l.longest.CompareAndSwap(longest, int64(took)); {
		longest = l.longest.Load()
	}
}
