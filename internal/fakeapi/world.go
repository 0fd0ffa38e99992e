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

// A Group is an API group. The core group's name is empty.
type Group struct {
	Name      string
	Versions  []Version // in the order in which the server lists them
	Preferred string    // only in legacy documents; defaults to the first version
}

// A Version is one version of a group.
type Version struct {
	Name      string
	Resources []Resource

	// Stale marks a version whose APIService is down: Stale in the aggregated
	// document, 503 at its own path, an ordinary entry in the legacy list. If the
	// service answers 503, the real aggregated document drops the resources; if it
	// fails otherwise, the document keeps the last ones. The test may clear Resources.
	Stale bool

	// Claims is the group-version that the version's own list says it is of. Extension servers name
	// another version of their group there (kubevirt#10899). Defaults to the true one.
	Claims string
}

// A Resource is served as it is: nothing is filled in, because real servers leave out
// singular names, too.
type Resource struct {
	Name, Singular, Kind   string
	Namespaced             bool
	ShortNames, Categories []string
	Verbs                  []string // defaults to those of a custom resource
	Subresources           []string // such as "status"; "scale" is of kind autoscaling/v1 Scale
	Objects                []Object

	// NoKind makes a parent that exists only for its subresources. Its aggregated entry
	// has no responseKind, and legacy lists do not have it.
	NoKind bool
}

func (g Group) preferred() string {
	if g.Preferred == "" && len(g.Versions) > 0 {
		return g.Versions[0].Name
	}
	return g.Preferred
}

// A world is what the server serves between two changes. It is immutable, except the
// documents, which it writes when they are first requested.
type world struct {
	groups []Group
	peers  []Group // what only another API server serves; see SetPeers
	forms  Forms
	index  map[string]int // a group's name to its place in groups

	mu        sync.Mutex // held while a document is written
	documents map[documentKey]document
}

type documentKey struct {
	target target
	form   form
}

type document struct {
	body []byte
	etag string // only of the form that etags are made of
	err  error
}

// etagForm is the form whose bytes make the ETag of all aggregated forms.
func etagForm() form { return form{version: "v2", protobuf: true} }

func newWorld(groups, peers []Group, forms Forms) *world {
	w := &world{
		groups:    groups,
		peers:     peers,
		forms:     forms,
		index:     make(map[string]int, len(groups)),
		documents: map[documentKey]document{},
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
	return w.audited(w.answer(req))
}

// audited is an answer of the server's own.
func (w *world) audited(resp *http.Response, err error) (*http.Response, error) {
	if err == nil {
		w.forms.AuditIDs.audit(resp)
	}
	return resp, err
}

// notFound answers for a path that nothing serves.
func (w *world) notFound() (*http.Response, error) {
	if w.forms.StatusNotFound {
		return statusResponse(http.StatusNotFound, 0)
	}
	return textResponse(http.StatusNotFound, "404 page not found\n"), nil
}

func (w *world) answer(req *http.Request) (*http.Response, error) {
	if req.URL.Path == readyPath {
		return textResponse(http.StatusOK, "ok"), nil
	}
	a, isObject := parseAddress(req.URL.Path)
	t, ok := parsePath(req.URL.Path)
	if isObject {
		t, ok = a.target, true
	}
	if !ok || !w.hasGroup(t) {
		return w.notFound()
	}
	if t.version != "" {
		version, ok := w.version(t)
		switch {
		case !ok:
			return statusResponse(http.StatusNotFound, 0)
		case version.Stale:
			return textResponse(http.StatusServiceUnavailable, "service unavailable\n"), nil
		case isObject:
			return w.answerObjects(req, a)
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
		etag = w.document(t, etagForm()).etag
	}
	var d document
	resp := response(http.StatusNotModified, "", nil)
	if etag == "" || etag != ifNoneMatch {
		d = w.document(t, f)
		resp = response(http.StatusOK, f.contentType(), d.body)
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
	return resp, d.err
}

// document writes the document of a target once for each form. The ETag of a root depends on
// the content alone, as on the real server.
func (w *world) document(t target, f form) document {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := documentKey{t, f}
	d, ok := w.documents[key]
	if !ok {
		d.body, d.err = encode(w.object(t, f.version), f.protobuf)
		if f == etagForm() {
			d.etag = fmt.Sprintf(`"%X"`, sha512.Sum512(d.body))
		}
		w.documents[key] = d
	}
	return d
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
		if i := find(all, peer.Name); i >= 0 {
			group = all[i]
		}
		group.Versions = slices.Concat(group.Versions, peer.Versions)
		all = put(all, group)
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
	versions := w.group(t.group).Versions
	if i := find(versions, t.version); i >= 0 {
		return versions[i], true
	}
	return Version{Name: t.version}, false
}
