// SPDX-License-Identifier: Apache-2.0

// Package proof tests at length what DESIGN.md promises. Each campaign is a test. It is
// short unless flags make it longer, and it writes a page about what it has found:
//
//	go test -run '^TestChaos$' -v -timeout 0 . -args -kills 100 -etcd 20 -o results
package proof

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/apiutil/served"
	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

var lasting = flag.Duration("time", 0, "how long the soak and the hostile servers take; 0: seconds")

// TestMain silences client-go's log, which is full of the faults that the campaigns make.
func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// liveHeap is in MiB.
func liveHeap() float64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc) / (1 << 20)
}

type gvk = schema.GroupVersionKind

type kind struct {
	gvk
	resource string
	cluster  bool // not of a namespace
}

const (
	// waitsFor is the time after which a call gives up; slack is how much longer it may take on a busy machine. A call
	// without a context ends only by the timeouts of its requests, and it makes several.
	waitsFor   = 10 * time.Second
	slack      = 5 * time.Second
	withoutEnd = 60 * time.Second
)

// load is what random users of mappers do, and what they saw.
type load struct {
	*report.Campaign
	steady  []kind // are served throughout
	churned []gvk  // come and go: anything may be said of them
	never   []gvk  // are never served

	// Of 1,000 calls so many are resets, waits, lookups of never and of churned. The others are lookups of steady.
	resetting, waiting, missing, churning int
	anyGroup                              bool          // some of these have no group
	rest                                  time.Duration // at most, between two calls

	lookups, errors, misses atomic.Int64
	took                    map[string][]time.Duration // until something was so
}

func (l *load) run(ctx context.Context, running *sync.WaitGroup, m *apiutil.DynamicRESTMapper, users, stream int) {
	for n := range users {
		r := l.Random(stream + n)
		running.Go(func() {
			for ctx.Err() == nil {
				l.call(ctx, m, r)
				report.Pause(ctx, time.Duration(r.Int64N(int64(l.rest))))
			}
		})
	}
}

// call makes a random call, and holds its answer to what is promised.
func (l *load) call(ctx context.Context, m *apiutil.DynamicRESTMapper, r *rand.Rand) {
	k, c := l.steady[r.IntN(len(l.steady))], l.churned[r.IntN(len(l.churned))]
	never, n := l.never[r.IntN(len(l.never))], r.IntN(1000)
	of := func(share int) bool {
		n -= share
		return n < 0
	}
	switch {
	case of(l.resetting):
		m.Reset()
	case of(l.waiting): // of three times once for a kind that never comes
		kinds := []gvk{k.gvk, c, l.never[0]}[:2+r.IntN(3)/2]
		err := l.timed(ctx, fmt.Sprintf("served.Wait(%v)", kinds), func(ctx context.Context) error { return served.Wait(ctx, m, kinds...) })
		if err == nil && len(kinds) > 2 {
			l.Broken("served.Wait says that %s is served", l.never[0])
		}
	case of(l.missing):
		l.misses.Add(1)
		_ = l.timed(ctx, "lookup of "+never.String(), func(ctx context.Context) error {
			mapping, err := m.RESTMappingWithContext(ctx, never.GroupKind(), never.Version)
			if err == nil {
				l.Broken("%s, which never was, is mapped to %v", never, mapping.Resource)
			}
			return err
		})
	case of(l.churning):
		_ = l.timed(ctx, "lookup of "+c.Kind, func(ctx context.Context) error {
			_, err := m.RESTMappingWithContext(ctx, c.GroupKind())
			return err
		})
	default:
		l.hit(ctx, m, r, k)
	}
}

// hit looks up what is served throughout. The mapper must never return NoMatch for it;
// any other error is allowed while a server is unwell.
func (l *load) hit(ctx context.Context, m *apiutil.DynamicRESTMapper, r *rand.Rand, k kind) {
	resource, sort := k.GroupVersion().WithResource(k.resource), r.IntN(5)
	what := fmt.Sprintf("lookup %d of %s", sort, k.gvk)
	if sort == 0 {
		ctx = context.Background()
	}
	l.lookups.Add(1)
	err := l.timed(ctx, what, func(ctx context.Context) (err error) {
		switch {
		case sort == 0:
			return l.find(ctx, m, k, k.Version)
		case sort == 1:
			_, err = m.KindForWithContext(ctx, resource.GroupResource().WithVersion(""))
		case sort == 2:
			_, err = m.ResourcesForWithContext(ctx, resource)
		case sort == 3 && l.anyGroup:
			var found []gvk
			if found, err = m.KindsForWithContext(ctx, schema.GroupVersionResource{Resource: k.resource}); err == nil && !slices.Contains(found, k.gvk) {
				l.Broken("%s in any group is in %v", k.resource, found)
			}
		default:
			return l.find(ctx, m, k)
		}
		return err
	})
	if meta.IsNoMatchError(err) {
		l.Broken("%s, which is served throughout: %v", what, err)
	} else if err != nil && ctx.Err() == nil {
		l.errors.Add(1)
	}
}

func (l *load) find(ctx context.Context, m *apiutil.DynamicRESTMapper, k kind, versions ...string) error {
	l.Helper()
	mapping, err := m.RESTMappingWithContext(ctx, k.GroupKind(), versions...)
	if err == nil && (mapping.Resource != k.GroupVersion().WithResource(k.resource) || mapping.Scope.Name() == meta.RESTScopeNameRoot != k.cluster) {
		l.Broken("%s is mapped to %v, %v", k.gvk, mapping.Resource, mapping.Scope.Name())
	}
	return err
}

// timed makes a call that must end soon after its context. One without a context must end, too.
func (l *load) timed(ctx context.Context, what string, call func(context.Context) error) error {
	begin, most := time.Now(), withoutEnd
	if ctx.Done() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, waitsFor)
		defer cancel()
		most = waitsFor + slack
	}
	err := call(ctx)
	if took := time.Since(begin); took > most {
		l.Broken("%s took %v", what, took)
	}
	return err
}

const (
	hostileRequest = 200 * time.Millisecond
	hostileUsers   = 2 // of each mapper
	maxBytes       = 1 << 20
	// mostHeap bounds the live heap in MiB: the mappers, the server, and a few bodies of maxBytes while they are read.
	mostHeap = 128
)

var (
	hostileSteady = []kind{
		{gvk: gvk{Group: "steady.example.com", Version: "v1", Kind: "Rock"}, resource: "therocks"},
		{gvk: gvk{Group: "steady.example.com", Version: "v1", Kind: "Hill"}, resource: "thehills"},
	}
	hostileChurned = []gvk{{Group: "churn.example.com", Kind: "Leaf"}, {Group: "gusts.example.com", Kind: "Leaf"}}
	hostileNever   = []gvk{{Group: "steady.example.com", Version: "v1", Kind: "Ghost"}, {Group: "never.example.com", Version: "v1", Kind: "Ghost"}}
)

// hostile is one server, some mappers of it, and all who use them.
type hostile struct {
	load
	server  *fakeapi.Server
	mappers []*apiutil.DynamicRESTMapper
	heap    float64        // MiB that were live at most
	met     map[string]int // how many requests met each sort of fault
}

// TestHostile puts heavy load on mappers while their server makes every fault that the
// server in memory knows, in random order and in random places. Nothing may panic, no
// answer may be wrong, no call may go on indefinitely, and the memory must stay within bounds.
func TestHostile(t *testing.T) {
	h := &hostile{load: load{
		Campaign: report.Begin(t), steady: hostileSteady, churned: hostileChurned, never: hostileNever,
		resetting: 20, missing: 130, churning: 100, anyGroup: true, rest: 4 * time.Millisecond,
	}, met: map[string]int{}}
	h.prepare()
	h.runAll()
	h.server.ClearFaults()
	time.Sleep(2 * hostileRequest)
	for n, m := range h.mappers {
		m.Reset()
		for _, k := range h.steady {
			if err := h.find(context.Background(), m, k, k.Version); err != nil {
				h.Broken("mapper %d, once the server is well again: %v", n, err)
			}
		}
	}
	h.Text("%d lookups of what is served throughout; %d of them ended with an error that is no NoMatch. %d lookups of what never was.\n",
		h.lookups.Load(), h.errors.Load(), h.misses.Load())
	h.Text("The live heap had %.1f MiB at most, the bound is %d MiB.\n", h.heap, mostHeap)
	h.faultsMet()
	h.Finish("Hostile servers")
}

// faultsMet shows how many requests met each sort of fault. In a run of some minutes each is met: one that is not met
// proves nothing.
func (h *hostile) faultsMet() {
	rows := [][]string{}
	for _, name := range sortsOfFaults() {
		if h.met[name] == 0 && *lasting >= time.Minute {
			h.Broken("no request met the fault %s", name)
		}
		rows = append(rows, []string{name, fmt.Sprint(h.met[name])})
	}
	h.Table([]string{"fault", "requests that met it"}, rows...)
}

func (h *hostile) prepare() {
	h.server = fakeapi.New(append(fakeapi.Typical(20, 2, 3), fakeGroup("steady.example.com", "Rock", "Hill"))...)
	for _, opts := range []apiutil.DynamicRESTMapperOptions{
		{}, {RefreshInterval: time.Second, WatchAPIs: true}, {MaxAge: 100 * time.Millisecond, NegativeTTL: 50 * time.Millisecond},
		{RefreshInterval: 300 * time.Millisecond, MaxAge: -1},
	} {
		opts.RequestTimeout, opts.MaxResponseBytes = hostileRequest, maxBytes
		m, err := apiutil.NewDynamicRESTMapperWithOptions(h.server.Config(), h.server.Client(), opts)
		h.Must(err)
		for _, k := range h.steady {
			h.Must(h.find(h.Ctx, m, k, k.Version)) // from here on the kinds are known: a first lookup believes a document
		}
		h.mappers = append(h.mappers, m)
	}
}

func fakeGroup(name string, kinds ...string) fakeapi.Group {
	v := fakeapi.Version{Name: "v1"}
	for _, kind := range kinds {
		v.Resources = append(v.Resources, fakeapi.Resource{Name: "the" + strings.ToLower(kind) + "s", Kind: kind, Namespaced: true})
	}
	return fakeapi.Group{Name: name, Versions: []fakeapi.Version{v}}
}

func (h *hostile) runAll() {
	ctx, cancel := context.WithTimeout(h.Ctx, cmp.Or(*lasting, 10*time.Second))
	defer cancel()
	var running sync.WaitGroup
	for i, m := range h.mappers {
		running.Go(func() { _ = m.Start(ctx) })
		running.Go(func() {
			for range m.Subscribe(ctx) {
			}
		})
		h.run(ctx, &running, m, hostileUsers, 100*i)
	}
	running.Go(func() { h.change(ctx, h.Random(1000)) })
	running.Go(func() { h.fault(ctx, h.Random(2000)) })
	for h.heap == 0 || ctx.Err() == nil {
		h.heap = max(h.heap, liveHeap())
		report.Pause(ctx, 2*time.Second)
	}
	running.Wait()
	if h.heap > mostHeap {
		h.Broken("%.1f MiB were live", h.heap)
	}
}

// fault sets and takes away faults, up to three at a time.
func (h *hostile) fault(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		if r.IntN(4) == 0 {
			h.server.ClearFaults()
		}
		for range r.IntN(3) {
			f := randomFault(r)
			h.server.SetFault(place(r, f), f)
		}
		report.Pause(ctx, time.Duration(r.Int64N(int64(100*time.Millisecond))))
	}
}

// change lets groups come, go and change, and makes the server change its forms and its lag.
func (h *hostile) change(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		name := h.churned[r.IntN(len(h.churned))].Group
		switch r.IntN(6) {
		case 0, 1:
			h.server.Put(fakeGroup(name, []string{"Leaf", "Wave", "Gust"}[:1+r.IntN(3)]...))
		case 2:
			h.server.Remove(name)
		case 3:
			h.server.PutVersion(name, fakeapi.Version{Name: "v2", Stale: r.IntN(2) == 0})
		case 4:
			forms := []fakeapi.Forms{fakeapi.Aggregated(), fakeapi.Aggregated(), fakeapi.V2Beta1Only(), fakeapi.Legacy()}
			h.server.SetForms(forms[r.IntN(len(forms))])
		default:
			h.server.SetLag(fakeapi.PartDocument, time.Duration(r.IntN(3))*time.Second)
		}
		for _, request := range h.server.TakeRequests() { // kept requests would make the heap grow
			h.met[sortOf(request.Form)]++
		}
		report.Pause(ctx, time.Duration(r.Int64N(int64(500*time.Millisecond))))
	}
}

// sortOf returns the name of a fault without its arguments.
func sortOf(name string) string {
	name, _, _ = strings.Cut(name, "(")
	return name
}

// sortsOfFaults lists the names of all faults, each once.
func sortsOfFaults() []string {
	names := map[string]bool{}
	for _, f := range faults(rand.New(rand.NewPCG(1, 1))) {
		names[sortOf(f.String())] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// randomFault is one of all that the server in memory knows, with random arguments.
func randomFault(r *rand.Rand) fakeapi.Fault {
	all := faults(r)
	return all[r.IntN(len(all))]
}

// faults are all that the server in memory knows, with random arguments.
func faults(r *rand.Rand) []fakeapi.Fault {
	codes := []int{400, 401, 403, 406, 408, 409, 410, 415, 418, 429, 500, 502, 503, 504, 599, 404, 204}
	code := func(but int) int { return codes[r.IntN(len(codes)-but)] } // a Status of 404 is an absence
	upTo := func(n int, unit time.Duration) time.Duration { return time.Duration(1+r.IntN(n)) * unit }
	return []fakeapi.Fault{
		fakeapi.Status(code(2), r.IntN(20)), fakeapi.StatusText(code(1)), fakeapi.Text(404, "no such page\n"), fakeapi.Empty(code(0)),
		fakeapi.Audited(fakeapi.StatusText(code(2))), fakeapi.Times(1+r.IntN(5), fakeapi.Status(code(2), 0)),
		fakeapi.LostRoute(), fakeapi.LostService("tenant"), fakeapi.LoginPage(), fakeapi.Redirect("http://elsewhere.invalid/apis"),
		fakeapi.LieETag([]string{`"lie"`, "lie", `W/"lie"`}[r.IntN(3)]), fakeapi.NoETag(), fakeapi.Unexpected304(),
		fakeapi.Huge(1 << (10 + r.IntN(15))), fakeapi.SlowDrip(upTo(20, time.Millisecond)), fakeapi.Late(upTo(300, time.Millisecond)),
		fakeapi.Refused(), fakeapi.ResetMidBody(), fakeapi.Truncated(), fakeapi.TruncatedClean(), fakeapi.Timeout(),
		fakeapi.Empty200(), fakeapi.EmptyObject(), fakeapi.NotJSON(), fakeapi.GarbageProtobuf(), fakeapi.WrongContentType(), fakeapi.WrongKind(),
		fakeapi.EmptyGroupList(), fakeapi.NullItems(), fakeapi.DuplicateGroups(), fakeapi.NotFound(),
		fakeapi.Func("NoHeaders", func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: req}, nil
		}),
	}
}

// place returns a function that reports whether a request is to a random part of the server. A fault may be well-formed
// and say that something is absent. If it is the answer to the last read, of a live list or a live version, nobody can
// tell it from the truth. So such faults hit only the document, and groups of which nothing is asserted.
func place(r *rand.Rand, fault fakeapi.Fault) func(*http.Request) bool {
	places := []func(*http.Request) bool{
		fakeapi.InGroup(hostileChurned[r.IntN(len(hostileChurned))].Group), fakeapi.At("/api", "/apis"), fakeapi.At("/apis"), fakeapi.At("/api"),
	}
	switch fault.String() {
	case "EmptyGroupList", "NullItems": // a server may have one half alone
		places = places[:2]
	case "NotFound":
	default:
		var requests atomic.Int64
		places = append(places, fakeapi.All(), fakeapi.Under("/apis"), fakeapi.Under("/api"),
			fakeapi.InGroup("steady.example.com"), fakeapi.At("/apis/steady.example.com/v1"),
			func(*http.Request) bool { return requests.Add(1)%2 == 0 })
	}
	return places[r.IntN(len(places))]
}
