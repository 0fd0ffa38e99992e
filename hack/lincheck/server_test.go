// SPDX-License-Identifier: Apache-2.0

package lincheck

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// server is an http.RoundTripper: two fake servers, one of which is behind, and what goes
// wrong on the way. The one that is behind answers for the document. If there are two replicas,
// either answers for everything.
type server struct {
	history *History
	latency time.Duration // at most, on each way
	slow    string        // a path that takes four times as long
	forms   fakeapi.Forms

	mu     sync.Mutex // guards what is below, and is held while an answer is made
	world  World
	behind World // what the document says
	live   *fakeapi.Server
	doc    *fakeapi.Server
	faults []*Fault
	counts map[string]uint64 // requests for a path so far
}

func newServer(h *History, latency time.Duration, first World) *server {
	s := &server{
		history: h, latency: latency, forms: fakeapi.Aggregated(),
		live: fakeapi.New(), doc: fakeapi.New(),
		counts: map[string]uint64{},
	}
	if h.Legacy {
		s.forms = fakeapi.Legacy()
	}
	s.forms.StatusNotFound = h.Seed%4 < 2
	if h.NoIDs {
		s.forms.AuditIDs = fakeapi.AuditNone
	}
	s.live.SetForms(s.forms)
	s.doc.SetForms(s.forms)
	s.change(first)
	s.publish(first)
	return s
}

// change replaces what is served live, and publish what the document says.
func (s *server) change(w World)  { s.set(&s.world, s.live, &s.history.Worlds, w) }
func (s *server) publish(w World) { s.set(&s.behind, s.doc, &s.history.Docs, w) }

func (s *server) set(world *World, server *fakeapi.Server, changes *[]Change, w World) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*world = w
	w.serveAt(server, server == s.doc)
	s.history.note(func(now Stamp) { *changes = append(*changes, Change{now, w}) })
}

// fail begins a fault and returns what ends it.
func (s *server) fail(group, version int, fault fakeapi.Fault) (heal func()) {
	f := &Fault{Group: group, Version: version, Kind: fault}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history.note(func(now Stamp) {
		f.From = now
		s.history.Faults = append(s.history.Faults, f)
	})
	s.faults = append(s.faults, f)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.history.note(func(now Stamp) { f.Until = now })
		s.faults = slices.DeleteFunc(s.faults, func(other *Fault) bool { return other == f })
	}
}

// RoundTrip answers with the truth of a moment between the request's two ways.
func (s *server) RoundTrip(req *http.Request) (*http.Response, error) {
	r, rnd := s.arrive(req)
	resp, err := s.answer(req, r, rnd)
	s.history.note(func(now Stamp) {
		r.End, r.Err = now, err
		if resp != nil {
			r.Code = resp.StatusCode
		}
	})
	return resp, err
}

func (s *server) arrive(req *http.Request) (*Request, *rand.Rand) {
	r := newRequest(req.URL.Path)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[r.Path]++
	s.history.note(func(now Stamp) {
		r.Start = now
		s.history.Requests = append(s.history.Requests, r)
	})
	name := fnv.New64()
	_, _ = name.Write([]byte(r.Path)) // which never fails
	return r, rand.New(rand.NewPCG(s.history.Seed, name.Sum64()+s.counts[r.Path]))
}

func (s *server) answer(req *http.Request, r *Request, rnd *rand.Rand) (*http.Response, error) {
	latency := s.latency
	if r.Path == s.slow {
		latency *= 4
	}
	if err := sleep(req.Context(), upTo(rnd, latency)); err != nil {
		return nil, err
	}
	resp, err := s.route(r, rnd).RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if err := sleep(req.Context(), upTo(rnd, latency)); err != nil {
		_ = resp.Body.Close() // it is in memory
		return nil, err
	}
	return resp, nil
}

// route picks who answers at this moment. What a server answers is decided when
// it is asked, which is in the same instant of virtual time.
func (s *server) route(r *Request, rnd *rand.Rand) http.RoundTripper {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.World = s.world
	target := s.live
	behind := !r.live()
	if s.history.Replicas {
		behind = rnd.IntN(2) == 0
	}
	if behind {
		r.World, target = s.behind, s.doc
	}
	for _, f := range s.faults {
		if f.meets(r) {
			r.Fault = f
			target = fakeapi.New()
			r.World.serveAt(target, !r.live())
			target.SetForms(s.forms)
			target.SetFault(fakeapi.All(), f.Kind)
		}
	}
	return target.Client().Transport
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

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
