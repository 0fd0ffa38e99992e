// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"crypto/sha512"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// A world is what the server serves between two changes. It is immutable, except the
// documents, which it writes when they are first requested.
type world struct {
	groups []Group
	peers  []Group // what only another API server serves; see SetPeers
	forms  Forms
	index  map[string]int // a group's name to its place in groups

	mu        sync.Mutex
	documents map[documentKey]func() document // each writes once
	etags     map[target]func() string
}

type documentKey struct {
	target target
	form   form
}

type document struct {
	body []byte
	err  error
}

func newWorld(groups, peers []Group, forms Forms) *world {
	w := &world{
		groups:    groups,
		peers:     peers,
		forms:     forms,
		index:     make(map[string]int, len(groups)),
		documents: map[documentKey]func() document{},
		etags:     map[target]func() string{},
	}
	for i, group := range groups {
		w.index[group.Name] = i
	}
	return w
}

// A target is what a path leads to: a root (/api, /apis), a group or a version.
type target struct {
	core           bool // below /api
	alone          bool // a root without the peers
	group, version string
}

func (t target) root() bool { return t.group == "" && t.version == "" }

func parsePath(path string) (target, bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if slices.Contains(parts[1:], "") {
		return target{}, false
	}
	switch prefix := parts[0]; {
	case prefix == "api" && len(parts) <= 2:
		parts = append(parts, "")
		return target{core: true, version: parts[1]}, true
	case prefix == "apis" && len(parts) <= 3:
		parts = append(parts, "", "")
		return target{group: parts[1], version: parts[2]}, true
	default:
		return target{}, false
	}
}

// respond answers a request as a healthy server does.
func (w *world) respond(req *http.Request) (*http.Response, error) {
	if req.URL.Path == readyPath {
		return textResponse(http.StatusOK, "ok"), nil
	}
	t, ok := parsePath(req.URL.Path)
	if !ok || !w.hasGroup(t) {
		return textResponse(http.StatusNotFound, "404 page not found\n"), nil
	}
	if t.version != "" {
		version, ok := w.version(t)
		switch {
		case !ok:
			return statusResponse(http.StatusNotFound, 0)
		case version.Stale:
			return textResponse(http.StatusServiceUnavailable, "service unavailable\n"), nil
		}
	}
	f, ok := w.forms.negotiate(req.Header.Get("Accept"), t.root())
	if !ok {
		return statusResponse(http.StatusNotAcceptable, 0)
	}
	t.alone = f.aggregated() && strings.Contains(req.Header.Get("Accept"), "profile=nopeer")
	return w.serve(t, f, req.Header.Get("If-None-Match"))
}

// serve answers with the document of a target that exists, or with 304.
func (w *world) serve(t target, f form, ifNoneMatch string) (*http.Response, error) {
	etag := ""
	if f.aggregated() && w.forms.ETag {
		etag = w.etag(t)
	}
	resp, err := w.documentResponse(t, f, etag != "" && etag == ifNoneMatch)
	if err != nil {
		return nil, err
	}
	if etag != "" {
		resp.Header.Set("ETag", etag)
	}
	if f.aggregated() && w.forms.Vary {
		resp.Header.Set("Vary", "Accept")
	}
	if f.aggregated() {
		resp.Header.Set("Cache-Control", "public")
	}
	return resp, nil
}

func (w *world) documentResponse(t target, f form, unchanged bool) (*http.Response, error) {
	if unchanged {
		return response(http.StatusNotModified, "", nil), nil
	}
	d := w.document(t, f)
	return response(http.StatusOK, f.contentType(), d.body), d.err
}

// document writes the document of a target once for each form.
func (w *world) document(t target, f form) document {
	key := documentKey{t, f}
	w.mu.Lock()
	write, ok := w.documents[key]
	if !ok {
		write = sync.OnceValue(func() document {
			body, err := encode(w.object(t, f.version), f.protobuf)
			return document{body, err}
		})
		w.documents[key] = write
	}
	w.mu.Unlock()
	return write()
}

// etag returns the ETag of a root. It depends on the content alone, and is the same for
// all aggregated forms, as on the real server.
func (w *world) etag(t target) string {
	w.mu.Lock()
	compute, ok := w.etags[t]
	if !ok {
		compute = sync.OnceValue(func() string {
			content := w.document(t, form{version: "v2", protobuf: true})
			return fmt.Sprintf(`"%X"`, sha512.Sum512(content.body))
		})
		w.etags[t] = compute
	}
	w.mu.Unlock()
	return compute()
}

// object returns the document of a target, in the given aggregated version, or legacy.
func (w *world) object(t target, aggregated string) object {
	switch {
	case aggregated != "" && !t.alone:
		return aggregatedList(w.withPeers().below(t), aggregated)
	case aggregated != "":
		return aggregatedList(w.below(t), aggregated)
	case t.root() && t.core:
		return legacyVersions(w.group(""))
	case t.root():
		return legacyGroupList(w.below(t))
	case t.version == "":
		group := legacyGroup(w.group(t.group))
		group.Kind, group.APIVersion = "APIGroup", "v1"
		return &group
	default:
		version, _ := w.version(t)
		return legacyResourceList(t.group, version)
	}
}

// withPeers is the world of all API servers together. What a peer serves stands behind what
// the server serves itself.
func (w *world) withPeers() *world {
	all := slices.Clone(w.groups)
	for _, peer := range w.peers {
		group := Group{Name: peer.Name}
		if i := find(all, peer.Name, Group.name); i >= 0 {
			group = all[i]
		}
		group.Versions = slices.Concat(group.Versions, peer.Versions)
		all = put(all, group, Group.name)
	}
	return newWorld(all, nil, w.forms)
}

// below lists the groups of a root: the core group of /api, all others of /apis.
func (w *world) below(root target) []Group {
	return slices.DeleteFunc(slices.Clone(w.groups), func(g Group) bool {
		return (g.Name == "") != root.core
	})
}

func (w *world) hasGroup(t target) bool {
	_, ok := w.index[t.group]
	return ok || t == target{}
}

// group returns the group of that name, or an empty one.
func (w *world) group(name string) Group {
	if i, ok := w.index[name]; ok {
		return w.groups[i]
	}
	return Group{Name: name}
}

func (w *world) version(t target) (Version, bool) {
	for _, version := range w.group(t.group).Versions {
		if version.Name == t.version {
			return version, true
		}
	}
	return Version{Name: t.version}, false
}
