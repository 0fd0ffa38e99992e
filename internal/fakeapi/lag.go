// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"math"
	"net/http"
	"slices"
	"time"
)

// A Part is a part of the discovery that a real server makes from other documents, so
// that it may be behind.
type Part int

const (
	PartDocument Part = iota // /api and /apis in aggregated form
	PartLists                // /api and /apis in legacy form, and /apis/<group>
	parts
)

// Forever is the lag of a part that does not change any more.
const Forever time.Duration = math.MaxInt64

// SetLag makes a part lag: from now on it shows what the server served that long ago.
// What was served before SetLag is not remembered: the part stands still until the first
// change after SetLag is old enough. ETags and 304s belong to what is shown. 0 ends the
// lag.
func (s *Server) SetLag(part Part, by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if by == 0 {
		s.pasts[part] = past{}
		return
	}
	if s.pasts[part].by == 0 {
		s.pasts[part].worlds = []moment{{world: s.world}}
	}
	s.pasts[part].by = by
}

// A past is what a part that lags can show. It forgets nothing: the lag may change.
type past struct {
	by     time.Duration // 0: no lag
	worlds []moment      // the oldest first
}

type moment struct {
	begin time.Time
	world *world
}

// setWorld is the only way to change what is served. s.mu is held.
func (s *Server) setWorld(w *world) {
	s.world = w
	for i := range s.pasts {
		if p := &s.pasts[i]; p.by > 0 {
			p.worlds = append(p.worlds, moment{time.Now(), w})
		}
	}
}

// speak makes the worlds of the past speak other forms. s.mu is held.
func (p *past) speak(forms Forms) {
	for i := range p.worlds {
		p.worlds[i].world = newWorld(p.worlds[i].world.groups, p.worlds[i].world.peers, forms)
	}
}

// seenBy returns the world that a request sees. s.mu is held.
func (s *Server) seenBy(req *http.Request) *world {
	if !slices.ContainsFunc(s.pasts[:], func(p past) bool { return p.by > 0 }) {
		return s.world // without cost: benchmarks measure this server as well
	}
	part, ok := s.world.part(req)
	if !ok || s.pasts[part].by == 0 {
		return s.world
	}
	return s.pasts[part].world(time.Now())
}

func (p *past) world(now time.Time) *world {
	shown := p.worlds[0].world
	for _, m := range p.worlds[1:] {
		if now.Sub(m.begin) < p.by {
			break
		}
		shown = m.world
	}
	return shown
}

// part returns the part that a request is for; single versions belong to none.
func (w *world) part(req *http.Request) (part Part, ok bool) {
	t, ok := parsePath(req.URL.Path)
	if !ok || t.version != "" {
		return 0, false
	}
	if f, _ := w.forms.negotiate(req.Header.Get("Accept"), t.root()); f.aggregated() {
		return PartDocument, true
	}
	return PartLists, true
}

// Booting describes a server that has just started and knows only a part of its API,
// as a kube-apiserver that has not read its custom resources yet.
type Booting struct {
	// Unknown groups are not in /api and /apis. These are still answered with 200.
	Unknown []string

	// Answering reports whether the paths of unknown groups are answered truly. Else
	// they are 503, with Retry-After: 5.
	Answering bool

	// Absent reports whether these paths are 404. On a real server, those of custom
	// resources are 404 after it has read the CustomResourceDefinitions, which ends the
	// 503, and before it has made their documents: for up to 100 ms, or longer on a busy
	// machine.
	Absent bool
}

// Boot makes the server boot until ready is called. Meanwhile /readyz is 500, and any
// other path that would be 404 is 503.
func (s *Server) Boot(b Booting) (ready func()) {
	set := func(booting *Booting) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.booting = booting
	}
	set(&b)
	return func() { set(nil) }
}

const (
	readyPath  = "/readyz"
	bootsAgain = 5 // seconds
)

// respond answers as w does, as far as a booting server can.
func (b *Booting) respond(req *http.Request, w *world) (*http.Response, error) {
	return w.audited(b.answer(req, w))
}

func (b *Booting) answer(req *http.Request, w *world) (*http.Response, error) {
	t, ok := parsePath(req.URL.Path)
	switch {
	case req.URL.Path == readyPath:
		return textResponse(
			http.StatusInternalServerError,
			"[-]poststarthook/crd-informer-synced failed: reason withheld\nreadyz check failed\n",
		), nil
	case ok && t.root():
		return w.without(b.Unknown).answer(req)
	case ok && b.Absent && slices.Contains(b.Unknown, t.group):
		return w.notFound()
	case ok && !b.Answering && slices.Contains(b.Unknown, t.group):
		return statusResponse(http.StatusServiceUnavailable, bootsAgain)
	}
	resp, err := w.answer(req)
	if err == nil && resp.StatusCode == http.StatusNotFound {
		return statusResponse(http.StatusServiceUnavailable, bootsAgain)
	}
	return resp, err
}

// without returns the world without those groups.
func (w *world) without(groups []string) *world {
	rest := slices.DeleteFunc(slices.Clone(w.groups), func(g Group) bool { return slices.Contains(groups, g.Name) })
	return newWorld(rest, w.peers, w.forms)
}
