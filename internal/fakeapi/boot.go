// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"net/http"
	"slices"
)

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
		return textResponse(http.StatusInternalServerError, "[-]poststarthook/crd-informer-synced failed: reason withheld\nreadyz check failed\n"), nil
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
