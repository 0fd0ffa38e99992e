// SPDX-License-Identifier: Apache-2.0

package latekinds

import (
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// presence is whether a kind is served, and the sessions in which a cache has an informer of it. All sources of
// one kind of one cache share it, because only one may remove the informer that all have.
type presence struct {
	of
	cache  cache.Cache
	obj    client.Object
	mapper Mapper
	log    logr.Logger
	left   bool // the informer of the last session could not be removed; alone uses it

	sources int    // those that were started and have not ended; presences.mu guards it
	cancel  func() // ends the present run; presences.mu guards it

	mu      sync.Mutex // guards the rest; held for a moment only
	absent  bool       // a read has shown it, and the kind has not come since
	session *session   // nil: none
	changed chan struct{}
}

// session is a time in which the cache has an informer of the kind.
type session struct {
	ctx   context.Context // ends with it
	users sync.WaitGroup  // sources that watch in it. None is added after its end
	empty chan struct{}   // closed when the informer was removed, if it can be: no user tells before what is gone
}

// of is what a presence is of.
type of struct {
	gvk  schema.GroupVersionKind
	form string // how objects are represented: a cache has an informer for each
}

// presences are those that have a source, by cache.
type presences struct {
	mu  sync.Mutex // held for a moment only
	all map[cache.Cache]map[of]*presence
}

var known = presences{all: map[cache.Cache]map[of]*presence{}} // sources of one cache have nothing else in common

// enter returns the presence for a source that starts with ctx. The source calls leave once.
func enter(ctx context.Context, in cache.Cache, mapper Mapper, obj client.Object, gvk schema.GroupVersionKind) *presence {
	known.mu.Lock()
	defer known.mu.Unlock()
	what, shared := of{gvk, formOf(obj)}, reflect.ValueOf(in).Comparable()
	if shared && known.all[in][what] != nil {
		known.all[in][what].sources++
		return known.all[in][what]
	}
	p := &presence{
		of: what, cache: in, obj: obj, mapper: mapper, sources: 1, changed: make(chan struct{}),
		log: log.FromContext(ctx).WithName("latekinds").WithValues("kind", gvk.String()),
	}
	if shared {
		if known.all[in] == nil {
			known.all[in] = map[of]*presence{}
		}
		known.all[in][what] = p
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p.cancel = cancel
	go p.run(running, shared)
	return p
}

func formOf(obj client.Object) string {
	switch obj.(type) {
	case runtime.Unstructured:
		return "unstructured"
	case *metav1.PartialObjectMetadata:
		return "metadata"
	}
	return "structured"
}

// leave ends the run of a presence that has no source any more.
func (p *presence) leave() {
	known.mu.Lock()
	defer known.mu.Unlock()
	if p.sources--; p.sources == 0 {
		p.cancel()
	}
}

// run follows the kind while there are sources.
func (p *presence) run(ctx context.Context, shared bool) {
	for again := true; again; {
		p.follow(ctx)
		known.mu.Lock()
		if again = p.sources > 0; again { // one has come since
			ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
		} else if shared {
			if delete(known.all[p.cache], p.of); len(known.all[p.cache]) == 0 {
				delete(known.all, p.cache)
			}
		}
		known.mu.Unlock()
	}
}

// keeper is a cache whose informers stay right while their kind is absent. A cache of package fresh is one.
type keeper interface {
	// ForgetKind empties what the cache has of a kind that is absent, and tells the handlers.
	ForgetKind(gvk schema.GroupVersionKind)
}

func keeperOf(c cache.Cache) keeper {
	k, _ := c.(keeper)
	return k
}

// follow begins a session each time that the kind has come, until ctx ends.
func (p *presence) follow(ctx context.Context) {
	var deciding sync.WaitGroup
	defer deciding.Wait()
	deciding.Add(1)
	go func() {
		defer deciding.Done()
		p.decide(ctx)
	}()
	_ = p.mapper.RunWhileServed(ctx, func(served context.Context) error {
		if keeper := keeperOf(p.cache); keeper != nil {
			p.beside(ctx, served, keeper)
		} else {
			p.alone(served)
		}
		if ctx.Err() == nil {
			p.set(func() { p.absent = true })
			p.log.Info("An optional kind is no longer served as it was: its objects count as deleted")
		}
		return nil
	}, p.gvk)
	p.set(func() { p.absent, p.session = false, nil })
}

// decide finds out whether the kind is absent, until the first session begins.
func (p *presence) decide(ctx context.Context) {
	decided := false
	for wait := time.Second; !decided && ctx.Err() == nil; wait = min(2*wait, longestWait) {
		served, err := p.mapper.IsServed(ctx, p.gvk)
		absent := err == nil && !served
		p.set(func() {
			decided = p.session != nil || absent
			p.absent = p.session == nil && absent
		})
		if decided && absent {
			p.log.Info("Waiting for an optional kind to be served")
		}
		if !decided {
			sleep(ctx, wait)
		}
	}
}

// longestWait is the longest pause between two tries of what has failed.
const longestWait = 16 * time.Second

// alone is a session in a cache that does not follow its kinds: informer and session end together.
func (p *presence) alone(served context.Context) {
	if p.left {
		p.left = p.cache.RemoveInformer(served, p.obj) != nil
	}
	at := p.begin(served)
	<-served.Done()
	p.set(func() { p.session = nil })
	at.users.Wait()
	// Upstream's cache of several namespaces can do so only while the kind is served.
	p.left = p.cache.RemoveInformer(context.WithoutCancel(served), p.obj) != nil
	close(at.empty)
}

// beside is a time in which the kind is served, in a cache that follows its kinds: the session goes on after it.
func (p *presence) beside(ctx, served context.Context, keeper keeper) {
	p.begin(ctx)
	<-served.Done()
	if ctx.Err() == nil {
		keeper.ForgetKind(p.gvk)
	}
}

// begin notes that the kind is served, and begins a session, which ends with ctx, unless there is one.
func (p *presence) begin(ctx context.Context) (at *session) {
	p.log.Info("An optional kind is served: it is watched")
	p.set(func() {
		if p.session == nil {
			p.session = &session{ctx: ctx, empty: make(chan struct{})}
		}
		at, p.absent = p.session, false
	})
	return at
}

// set changes whether the kind is absent, and the session, and tells all who wait for that.
func (p *presence) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.absent
	change()
	if gauge := absentGauge().WithLabelValues(p.gvk.Group, p.gvk.Version, p.gvk.Kind); p.absent && !was {
		gauge.Inc()
	} else if was && !p.absent {
		gauge.Dec()
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

// absence reports whether the kind is absent. changed is closed when that may change.
func (p *presence) absence() (absent bool, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.absent, p.changed
}

// join returns the next session after one, or nil when ctx ends. The source is done with it when it calls
// users.Done, after which nothing from the informer reaches its handler.
func (p *presence) join(ctx context.Context, after *session) *session {
	for ctx.Err() == nil {
		p.mu.Lock()
		next, changed := p.session, p.changed
		if next != nil && next.ctx.Err() != nil {
			next = nil // the last source has left, or the kind has gone: another session follows
		}
		if next != nil && next != after {
			next.users.Add(1)
		}
		p.mu.Unlock()
		if next != nil && next != after {
			return next
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return nil
}

// absentGauge returns the gauge, and registers it when it is first needed.
var absentGauge = sync.OnceValue(func() *prometheus.GaugeVec { // as all metrics of controller-runtime are
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Subsystem: "controller_runtime_late_kinds", Name: "absent",
		Help: "In how many caches an optional kind is absent that a controller would watch.",
	}, []string{"group", "version", "kind"})
	metrics.Registry.MustRegister(gauge)
	return gauge
})
