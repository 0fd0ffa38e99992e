// SPDX-License-Identifier: Apache-2.0

package lincheck

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A Mapper is what is checked.
type Mapper interface {
	meta.RESTMapper
	Reset()
	ResetGroup(group string)
}

// A Maker makes a mapper that sends its requests through a transport.
type Maker func(cfg *rest.Config, transport http.RoundTripper) (Mapper, error)

// NewMapper makes the real one, whose requests time out early enough for a run.
func NewMapper(cfg *rest.Config, transport http.RoundTripper) (Mapper, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Transport = transport
	return apiutil.NewDynamicRESTMapperWithOptions(cfg, &http.Client{Transport: transport},
		apiutil.DynamicRESTMapperOptions{RequestTimeout: 400 * time.Millisecond})
}

const (
	clients      = 4
	opsPerClient = 14
)

// run is one history in the making. It belongs in a synctest bubble. All that
// is random comes from the seed, each actor with a source of its own.
type run struct {
	history *History
	server  *server
	mapper  Mapper
	pace    time.Duration // between the calls of a client, at most
	stop    chan struct{} // closed when all clients are done
}

// Run makes a history; with peers some have one, of which the reference knows nothing. It returns when all that it started has ended.
func Run(seed uint64, legacy, peers bool, newMapper Maker) (*History, error) {
	rnd := source(seed, 0)
	h := &History{Seed: seed, Legacy: legacy, Calm: rnd.IntN(2) == 0, Document: Lag(rnd.IntN(3)), start: time.Now()}
	r := &run{history: h, stop: make(chan struct{})}
	r.pace = [...]time.Duration{60 * time.Millisecond, 200 * time.Millisecond, time.Second, 20 * time.Second}[rnd.IntN(4)]
	latency := [...]time.Duration{time.Millisecond, 10 * time.Millisecond, 40 * time.Millisecond}[rnd.IntN(3)]
	h.Peer = peers && !legacy && rnd.IntN(4) == 0
	r.server = newServer(h, latency, firstWorld(rnd, h.Peer))
	var err error
	if r.mapper, err = newMapper(r.server.config(), r.server); err != nil {
		return nil, err
	}
	var actors, callers sync.WaitGroup
	actors.Go(func() { r.changeWorld(source(seed, 1)) })
	if !h.Calm {
		actors.Go(func() { r.breakThings(source(seed, 2)) })
	}
	for n := range clients {
		callers.Go(func() { r.client(n, source(seed, uint64(10+n))) })
	}
	callers.Wait()
	close(r.stop)
	actors.Wait()
	return h, nil
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
	follow := r.history.Document
	worlds, published := []World{r.server.world}, 0
	for r.wait(rnd, 3*r.pace/2) {
		next := worlds[len(worlds)-1].next(rnd)
		if rnd.IntN(5) == 0 { // what went comes back, perhaps before a document has noticed
			next = worlds[max(len(worlds)-2, 0)]
		}
		if rnd.IntN(3) > 0 || follow == LagNone {
			worlds = append(worlds, next)
			r.server.change(next)
		}
		switch behind := len(worlds) - 1 - published; {
		case behind == 0, follow == LagMuch && rnd.IntN(6) > 0:
			continue
		case follow == LagNone:
			published += behind
		default:
			published += rnd.IntN(behind + 1)
		}
		r.server.publish(worlds[published])
	}
}

// breakThings has the document or a group fail now and then, for a while.
func (r *run) breakThings(rnd *rand.Rand) {
	for r.wait(rnd, 6*r.pace) {
		group := rnd.IntN(len(groupNames)+2) - 2
		heal := r.server.fail(max(group, theDocument), faults()[rnd.IntN(len(faults()))])
		r.wait(rnd, 2*r.pace)
		heal()
	}
}

func faults() []fakeapi.Fault {
	return []fakeapi.Fault{
		fakeapi.Status(http.StatusServiceUnavailable, 0),
		fakeapi.Status(http.StatusInternalServerError, 0),
		fakeapi.Status(http.StatusForbidden, 0),
		fakeapi.StatusText(http.StatusBadGateway),
		fakeapi.StatusText(http.StatusNotFound),
		fakeapi.Refused(), fakeapi.Timeout(), fakeapi.Truncated(), fakeapi.LoginPage(),
	}
}

func (r *run) client(n int, rnd *rand.Rand) {
	for range opsPerClient {
		r.wait(rnd, r.pace)
		r.call(randomOp(n, rnd, r.history.Peer))
	}
}

// call performs an operation and notes when it began, when it ended and how.
func (r *run) call(o *Op) {
	h := r.history
	h.note(func(now Stamp) {
		o.Call = now
		h.Ops = append(h.Ops, o)
	})
	defer h.note(func(now Stamp) { o.Return = now })
	defer func() {
		if what := recover(); what != nil {
			o.Panicked, o.Err = true, fmt.Errorf("panic: %v", what)
		}
	}()
	perform(r.mapper, o)
}

func perform(m Mapper, o *Op) {
	gk := schema.GroupKind{Group: o.Group, Kind: kindNames[o.Name]}
	switch o.Kind {
	case OpReset:
		m.Reset()
	case OpResetGroup:
		m.ResetGroup(o.Group)
	case OpMapping:
		mapping, err := m.RESTMapping(gk, o.Versions...)
		o.answered([]*meta.RESTMapping{mapping}, err)
	case OpMappings:
		o.answered(m.RESTMappings(gk, o.Versions...))
	case OpKindFor:
		gr := schema.GroupVersionResource{Group: o.Group, Resource: resourceName(o.Name)}
		if len(o.Versions) > 0 {
			gr.Version = o.Versions[0]
		}
		kind, err := m.KindFor(gr)
		if o.failed(err) {
			return
		}
		o.found(kind, nil)
	}
}

func (o *Op) answered(mappings []*meta.RESTMapping, err error) {
	if o.failed(err) {
		return
	}
	for _, mapping := range mappings {
		o.found(mapping.GroupVersionKind, mapping)
	}
}

func (o *Op) failed(err error) bool {
	o.NoMatch = meta.IsNoMatchError(err)
	if !o.NoMatch {
		o.Err = err
	}
	return err != nil
}

// found notes an answer. A name that was never served is an error of the mapper.
func (o *Op) found(kind schema.GroupVersionKind, mapping *meta.RESTMapping) {
	f := Found{}
	var errs [3]error
	f.Group, errs[0] = index(groupNames[:], kind.Group)
	f.Version, errs[1] = index(versionNames[:], kind.Version)
	f.Kind, errs[2] = index(kindNames[:], kind.Kind)
	for _, err := range errs {
		if err != nil {
			o.Err = fmt.Errorf("answer %s: %w", kind, err)
			return
		}
	}
	if mapping != nil {
		f.Scoped, f.Namespaced = true, mapping.Scope.Name() == meta.RESTScopeNameNamespace
	}
	o.Found = append(o.Found, f)
}

// randomOp picks a call. Kinds of one group are asked for most, so that there are hits.
func randomOp(client int, rnd *rand.Rand, peer bool) *Op {
	o := &Op{Client: client, Name: rnd.IntN(2), Group: groupNames[[...]int{0, 0, 0, 1, 3, 3}[rnd.IntN(6)]]}
	if rnd.IntN(15) == 0 {
		o.Group, o.Name = groupNames[groupBatch], kindJob
	}
	if peer && rnd.IntN(5) == 0 {
		o.Group, o.Name = groupNames[groupBatch], rnd.IntN(2) // kindOfPeer, or one that is absent
	}
	versions := rnd.Perm(len(versionNames))
	switch n := rnd.IntN(20); {
	case n < 2:
		o.Kind = OpReset
	case n < 4:
		o.Kind = OpResetGroup
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
