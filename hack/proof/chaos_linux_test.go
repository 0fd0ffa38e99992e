// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/apiutil/served"
	"github.com/freshmapper/freshmapper/fresh"
	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

var (
	kills  = flag.Int("kills", 2, "how often the chaos kills an API server")
	etcds  = flag.Int("etcd", 1, "how often the chaos kills etcd")
	routes = flag.Int("routes", 1, "how often the gateway loses its route, and two replicas disagree")
	gap    = flag.Duration("gap", 3*time.Second, "for how long")

	mappers = flag.Int("mappers", 5, "how many mappers the soak has")
	rate    = flag.Int("rate", 500, "lookups a second in the soak, of all mappers")
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

// await waits for something that must come.
func (l *load) await(what string, most time.Duration, yes func() bool) {
	took, ok := report.Within(l.Ctx, most, yes)
	l.took[what] = append(l.took[what], took)
	l.Logf("%s %s: %.2f s", time.Now().UTC().Format(time.TimeOnly), what, took.Seconds())
	if !ok && l.Ctx.Err() == nil {
		l.Broken("not within %v: %s", most, what)
	}
}

// finish writes the page, with how long it took until something was so.
func (l *load) finish(title string) {
	var rows [][]string
	for _, name := range slices.Sorted(maps.Keys(l.took)) {
		took := slices.Sorted(slices.Values(l.took[name]))
		row := []string{name, fmt.Sprint(len(took))}
		for _, part := range []float64{0.5, 0.9, 1} {
			row = append(row, fmt.Sprintf("%.2f s", took[int(part*float64(len(took)-1)+0.5)].Seconds()))
		}
		rows = append(rows, row)
	}
	l.Text("%d lookups of what is served throughout; %d of them ended with an error that is no NoMatch. %d lookups of what never was.\n",
		l.lookups.Load(), l.errors.Load(), l.misses.Load())
	l.Table([]string{"", "times", "median", "90 %", "longest"}, rows...)
	l.Finish(title)
}

func (l *load) mapper(cfg *rest.Config, opts apiutil.DynamicRESTMapperOptions) (*apiutil.DynamicRESTMapper, *http.Client) {
	client, err := rest.HTTPClientFor(cfg)
	l.Must(err)
	m, err := apiutil.NewDynamicRESTMapperWithOptions(cfg, client, opts)
	l.Must(err)
	return m, client
}

// use puts a mapper in heavy use while something happens to its API server. All that was begun must end.
func (w *world) use(cfg *rest.Config, happens func()) {
	m, client := w.mapper(cfg, apiutil.DynamicRESTMapperOptions{RefreshInterval: chaosInterval, WatchAPIs: true, RequestTimeout: chaosRequest, UnhealthyAfter: time.Second})
	w.m = m
	before := goleak.IgnoreCurrent()
	ctx, cancel := context.WithCancel(w.Ctx)
	w.start(ctx)
	time.Sleep(2 * time.Second)
	happens()
	cancel()
	var left error // requests that nobody waits for end by their timeouts
	if _, ok := report.Within(w.Ctx, withoutEnd, func() bool {
		utilnet.CloseIdleConnectionsFor(client.Transport)
		left = goleak.Find(before, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
			goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*clientConnReadLoop).run"), // these are connections of our own clients
			goleak.IgnoreAnyFunction("net/http.(*http2clientConnReadLoop).run"))
		return left == nil
	}); !ok {
		w.Broken("goroutines are left %v after their context: %v", withoutEnd, left)
	}
}

func (w *world) start(ctx context.Context) {
	w.running.Go(func() { _ = w.m.Start(ctx) })
	for _, slow := range []time.Duration{0, 200 * time.Millisecond} {
		view := &sync.Map{}
		w.views = append(w.views, view)
		w.running.Go(func() {
			for batch := range w.m.Subscribe(ctx) {
				for _, change := range batch {
					if m := change.Mapping; change.Type == apiutil.APIRemoved {
						view.Delete(m.GroupVersionKind)
					} else {
						view.Store(m.GroupVersionKind, fmt.Sprintf("%s %t", m.Resource.Resource, m.Scope.Name() == meta.RESTScopeNameNamespace))
					}
				}
				time.Sleep(slow) // as a slow receiver
			}
		})
	}
	w.running.Go(func() { w.runSteady(ctx, w.m) })
	w.running.Go(func() {
		_ = served.RunWhile(ctx, w.m, func(runs context.Context) error {
			<-runs.Done()
			return nil
		}, w.churned[0])
	})
	w.running.Go(func() { w.change(ctx) })
	w.run(ctx, &w.running, w.m, chaosUsers, 1000*len(w.admins)) // one server or two: other calls
}

// runSteady calls served.RunWhile for kinds that are served throughout. Nothing may end what it runs.
func (l *load) runSteady(ctx context.Context, m *apiutil.DynamicRESTMapper) {
	var kinds []gvk
	for _, k := range l.steady {
		kinds = append(kinds, k.gvk)
	}
	_ = served.RunWhile(ctx, m, func(runs context.Context) error {
		<-runs.Done()
		time.Sleep(10 * time.Millisecond) // ctx may be what ended it
		if ctx.Err() == nil {
			l.Broken("served.RunWhile stopped what needs only kinds that are served throughout: %v", context.Cause(runs))
		}
		return nil
	}, kinds...)
}

// healthy waits until the mapper is healthy, after the server is.
func (w *world) healthy(what string) {
	ready := time.Now()
	w.await(what+" to healthy", healthyFor, func() bool {
		status := w.m.Status()
		return w.m.Healthz(nil) == nil && status.UnhealthySince.IsZero() && status.LastSuccess.After(ready)
	})
}

// converge stops all changes of the API, and waits until the mapper watches again
// and all servers and subscribers agree on what is served.
func (w *world) converge() {
	w.await("all watches are open", watchesFor, func() bool { return w.m.Status().Watching })
	w.churn.Lock()
	defer w.churn.Unlock()
	time.Sleep(time.Second) // what is under way on the servers
	w.await("subscribers converge", convergesFor, func() bool {
		return w.all(func(truth map[any]any) bool {
			return !slices.ContainsFunc(w.views, func(v *sync.Map) bool { return !has(v, truth) })
		})
	})
}

// TestChaos kills real API servers and their etcd while a mapper is in heavy use. For the
// first half of the kills the mapper talks to one API server; for the second half to two,
// through a proxy that sends each request to the next of them, dead or alive.
func TestChaos(t *testing.T) {
	l := busy(report.Begin(t))
	for n := range 2 {
		servers, etcd := (*kills+1-n)/2, (*etcds+1-n)/2 // the halves
		if servers+etcd == 0 {
			continue
		}
		w := newWorld(l, n+1)
		cfg := w.plane.Servers[0].Config()
		if n > 0 {
			cfg = w.front.config()
		}
		w.use(cfg, func() { w.kill(servers, etcd) })
		_ = w.plane.Stop() // the next half has the machine for itself
	}
	l.finish("Chaos on real API servers")
}

// kill kills API servers and etcd in random order, one at a time. Each starts again up to a second later.
func (w *world) kill(kills, etcd int) {
	r := w.Random(1000*len(w.admins) + 200)
	for n, victim := range r.Perm(kills + etcd) {
		if w.Ctx.Err() != nil {
			return
		}
		process, name := w.plane.Servers[r.IntN(len(w.admins))], fmt.Sprintf("API server, %d", len(w.admins))
		if victim < etcd {
			process, name = w.plane.Etcd, "etcd"
		}
		killed := time.Now()
		process.Kill()
		time.Sleep(time.Duration(r.Int64N(int64(time.Second))))
		w.Must(process.Start())
		for _, s := range w.plane.Servers {
			w.Must(s.AwaitReady(w.Ctx))
		}
		w.took[name+": kill to readyz"] = append(w.took[name+": kill to readyz"], time.Since(killed))
		w.healthy(name + ": readyz")
		time.Sleep(time.Duration(r.Int64N(int64(2 * time.Second))))
		if n%convergeEvery == convergeEvery-1 || n == kills+etcd-1 {
			w.converge()
		}
	}
}

// TestGateway puts a gateway before a real API server that loses its route time after time, and then answers 404 to
// everything. Kinds that are known are served on, nothing is said to be absent, and no work is stopped.
func TestGateway(t *testing.T) {
	w := newWorld(busy(report.Begin(t)), 1)
	w.use(w.front.config(), func() {
		for n := range *routes {
			w.front.lead()
			report.Pause(w.Ctx, *gap)
			w.front.lead(w.plane.Servers...)
			w.healthy("route is back")
			if n%convergeEvery == convergeEvery-1 || n == *routes-1 {
				w.converge()
			}
		}
	})
	w.finish("A gateway that loses its route")
}

const (
	soakInterval = 10 * time.Second
	warm         = 0.25 // of the run, in which things fill up: it does not count
	grows        = 0.04 // at most, from the first third of the rest to the last
	restOf       = 50   // samples, of which most likely at least one is taken while nothing is under way
)

// flat are what must not grow.
var flat = map[string]func() float64{
	"live heap in KiB": func() float64 { return liveHeap() * (1 << 10) },
	"goroutines":       func() float64 { return float64(runtime.NumGoroutine()) },
	"open files and connections": func() float64 {
		open, _ := os.ReadDir("/proc/self/fd")
		return float64(len(open))
	},
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
		m, _ := w.mapper(cfg, apiutil.DynamicRESTMapperOptions{RefreshInterval: soakInterval, WatchAPIs: true})
		running.Go(func() { _ = m.Start(ctx) })
		w.run(ctx, &running, m, 1, n)
	}
	running.Go(func() { w.change(ctx) })
	samples := map[string][]float64{}
	for ctx.Err() == nil {
		for name, now := range flat {
			samples[name] = append(samples[name], now())
		}
		report.Pause(ctx, max(most/360, time.Second))
	}
	running.Wait()
	if n := w.errors.Load(); n > 0 {
		w.Broken("%d lookups of what is served failed", n)
	}
	w.Text("%.0f lookups a second, while CRDs changed %d times.\n", float64(w.lookups.Load())/most.Seconds(), w.changes.Load())
	w.growth(samples)
	w.finish("Soak")
}

func (l *load) growth(samples map[string][]float64) {
	var rows [][]string
	for _, name := range slices.Sorted(maps.Keys(samples)) {
		warmed := samples[name][int(warm*float64(len(samples[name]))):]
		third := len(warmed) / 3
		if third < restOf {
			l.Text("The run was too short to tell what grows.\n")
			return
		}
		first, last := atRest(warmed[:third]), atRest(warmed[len(warmed)-third:])
		if last > (1+grows)*first {
			l.Broken("%s: grew from %.0f to %.0f", name, first, last)
		}
		rows = append(rows, []string{name, fmt.Sprintf("%.0f", first), fmt.Sprintf("%.0f", last), fmt.Sprintf("%+.2f %%", 100*(last/first-1))})
	}
	l.Table([]string{"at rest", "warm", "at the end", "growth"}, rows...)
}

// atRest returns the value that a tenth of the samples do not exceed. Most samples are above it, because something is
// going on. A few may be far below: while many watches pause after an event, they have fewer goroutines.
func atRest(samples []float64) float64 {
	return slices.Sorted(slices.Values(samples))[len(samples)/10]
}

// follower is a client, a cache and a handler that follow a kind: Thing.
type follower struct {
	*load
	client client.Client
	cache  cache.Cache

	told sync.Map // what the handler knows, by namespace and name
}

var thing = gvk{Group: "things.example.com", Version: "v1", Kind: "Thing"}

// newThing is an object of the scope that Thing has.
func newThing(cluster bool, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(thing)
	o.SetName(name)
	if !cluster {
		o.SetNamespace("default")
	}
	return o
}

// TestReplicas puts two real API servers behind one address, which have no etcd in common. One has a
// kind with another scope and plural than the other, for a while; then both agree. The mapper, a client and a
// cache that follow, and a handler of its must come to know what both say.
func TestReplicas(t *testing.T) {
	f := &follower{load: busy(report.Begin(t))}
	f.steady, f.churned, f.churning = builtin, []gvk{thing}, 100
	one, other := newPlane(f.Campaign, 1).Servers[0], newPlane(f.Campaign, 1).Servers[0]
	ahead, behind := newAdmin(f.Campaign, one), newAdmin(f.Campaign, other)
	f.move(ahead, false, "thing0")
	f.move(behind, false, "thing0")
	at := newFront(f.Campaign, one)
	f.start(at.config())
	f.agrees(false, "thing0")
	for n := range *routes {
		cluster, name := n%2 == 0, fmt.Sprint("thing", n+1)
		at.lead(other)
		f.move(ahead, cluster, name)
		at.lead(one, other)
		for end := time.Now().Add(*gap); time.Now().Before(end); report.Pause(f.Ctx, 50*time.Millisecond) {
			o := newThing(cluster, name)
			if err := f.client.Get(f.Ctx, client.ObjectKeyFromObject(o), o); meta.IsNoMatchError(err) {
				f.Broken("both servers have Thing, each with another scope: %v", err)
			}
		}
		at.lead(one) // the resource versions of two etcds cannot be compared
		f.move(behind, cluster, name)
		f.agrees(cluster, name)
	}
	f.finish("Two API servers that disagree")
}

// start starts the load, and all that follow Thing.
func (f *follower) start(cfg *rest.Config) {
	m, httpClient := f.mapper(cfg, apiutil.DynamicRESTMapperOptions{RefreshInterval: chaosInterval, RequestTimeout: chaosRequest})
	var err error
	f.client, err = fresh.NewClient(cfg, client.Options{HTTPClient: httpClient, Mapper: m})
	f.Must(err)
	f.cache, err = fresh.NewCache(cfg, cache.Options{HTTPClient: httpClient, Mapper: m})
	f.Must(err)
	ctx, cancel := context.WithCancel(f.Ctx)
	var running sync.WaitGroup
	f.Cleanup(func() {
		cancel()
		running.Wait()
	})
	running.Go(func() { _ = m.Start(ctx) })
	running.Go(func() { _ = f.cache.Start(ctx) })
	running.Go(func() { f.runSteady(ctx, m) })
	f.run(ctx, &running, m, chaosUsers, 0)
	informer, err := f.cache.GetInformer(ctx, newThing(true, ""))
	f.Must(err)
	key := func(obj any) string {
		key, _ := toolscache.DeletionHandlingMetaNamespaceKeyFunc(obj)
		return key
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { f.told.Store(key(obj), true) },
		DeleteFunc: func(obj any) { f.told.Delete(key(obj)) },
	})
	f.Must(err)
}

// move gives a server the kind with a scope, another plural than with the other, and one object of it.
// A list of all namespaces has the path of a cluster-scoped one: without another plural a cache need not move.
func (f *follower) move(a *admin, cluster bool, name string) {
	plural := map[bool]string{false: "things", true: "thingies"}
	crd, o := newCRD(thing, cluster, thing.Version), newThing(cluster, name)
	crd.SetName(plural[cluster] + "." + thing.Group)
	f.Must(unstructured.SetNestedField(crd.Object, plural[cluster], "spec", "names", "plural"))
	things := a.Resource(thing.GroupVersion().WithResource(plural[cluster])).Namespace(o.GetNamespace()) // "" is the cluster
	_ = a.crds.Delete(f.Ctx, plural[!cluster]+"."+thing.Group, metav1.DeleteOptions{})                   // there may be none
	f.await("an API server serves the kind", 2*time.Minute, func() bool {
		_, _ = a.crds.Create(f.Ctx, crd, metav1.CreateOptions{}) // the one before may not have ended, or this one is there
		_, err := things.Create(f.Ctx, o, metav1.CreateOptions{})
		return err == nil
	})
}

// agrees waits until client, cache and handler know the kind as it is, and its only object.
func (f *follower) agrees(cluster bool, name string) {
	want := newThing(cluster, name)
	f.await("the client reads and writes", convergesFor, func() bool {
		o := want.DeepCopy()
		return f.client.Get(f.Ctx, client.ObjectKeyFromObject(o), o) == nil && f.client.Update(f.Ctx, o) == nil
	})
	f.await("the cache has the object", convergesFor, func() bool {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(thing)
		return f.cache.List(f.Ctx, list) == nil && len(list.Items) == 1 && client.ObjectKeyFromObject(&list.Items[0]) == client.ObjectKeyFromObject(want)
	})
	f.await("the handler knows the object and no other", convergesFor, func() bool {
		key, _ := toolscache.MetaNamespaceKeyFunc(want)
		return has(&f.told, map[any]any{key: true})
	})
}
