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

// SetPeers sets versions that only another API server of the cluster serves. From 1.36
// (KEP-4020) they are in the aggregated documents, but for who asks for profile=nopeer, and
// not at their own paths nor in the lists.
func (s *Server) SetPeers(groups ...Group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setWorld(newWorld(s.world.groups, groups, s.world.forms))
}

// Put adds a group at the end, or replaces the one of that name in its place.
func (s *Server) Put(group Group) {
	s.change(func(groups []Group) []Group { return put(groups, group, Group.name) })
}

// Remove removes a group, if there is one.
func (s *Server) Remove(group string) {
	s.change(func(groups []Group) []Group { return remove(groups, group, Group.name) })
}

// PutVersion adds a version at the end of its group, or replaces the one of
// that name in its place. It adds the group if need be.
func (s *Server) PutVersion(group string, version Version) {
	s.changeVersions(group, func(versions []Version) []Version { return put(versions, version, Version.name) })
}

// RemoveVersion removes a version, if there is one, and with the last version
// its group.
func (s *Server) RemoveVersion(group, version string) {
	s.changeVersions(group, func(versions []Version) []Version { return remove(versions, version, Version.name) })
}

func (s *Server) change(edit func([]Group) []Group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setWorld(newWorld(edit(s.world.groups), s.world.peers, s.world.forms))
}

func (s *Server) changeVersions(name string, edit func([]Version) []Version) {
	s.change(func(groups []Group) []Group {
		group := Group{Name: name}
		if i := find(groups, name, Group.name); i >= 0 {
			group = groups[i]
		}
		group.Versions = edit(group.Versions)
		if len(group.Versions) == 0 {
			return remove(groups, name, Group.name)
		}
		return put(groups, group, Group.name)
	})
}

func (g Group) name() string   { return g.Name }
func (v Version) name() string { return v.Name }

// put and remove leave the slice that they are given as it is: an older world,
// or another server, may be reading it.
func put[T any](list []T, item T, name func(T) string) []T {
	list = slices.Clone(list)
	if i := find(list, name(item), name); i >= 0 {
		list[i] = item
		return list
	}
	return append(list, item)
}

func remove[T any](list []T, unwanted string, name func(T) string) []T {
	return slices.DeleteFunc(slices.Clone(list), func(item T) bool { return name(item) == unwanted })
}

func find[T any](list []T, wanted string, name func(T) string) int {
	return slices.IndexFunc(list, func(item T) bool { return name(item) == wanted })
}

// answer answers every request, in memory and over HTTP.
func (s *Server) answer(req *http.Request) (*http.Response, error) {
	arrival := s.arrive(req)
	resp, err := arrival.respond(req)
	s.complete(arrival.record, resp)
	if err != nil {
		return nil, err
	}
	resp.Request = req
	resp.Body = countingBody{resp.Body, &arrival.record.read}
	return resp, nil
}

// An arrival is everything that the answer to a request depends on.
type arrival struct {
	record  *record
	world   *world
	booting *Booting // nil: the server has started
	fault   *Fault   // nil: none
	latency time.Duration
}

func (s *Server) arrive(req *http.Request) arrival {
	s.mu.Lock()
	world, booting, latency, rules := s.seenBy(req), s.booting, s.latency, s.rules
	s.mu.Unlock()

	fault := pickFault(rules, req) // not under the lock: it calls the test's code
	r := newRecord(req, fault)
	s.note(r)
	return arrival{r, world, booting, fault, latency}
}

func (a arrival) respond(req *http.Request) (*http.Response, error) {
	if err := sleep(req.Context(), a.latency); err != nil {
		return nil, err
	}
	switch {
	case a.fault != nil:
		return a.fault.respond(exchange{req, a.world})
	case a.booting != nil:
		return a.booting.respond(req, a.world)
	default:
		return a.world.respond(req)
	}
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
