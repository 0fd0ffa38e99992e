// SPDX-License-Identifier: Apache-2.0

// Package hostile puts heavy load on mappers while their server makes every fault
// that the server in memory knows, in random order and in random places.
//
//	go test ./hostile -v -timeout 0 -args -time 10m [-seed N] [-o results]
//
// Nothing may panic, no answer may be wrong, no call may go on for ever, and the
// memory must stay within bounds.
package hostile

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/hack/bench/chart"
	"github.com/freshmapper/freshmapper/hack/proof/internal/campaign"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

var lasting = flag.Duration("time", 10*time.Second, "how long")

const (
	oneRequest = 200 * time.Millisecond
	maxBytes   = 1 << 20
	// longestCall is how long a lookup may take: several requests, each with its
	// timeout, on a busy machine.
	longestCall = 20 * time.Second
	// mostHeap bounds the live heap in MiB: the mappers, the server, and a few bodies of
	// maxBytes while they are read.
	mostHeap = 128
	users    = 8
)

// steady are kinds that are served throughout.
var steady = []campaign.Kind{
	{GroupVersionKind: schema.GroupVersionKind{Group: "steady.example.com", Version: "v1", Kind: "Rock"}, Resource: "therocks"},
	{GroupVersionKind: schema.GroupVersionKind{Group: "steady.example.com", Version: "v1", Kind: "Hill"}, Resource: "thehills"},
}

// churned are groups that come and go.
var churned = []string{"churn.example.com", "gusts.example.com"}

// world is one server, some mappers of it, and all who use them.
type world struct {
	*campaign.Campaign
	server  *fakeapi.Server
	mappers []*apiutil.DynamicRESTMapper

	lookups, errs atomic.Int64
	set           map[string]int // how often each fault was set
	heap          []chart.Point  // MiB by seconds
}

func TestCampaign(t *testing.T) {
	w := &world{Campaign: campaign.Begin(t, "hostile"), set: map[string]int{}}
	if err := w.prepare(); err != nil {
		t.Fatal(err)
	}
	w.run()
	w.server.ClearFaults()
	w.recovered()
	w.write()
}

func (w *world) prepare() error {
	w.server = fakeapi.New(append(fakeapi.Typical(20, 2, 3), group("steady.example.com", "Rock", "Hill"))...)
	for _, opts := range []apiutil.DynamicRESTMapperOptions{
		{}, {RefreshInterval: time.Second, WatchAPIs: true}, {MaxAge: 100 * time.Millisecond, NegativeTTL: 50 * time.Millisecond},
		{RefreshInterval: 300 * time.Millisecond, MaxAge: -1},
	} {
		opts.RequestTimeout, opts.MaxResponseBytes = oneRequest, maxBytes
		m, err := apiutil.NewDynamicRESTMapperWithOptions(w.server.Config(), w.server.Client(), opts)
		if err != nil {
			return err
		}
		for _, k := range steady {
			// From here on the kinds are known: a first lookup believes a document.
			if err := w.Find(w.Ctx, m, k, k.Version); err != nil {
				return err
			}
		}
		w.mappers = append(w.mappers, m)
	}
	return nil
}

func group(name string, kinds ...string) fakeapi.Group {
	v := fakeapi.Version{Name: "v1"}
	for _, kind := range kinds {
		v.Resources = append(v.Resources, fakeapi.Resource{Name: "the" + strings.ToLower(kind) + "s", Kind: kind, Namespaced: true})
	}
	return fakeapi.Group{Name: name, Versions: []fakeapi.Version{v}}
}

// run runs everything for the time of the campaign.
func (w *world) run() {
	ctx, cancel := context.WithTimeout(w.Ctx, *lasting)
	defer cancel()
	var running sync.WaitGroup
	for i, m := range w.mappers {
		running.Go(func() { _ = m.Start(ctx) })
		running.Go(func() {
			for range m.Subscribe(ctx) {
			}
		})
		for n := range users / len(w.mappers) {
			running.Go(func() { w.use(ctx, m, w.Random(uint64(100*i+n))) })
		}
	}
	running.Go(func() { w.change(ctx, w.Random(1000)) })
	running.Go(func() { w.sample(ctx) })
	w.fault(ctx, w.Random(2000))
	running.Wait()
}

// fault sets and takes away faults, up to three at a time.
func (w *world) fault(ctx context.Context, r *rand.Rand) {
	names := slices.Sorted(maps.Keys(faults()))
	for ctx.Err() == nil {
		if r.IntN(4) == 0 {
			w.server.ClearFaults()
		}
		for range r.IntN(3) {
			name := names[r.IntN(len(names))]
			w.set[name]++
			w.server.SetFault(place(r, believable(name)), faults()[name](r))
		}
		campaign.Pause(ctx, time.Duration(r.Int64N(int64(100*time.Millisecond))))
	}
}

// change lets groups come, go and change, and makes the server change its forms and
// its lag.
func (w *world) change(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		name := churned[r.IntN(len(churned))]
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
		w.server.TakeRequests() // kept requests would make the heap grow
		campaign.Pause(ctx, time.Duration(r.Int64N(int64(500*time.Millisecond))))
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
			w.Miss(context.Background(), m, schema.GroupVersionKind{Group: "steady.example.com", Version: "v1", Kind: "Ghost"})
		case n < 15:
			w.Miss(context.Background(), m, schema.GroupVersionKind{Group: "never.example.com", Version: "v1", Kind: "Ghost"})
		case n < 25:
			_, _ = m.RESTMapping(schema.GroupKind{Group: churned[r.IntN(2)], Kind: "Leaf"})
		case n < 27:
			w.count(w.findInAnyGroup(m, steady[r.IntN(len(steady))]))
		default:
			k := steady[r.IntN(len(steady))]
			w.count(w.Find(context.Background(), m, k, []string{k.Version}[:r.IntN(2)]...))
		}
		if took := time.Since(begin); took > longestCall {
			w.Broken("a call took %v", took)
		}
		w.lookups.Add(1)
		campaign.Pause(ctx, time.Duration(r.Int64N(int64(4*time.Millisecond))))
	}
}

// count counts the errors that are allowed.
func (w *world) count(err error) {
	if err != nil && !meta.IsNoMatchError(err) {
		w.errs.Add(1)
	}
}

// findInAnyGroup looks up what is served throughout by the name of its resource.
func (w *world) findInAnyGroup(m *apiutil.DynamicRESTMapper, k campaign.Kind) error {
	found, err := m.KindsFor(schema.GroupVersionResource{Resource: k.Resource})
	if meta.IsNoMatchError(err) || err == nil && !slices.Contains(found, k.GroupVersionKind) {
		w.Broken("%s in any group: it is in %v: %v", k.Resource, found, err)
	}
	return err
}

// recovered looks everything up once more.
func (w *world) recovered() {
	time.Sleep(2 * oneRequest)
	for n, m := range w.mappers {
		m.Reset()
		for _, k := range steady {
			if err := w.Find(context.Background(), m, k, k.Version); err != nil {
				w.Broken("mapper %d, once the server is well again: %v", n, err)
			}
		}
	}
}

// sample notes the live heap every few seconds, and at least once.
func (w *world) sample(ctx context.Context) {
	for begin := time.Now(); w.heap == nil || ctx.Err() == nil; campaign.Pause(ctx, 2*time.Second) {
		live := chart.Point{X: time.Since(begin).Seconds(), Y: campaign.LiveHeap() / (1 << 20)}
		w.heap = append(w.heap, live)
		if live.Y > mostHeap {
			w.Broken("%.1f MiB are live after %.0f s", live.Y, live.X)
		}
	}
}

func (w *world) write() {
	p := w.Page("Hostile servers")
	p.Text("%d mappers with different options, %d goroutines, and a server in memory that answers with random faults in random places, up to several at a time,", len(w.mappers), users)
	p.Text("while its groups, its forms and its lag change. Bodies are bounded to 1 MiB, requests to %v. Seed %d.\n", oneRequest, w.Seed)
	p.Text("%d lookups; %d of them, of what is served throughout, ended with an error that is no NoMatch.", w.lookups.Load(), w.errs.Load())
	p.Text("A document that claims to be empty was among the faults. A *live* version or list that claims it was so only for groups of which nothing is asserted.\n")
	most := slices.MaxFunc(w.heap, func(a, b chart.Point) int { return cmp.Compare(a.Y, b.Y) })
	p.Text("The live heap had %.1f MiB at most, the bound is %d MiB.\n\n![live heap](hostile.svg)\n", most.Y, mostHeap)
	var rows [][]string
	for _, name := range slices.Sorted(maps.Keys(faults())) {
		rows = append(rows, []string{name, fmt.Sprint(w.set[name])})
	}
	p.Table([]string{"fault", "set"}, rows)
	w.Finish(p, chart.Plot{
		Title: "Live heap under random faults", X: chart.Axis{Label: "seconds"}, Y: chart.Axis{Label: "MiB"},
		Lines: []chart.Line{{Name: "live heap", Points: w.heap}},
	})
}
