// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

const (
	hostileRequest = 200 * time.Millisecond
	hostileUsers   = 2 // of each mapper
	maxBytes       = 1 << 20
	// mostHeap bounds the live heap in MiB: the mappers, the server, and a few bodies of
	// maxBytes while they are read.
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
	set     map[string]int // how often each fault was set
	heap    float64        // MiB that were live at most
}

// TestHostile puts heavy load on mappers while their server makes every fault that the
// server in memory knows, in random order and in random places. Nothing may panic, no
// answer may be wrong, no call may go on for ever, and the memory must stay within bounds.
func TestHostile(t *testing.T) {
	h := &hostile{set: map[string]int{}, load: load{
		Campaign: report.Begin(t), steady: hostileSteady, churned: hostileChurned, never: hostileNever,
		resetting: 20, missing: 130, churning: 100, anyGroup: true, rest: 4 * time.Millisecond,
	}}
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
	h.Text("%d lookups of what is served throughout; %d of them ended with an error that is no NoMatch. %d lookups of what never was, %d resets.\n",
		h.lookups.Load(), h.errors.Load(), h.misses.Load(), h.resets.Load())
	h.Text("The live heap had %.1f MiB at most, the bound is %d MiB.\n", h.heap, mostHeap)
	var rows [][]string
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		rows = append(rows, []string{name, fmt.Sprint(h.set[name])})
	}
	h.Table([]string{"fault", "set"}, rows...)
	h.Finish("Hostile servers")
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

// runAll runs everything for the time of the campaign.
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
	names := slices.Sorted(maps.Keys(faults))
	for ctx.Err() == nil {
		if r.IntN(4) == 0 {
			h.server.ClearFaults()
		}
		for range r.IntN(3) {
			name := names[r.IntN(len(names))]
			h.set[name]++
			h.server.SetFault(place(r, name), faults[name](r))
		}
		report.Pause(ctx, time.Duration(r.Int64N(int64(100*time.Millisecond))))
	}
}

// change lets groups come, go and change, and makes the server change its forms and
// its lag.
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
		h.server.TakeRequests() // kept requests would make the heap grow
		report.Pause(ctx, time.Duration(r.Int64N(int64(500*time.Millisecond))))
	}
}

var codes = []int{400, 401, 403, 406, 408, 409, 410, 415, 418, 429, 500, 502, 503, 504, 599, 404, 204}

// code is a random one: with 404 a Status says that something is absent.
func code(r *rand.Rand, but int) int { return codes[r.IntN(len(codes)-but)] }

// faults are all that the server in memory knows, each with random arguments, by the name
// of its function.
var faults = map[string]func(r *rand.Rand) fakeapi.Fault{
	"Status":      func(r *rand.Rand) fakeapi.Fault { return fakeapi.Status(code(r, 2), r.IntN(20)) },
	"StatusText":  func(r *rand.Rand) fakeapi.Fault { return fakeapi.StatusText(code(r, 1)) },
	"Text":        func(r *rand.Rand) fakeapi.Fault { return fakeapi.Text(404, "no such page\n") },
	"Empty":       func(r *rand.Rand) fakeapi.Fault { return fakeapi.Empty(code(r, 0)) },
	"Audited":     func(r *rand.Rand) fakeapi.Fault { return fakeapi.Audited(fakeapi.StatusText(code(r, 2))) },
	"LostService": func(*rand.Rand) fakeapi.Fault { return fakeapi.LostService("tenant") },
	"LieETag": func(r *rand.Rand) fakeapi.Fault {
		return fakeapi.LieETag([]string{`"lie"`, "lie", `W/"lie"`}[r.IntN(3)])
	},
	"Huge": func(r *rand.Rand) fakeapi.Fault { return fakeapi.Huge(1 << (10 + r.IntN(15))) },
	"SlowDrip": func(r *rand.Rand) fakeapi.Fault {
		return fakeapi.SlowDrip(time.Duration(1+r.IntN(20)) * time.Millisecond)
	},
	"Redirect": func(*rand.Rand) fakeapi.Fault { return fakeapi.Redirect("http://elsewhere.invalid/apis") },
	"Times":    func(r *rand.Rand) fakeapi.Fault { return fakeapi.Times(1+r.IntN(5), fakeapi.Status(code(r, 2), 0)) },
	"Func": func(*rand.Rand) fakeapi.Fault {
		return fakeapi.Func("NoHeaders", func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: req}, nil
		})
	},
	"Refused": plain(fakeapi.Refused), "ResetMidBody": plain(fakeapi.ResetMidBody), "Truncated": plain(fakeapi.Truncated),
	"TruncatedClean": plain(fakeapi.TruncatedClean), "Timeout": plain(fakeapi.Timeout), "LoginPage": plain(fakeapi.LoginPage),
	"Unexpected304": plain(fakeapi.Unexpected304), "Empty200": plain(fakeapi.Empty200), "EmptyObject": plain(fakeapi.EmptyObject),
	"NotJSON": plain(fakeapi.NotJSON), "GarbageProtobuf": plain(fakeapi.GarbageProtobuf), "WrongContentType": plain(fakeapi.WrongContentType),
	"WrongKind": plain(fakeapi.WrongKind), "EmptyGroupList": plain(fakeapi.EmptyGroupList), "NullItems": plain(fakeapi.NullItems),
	"DuplicateGroups": plain(fakeapi.DuplicateGroups), "NoETag": plain(fakeapi.NoETag),
	"NotFound": plain(fakeapi.NotFound), "LostRoute": plain(fakeapi.LostRoute),
}

func plain(f func() fakeapi.Fault) func(*rand.Rand) fakeapi.Fault {
	return func(*rand.Rand) fakeapi.Fault { return f() }
}

// place returns a function that reports whether a request is to a random part of
// the server. A fault may be well-formed and say that something is absent. If it is the
// answer to the last read, of a live list or a live version, nobody can tell it from the
// truth. So such faults hit only the document, and groups of which nothing is asserted.
func place(r *rand.Rand, fault string) func(*http.Request) bool {
	places := []func(*http.Request) bool{
		fakeapi.InGroup(hostileChurned[r.IntN(len(hostileChurned))].Group), fakeapi.At("/api", "/apis"), fakeapi.At("/apis"), fakeapi.At("/api"),
	}
	switch fault {
	case "EmptyGroupList", "NullItems": // a server may have one half alone
		places = places[:2]
	case "NotFound":
	default:
		half := rand.NewPCG(r.Uint64(), uint64(time.Now().UnixNano())) // of all requests
		var mu sync.Mutex
		places = append(places, fakeapi.All(), fakeapi.Under("/apis"), fakeapi.Under("/api"),
			fakeapi.InGroup("steady.example.com"), fakeapi.At("/apis/steady.example.com/v1"), func(*http.Request) bool {
				mu.Lock()
				defer mu.Unlock()
				return half.Uint64()%2 == 0
			})
	}
	return places[r.IntN(len(places))]
}

// Every function of the server in memory that makes a fault is in the table.
func TestEveryFault(t *testing.T) {
	files, _ := filepath.Glob("../../internal/fakeapi/*.go")
	made := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`(?m)^func ([A-Z]\w*)\(.*\) Fault \{`).FindAllSubmatch(text, -1) {
			if made++; faults[string(found[1])] == nil {
				t.Errorf("%s is not in the table", found[1])
			}
		}
	}
	if made != len(faults) {
		t.Errorf("%d faults in the table, of %d", len(faults), made)
	}
}
