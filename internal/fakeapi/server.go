// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"
)

// A Server is one API server. All its methods may be called at any time.
type Server struct {
	mu       sync.Mutex // guards what is below; never held while answering
	world    *world
	pasts    [parts]past // of the parts that lag
	booting  *Booting    // nil: it has started
	latency  time.Duration
	rules    []*rule // the newest last
	requests []*record
	watches  []*watch // some of them may have ended
}

// New makes a server that sends the forms of Aggregated. The slices inside groups belong
// to the server from then on, as do those that its methods get.
func New(groups ...Group) *Server {
	return &Server{world: newWorld(groups, nil, Aggregated())}
}

// SetForms changes the forms that the server sends, as an upgrade or a proxy would.
func (s *Server) SetForms(forms Forms) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.world = newWorld(s.world.groups, s.world.peers, forms)
	for i := range s.pasts {
		s.pasts[i].speak(forms)
	}
}

// SetLatency makes each request take d, faults included.
func (s *Server) SetLatency(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latency = d
}

// SetGroups replaces all that is served.
func (s *Server) SetGroups(groups ...Group) {
	s.change(func([]Group) []Group { return groups })
}

// Groups is what is served. The slices in it are the server's.
func (s *Server) Groups() []Group {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.world.groups)
}

// SetPeers sets versions that only another API server of the cluster serves. From 1.36
// (KEP-4020) they are in the aggregated documents, except for requests with profile=nopeer, and
// not at their own paths nor in the lists.
func (s *Server) SetPeers(groups ...Group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setWorld(newWorld(s.world.groups, groups, s.world.forms))
}

// Put adds a group at the end, or replaces the one of that name in its place.
func (s *Server) Put(group Group) {
	s.change(func(groups []Group) []Group { return put(groups, group) })
}

// Remove removes a group, if there is one.
func (s *Server) Remove(group string) {
	s.change(func(groups []Group) []Group { return remove(groups, group) })
}

// PutVersion adds a version at the end of its group, or replaces the one of
// that name in its place. It adds the group if need be.
func (s *Server) PutVersion(group string, version Version) {
	s.changeVersions(group, func(versions []Version) []Version { return put(versions, version) })
}

// RemoveVersion removes a version, if there is one, and with the last version
// its group.
func (s *Server) RemoveVersion(group, version string) {
	s.changeVersions(group, func(versions []Version) []Version { return remove(versions, version) })
}

func (s *Server) change(edit func([]Group) []Group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setWorld(newWorld(edit(s.world.groups), s.world.peers, s.world.forms))
}

func (s *Server) changeVersions(name string, edit func([]Version) []Version) {
	s.change(func(groups []Group) []Group {
		group := Group{Name: name}
		if i := find(groups, name); i >= 0 {
			group = groups[i]
		}
		if group.Versions = edit(group.Versions); len(group.Versions) == 0 {
			return remove(groups, name)
		}
		return put(groups, group)
	})
}

type named interface{ name() string }

func (g Group) name() string   { return g.Name }
func (v Version) name() string { return v.Name }

// put and remove leave the slice that they are given as it is: an older world,
// or another server, may be reading it.
func put[T named](list []T, item T) []T {
	list = slices.Clone(list)
	if i := find(list, item.name()); i >= 0 {
		list[i] = item
		return list
	}
	return append(list, item)
}

func remove[T named](list []T, unwanted string) []T {
	return slices.DeleteFunc(slices.Clone(list), func(item T) bool { return item.name() == unwanted })
}

func find[T named](list []T, wanted string) int {
	return slices.IndexFunc(list, func(item T) bool { return item.name() == wanted })
}

// answer answers every request, in memory and over HTTP. What the answer depends on is looked
// up when the request arrives.
func (s *Server) answer(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	world, booting, latency, rules := s.seenBy(req), s.booting, s.latency, s.rules
	s.mu.Unlock()
	fault := pickFault(rules, req) // not under the lock: it calls the test's code
	r := s.note(req, fault)
	if err := sleep(req.Context(), latency); err != nil {
		return nil, err
	}
	respond := world.respond
	switch {
	case fault != nil:
		respond = func(req *http.Request) (*http.Response, error) { return fault.respond(exchange{req, world}) }
	case booting != nil:
		respond = func(req *http.Request) (*http.Response, error) { return booting.respond(req, world) }
	}
	resp, err := respond(req)
	if err != nil {
		return nil, err
	}
	s.complete(r, resp)
	if w, ok := resp.Body.(*watch); ok {
		s.mu.Lock()
		s.watches = append(s.open(), w)
		s.mu.Unlock()
	}
	resp.Request = req
	resp.Body = countingBody{resp.Body, &r.read}
	return resp, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
