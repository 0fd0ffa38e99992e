// SPDX-License-Identifier: Apache-2.0

package lincheck

import (
	"context"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// newMapper makes a mapper whose requests time out early enough for a run.
func (s *server) newMapper(t *testing.T) *apiutil.DynamicRESTMapper {
	m, err := apiutil.NewDynamicRESTMapperWithOptions(&rest.Config{Host: "http://fake.invalid", QPS: -1}, &http.Client{Transport: s},
		apiutil.DynamicRESTMapperOptions{RequestTimeout: 400 * time.Millisecond})
	if err != nil {
		t.Error(err) // t.Fatal is for the test's own goroutine
	}
	return m
}

const (
	clients      = 4
	opsPerClient = 14
)

// A caller makes the call that an Op describes, and notes the answer.
type caller func(r *run, o *Op)

// perform is the caller of those that are no mutants.
func perform(r *run, o *Op) { o.ask(r.mapper) }

// run is one history in the making. It belongs in a synctest bubble. All that
// is random comes from the seed, each actor with a source of its own.
type run struct {
	t       *testing.T
	history *History
	server  *server
	mapper  *apiutil.DynamicRESTMapper
	perform caller
	pace    time.Duration // between the calls of a client, at most
	stop    chan struct{} // closed when all clients are done
}

// Run makes a history. It returns when all that it started has ended.
func Run(t *testing.T, seed uint64, legacy bool, perform caller) *History {
	rnd := source(seed, 0)
	h := &History{Seed: seed, Legacy: legacy, Calm: rnd.IntN(2) == 0, Lag: [...]int{0, 1, 6}[rnd.IntN(3)], start: time.Now()}
	r := &run{t: t, history: h, perform: perform, stop: make(chan struct{})}
	r.pace = [...]time.Duration{60 * time.Millisecond, 200 * time.Millisecond, time.Second, 20 * time.Second}[rnd.IntN(4)]
	latency := [...]time.Duration{time.Millisecond, 10 * time.Millisecond, 40 * time.Millisecond}[rnd.IntN(3)]
	h.Peer = !legacy && rnd.IntN(4) == 0
	h.Replicas = !h.Peer && rnd.IntN(4) == 0
	h.NoIDs = rnd.IntN(4) == 0
	r.server = newServer(h, latency, firstWorld(rnd, h.Peer))
	r.mapper = r.server.newMapper(t)
	var actors, callers sync.WaitGroup
	actors.Go(func() { r.changeWorld(source(seed, 1)) })
	if !h.Calm {
		actors.Go(func() { r.breakThings(source(seed, 2)) })
	}
	for n := range clients {
		callers.Go(func() {
			rnd := source(seed, uint64(10+n))
			for range opsPerClient {
				r.wait(rnd, r.pace)
				r.call(randomOp(n, rnd, h.Peer))
			}
		})
	}
	callers.Wait()
	close(r.stop)
	actors.Wait()
	return h
}

func source(seed, actor uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, actor)) }

// wait lets a random time pass, of nanosecond grain so that two actors hardly
// ever move in one instant. It reports whether the run goes on.
func (r *run) wait(rnd *rand.Rand, most time.Duration) bool {
	select {
	case <-time.After(upTo(rnd, most)):
		return true
	case <-r.stop:
		return false
	}
}

// changeWorld changes what is served, and lets the document follow.
func (r *run) changeWorld(rnd *rand.Rand) {
	lag := r.history.Lag
	worlds, published := []World{r.server.worlds[live]}, 0
	for r.wait(rnd, 3*r.pace/2) {
		next := worlds[len(worlds)-1].next(rnd)
		if rnd.IntN(5) == 0 { // what went comes back, perhaps before a document has noticed
			next = worlds[max(len(worlds)-2, 0)]
		}
		if rnd.IntN(3) > 0 || lag == 0 {
			worlds = append(worlds, next)
			r.server.serve(live, next)
		}
		follows := len(worlds) - 1 - published
		if lag > 0 {
			follows = rnd.IntN(follows+1) * map[bool]int{true: 1}[rnd.IntN(lag) == 0]
		}
		if published += follows; follows > 0 {
			r.server.serve(behind, worlds[published])
		}
	}
}

// breakThings has all, the document, a group or one of its versions fail now and then, for a while.
func (r *run) breakThings(rnd *rand.Rand) {
	for r.wait(rnd, 6*r.pace) {
		group, version := [...]int{theServer, theDocument, theDocument, 0, 1, 2, 3}[rnd.IntN(7)], everyVersion
		if group >= 0 && rnd.IntN(2) == 0 {
			version = rnd.IntN(len(versionNames))
		}
		kinds := []fakeapi.Fault{
			fakeapi.Status(503, 0), fakeapi.Status(500, 0), fakeapi.Status(403, 0), fakeapi.StatusText(502), fakeapi.StatusText(404),
			fakeapi.Refused(), fakeapi.Timeout(), fakeapi.Truncated(), fakeapi.LoginPage(), fakeapi.LostService("tenant"),
		}
		if !r.history.NoIDs { // else nobody can tell the 404 of a gateway that has lost its route from the server's own
			kinds = append(kinds, fakeapi.LostRoute(), fakeapi.LostRoute())
		}
		f := &Fault{Group: group, Version: version, Kind: kinds[rnd.IntN(len(kinds))]}
		meets := func(req *http.Request) bool { return f.meets(newRequest(req.URL.Path)) }
		var heal [2]func()
		r.history.note(func(now Stamp) string {
			f.From = now
			r.history.Faults = append(r.history.Faults, f)
			for side, fake := range r.server.fakes {
				heal[side] = fake.SetFault(meets, f.Kind)
			}
			return "        fault begins: " + f.String()
		})
		r.wait(rnd, 2*r.pace)
		r.history.note(func(now Stamp) string {
			f.Until = now
			heal[live]()
			heal[behind]()
			return "        fault ends: " + f.String()
		})
	}
}

// call performs an operation and notes when it began, when it ended and how.
func (r *run) call(o *Op) {
	h := r.history
	h.note(func(now Stamp) string {
		o.Call = now
		h.Ops = append(h.Ops, o)
		return fmt.Sprintf("client %d  %s", o.Client, o)
	})
	defer h.note(func(now Stamp) string {
		o.Return = now
		return fmt.Sprintf("client %d  %s (since %d) = %s", o.Client, o, o.Call.Seq, o.answer())
	})
	defer func() {
		if what := recover(); what != nil {
			o.Panicked, o.Err = true, fmt.Errorf("panic: %v", what)
		}
	}()
	r.perform(r, o)
}

// ask makes the call to a mapper.
func (o *Op) ask(m *apiutil.DynamicRESTMapper) {
	gk := schema.GroupKind{Group: o.Group, Kind: kindNames[o.Name]}
	var mappings []*meta.RESTMapping
	var err error
	switch o.Kind {
	case OpReset:
		m.Reset()
	case OpMapping:
		mappings = make([]*meta.RESTMapping, 1)
		mappings[0], err = m.RESTMapping(gk, o.Versions...)
	case OpMappings:
		mappings, err = m.RESTMappings(gk, o.Versions...)
	case OpKindFor:
		mappings = []*meta.RESTMapping{{}}
		gr := schema.GroupResource{Group: o.Group, Resource: resourceName(o.Name)}
		mappings[0].GroupVersionKind, err = m.KindFor(gr.WithVersion(strings.Join(o.Versions, "")))
	}
	if o.NoMatch = meta.IsNoMatchError(err); o.NoMatch {
		return
	}
	if o.Err = err; err != nil {
		return
	}
	for _, mapping := range mappings {
		o.found(mapping)
	}
}

// found notes an answer. A name that was never served is an error of the mapper.
func (o *Op) found(mapping *meta.RESTMapping) {
	kind := mapping.GroupVersionKind
	f := Found{
		Group: slices.Index(groupNames[:], kind.Group), Version: slices.Index(versionNames[:], kind.Version), Kind: slices.Index(kindNames[:], kind.Kind),
	}
	if min(f.Group, f.Version, f.Kind) < 0 {
		o.Err = fmt.Errorf("%s was never served", kind)
		return
	}
	if mapping.Scope != nil {
		f.Scoped, f.Namespaced = true, mapping.Scope.Name() == meta.RESTScopeNameNamespace
	}
	o.Found = append(o.Found, f)
}

// randomOp picks a call. Kinds of one group are asked for most, so that there are hits.
func randomOp(client int, rnd *rand.Rand, peer bool) *Op {
	o := &Op{Client: client, Kind: OpMapping, Name: rnd.IntN(2), Group: groupNames[[...]int{0, 0, 0, 1, 3, 3}[rnd.IntN(6)]]}
	if rnd.IntN(15) == 0 {
		o.Group, o.Name = groupNames[groupBatch], kindJob
	}
	if peer && rnd.IntN(5) == 0 {
		o.Group, o.Name = groupNames[groupBatch], rnd.IntN(2) // kindOfPeer, or one that is absent
	}
	versions := rnd.Perm(len(versionNames))
	switch n := rnd.IntN(20); {
	case n < 2:
		o.Kind, o.Group = OpReset, ""
	case n < 9:
		o.Versions = []string{versionNames[versions[0]]}
	case n < 11:
		o.Versions = []string{versionNames[versions[0]], versionNames[versions[1]]}
	case n < 14:
	case n < 16:
		o.Kind = OpMappings
	default:
		o.Kind = OpKindFor
		form := rnd.IntN(5)
		o.Group = [...]string{"", o.Group, o.Group, "app", "exam"}[form]
		if form < 3 && rnd.IntN(2) == 0 {
			o.Versions = []string{versionNames[versions[0]]}
		}
	}
	return o
}

// server is an http.RoundTripper: two fake servers, one of which is behind, and what goes wrong on the way. The one
// that is behind answers for the document. If there are two replicas, either answers for everything.
type server struct {
	history *History
	latency time.Duration // at most, on each way
	fakes   [2]*fakeapi.Server
	worlds  [2]World // what they serve; guarded as the history is
}

const live, behind = 0, 1

var sides = [...]string{"served", "behind"}

func newServer(h *History, latency time.Duration, first World) *server {
	s := &server{history: h, latency: latency}
	forms := fakeapi.Aggregated()
	if h.Legacy {
		forms = fakeapi.Legacy()
	}
	forms.StatusNotFound = h.Seed%4 < 2
	if h.NoIDs {
		forms.AuditIDs = fakeapi.AuditNone
	}
	for side := range s.fakes {
		s.fakes[side] = fakeapi.New()
		s.fakes[side].SetForms(forms)
		s.serve(side, first)
	}
	return s
}

// serve replaces what is served live, or by the one that is behind.
func (s *server) serve(side int, w World) {
	s.history.note(func(Stamp) string {
		w.serveAt(s.fakes[side], side == behind)
		s.worlds[side] = w
		return "        " + sides[side] + ":" + w.describe()
	})
}

// RoundTrip answers with the truth of a moment between the request's two ways.
func (s *server) RoundTrip(req *http.Request) (resp *http.Response, err error) {
	h, r, n := s.history, newRequest(req.URL.Path), 0
	h.note(func(now Stamp) string {
		r.Start = now
		h.Requests = append(h.Requests, r)
		n = len(filter(h.Requests, func(other *Request) bool { return other.Path == r.Path }))
		return "      GET " + r.Path
	})
	defer h.note(func(now Stamp) string {
		if r.End, r.Err = now, err; err == nil {
			r.Code = resp.StatusCode
		}
		return fmt.Sprintf("      GET %s (since %d): %s", r.Path, r.Start.Seq, r.answer())
	})
	rnd := source(h.Seed, uint64(crc32.ChecksumIEEE(fmt.Append(nil, r.Path, n))))
	if err := sleep(req.Context(), upTo(rnd, s.latency)); err != nil {
		return nil, err
	}
	if resp, err = s.route(r, rnd).Client().Transport.RoundTrip(req); err != nil {
		return nil, err
	}
	if err := sleep(req.Context(), upTo(rnd, s.latency)); err != nil {
		_ = resp.Body.Close() // it is in memory
		return nil, err
	}
	return resp, nil
}

// route picks who answers at this moment. What a server answers is decided when
// it is asked, which is in the same instant of virtual time.
func (s *server) route(r *Request, rnd *rand.Rand) *fakeapi.Server {
	h, side := s.history, live
	if h.Replicas && rnd.IntN(2) == 0 || !h.Replicas && !r.live() {
		side = behind
	}
	h.note(func(Stamp) string {
		r.World = s.worlds[side]
		if i := len(h.Faults) - 1; i >= 0 && h.Faults[i].Until == (Stamp{}) && h.Faults[i].meets(r) {
			r.Fault = h.Faults[i]
		}
		return "      GET " + r.Path + " is answered by what is " + sides[side]
	})
	return s.fakes[side]
}

func newRequest(path string) *Request {
	r := &Request{Path: path, Group: -1, Version: -1, Doc: path == "/apis"}
	parts := strings.Split(strings.TrimPrefix(path, "/apis/"), "/")
	r.Group = slices.Index(groupNames[:], parts[0])
	if len(parts) > 1 {
		r.Version = slices.Index(versionNames[:], parts[1])
	}
	return r
}

func upTo(rnd *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(rnd.Int64N(int64(d)) + 1)
}

// sleep lets a time pass, or returns the error of a request that is given up.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
