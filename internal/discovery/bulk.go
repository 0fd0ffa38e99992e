// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/freshmapper/freshmapper/internal/share"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// half is what was read from one of the two bulk paths.
type half struct {
	groups []*snapshot.Group
	key    share.Key // of the bytes of the groups, if mappers share them; else zero
	etag   string    // empty if the server sent none
	caller share.Key // of the credentials that it was sent to

	hasResources bool // this is the aggregated document, which has the resources of every version
	keepsLists   bool // it was read to keep resource lists: no other mapper shares it

	changes int // how many reads in a row were made with other credentials than the one before
}

// aggregated reports whether the resources of every version are there. If there is no
// version, they are.
func (h *half) aggregated() bool {
	return h.hasResources || len(h.groups) == 0
}

// acceptBulk asks for the aggregated document, or for the plain list if the server has
// none. v2 comes before v2beta1 (servers 1.26 to 1.29). Protobuf comes before JSON,
// because it has half the size and decodes in a fraction of the time. Servers take the
// first form that they know.
const acceptBulk = "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
	"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
	"application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList," +
	"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList," +
	"application/json"

// acceptJSON asks for the same without protobuf, as client-go does, for servers that ignore the parameters.
const acceptJSON = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
	"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList," +
	"application/json"

const (
	corePath  = "/api"
	namedPath = "/apis"
)

// Document reads the groups of the server in its order: the core group at /api, the
// others at /apis. If the server has the aggregated document, the versions come with
// their tables; otherwise they are only listed. The server does not send a half that has
// not changed since the last call. If neither half has changed, the result is that of the
// last call. One half may be empty: a server may have the core group alone, or all others. Document
// may not be called concurrently.
func (c *Client) Document(ctx context.Context) (*snapshot.Document, error) {
	core, coreAudited, err := c.readHalf(ctx, corePath, c.core)
	claimed := err
	switch {
	case errors.Is(err, errClaimed):
		core = &half{}
	case err != nil:
		return nil, err
	}
	named, namedAudited, err := c.readHalf(ctx, namedPath, c.named)
	if err != nil {
		return nil, err
	}
	if claimed != nil && namedAudited {
		return nil, claimed
	}
	if len(core.groups)+len(named.groups) == 0 {
		return nil, &Error{Path: namedPath, Code: http.StatusOK, Err: errors.New("the server lists no API groups, and none at " + corePath)}
	}
	c.read.Store(true)
	c.audited.Store(nil)
	if coreAudited || namedAudited {
		now := time.Now()
		c.audited.Store(&now)
	}
	if core != c.core || named != c.named {
		c.core, c.named, c.document = core, named, documentOf(core, named, c.document)
		// No name comes twice: then the halves are parts of the document, and take no memory of their own.
		if all, n := c.document.Groups(), len(core.groups); len(all) == n+len(named.groups) {
			core.groups, named.groups = all[:n:n], all[n:]
		}
	}
	return c.document, nil
}

// documentOf joins the core group with the named ones. last is the previous document, or nil.
// Mappers with the same groups come to hold the same document.
func documentOf(core, named *half, last *snapshot.Document) *snapshot.Document {
	aggregated := core.aggregated() && named.aggregated()
	next := func() (*snapshot.Document, error) {
		return last.Successor(merge(slices.Concat(core.groups, named.groups)), aggregated), nil
	}
	if !aggregated || core.keepsLists || named.keepsLists {
		document, _ := next()
		return document
	}
	document, _ := share.Documents.Get(share.KeyOf("halves", slices.Concat(core.key[:], named.key[:])), next)
	return document
}

// steadyAfter is how many reads in a row must have had other credentials until none is conditional: the 304 would
// prove nothing, and all be read again. The first read with the same as before ends that.
const steadyAfter = 2

// readHalf reads one of the two paths. It returns last if the document has not changed, and reports whether the
// answer had an Audit-Id.
//
// A 304 proves nothing in two cases. Its own ETag may be another one: then a gateway
// speaks of a document that it has, and not of last. And the credentials may be others
// than those that last was sent to, because files and plugins bring new ones: a server may
// give documents of different content the same ETag.
func (c *Client) readHalf(ctx context.Context, path string, last *half) (read *half, audited bool, err error) {
	unproven, protobuf := false, false
	keepLists := c.keepLists.Load()
	if keepLists && !last.keepsLists {
		last = &half{caller: last.caller, changes: last.changes} // a 304 would bring no resource lists
	}
	r := request{path: path, accept: acceptBulk, etag: last.etag}
	if c.jsonOnly || keepLists {
		r.accept = acceptJSON
	}
	if last.changes >= steadyAfter {
		r.etag = ""
	}
	read, err = get(ctx, c, r, func(seen *exchange) (*half, error) {
		audited = seen.audited
		if seen.code == http.StatusNotModified {
			unproven = seen.etag != "" && seen.etag != last.etag || seen.caller != last.caller
			if !unproven {
				last.changes = 0
			}
			return last, nil
		}
		protobuf = bytes.HasPrefix(seen.body, []byte(protobufMagic))
		read, err := decodeBulk(seen.body, path, keepLists)
		if err == nil {
			read.etag, read.caller, read.keepsLists = seen.etag, seen.caller, keepLists
			if first := last.caller == (share.Key{}); !first && seen.caller != last.caller {
				read.changes = last.changes + 1
			}
		}
		return read, err
	})
	switch {
	case unproven:
		return c.readHalf(ctx, path, &half{caller: last.caller, changes: last.changes})
	case err != nil && protobuf && !c.jsonOnly:
		c.jsonOnly = true
		read, audited, err = c.readHalf(ctx, path, &half{caller: last.caller, changes: last.changes})
		c.jsonOnly = err == nil
	case path == corePath && errors.Is(err, errNotServed) && !errors.Is(err, errClaimed):
		// Servers that only extend another one, behind an APIService, have no core group. All
		// servers have /apis.
		return &half{}, true, nil
	}
	return read, audited, err
}

// merge joins groups of the same name, which no server should send, into the first of them.
func merge(groups []*snapshot.Group) []*snapshot.Group {
	merged := make([]*snapshot.Group, 0, len(groups))
	place := make(map[string]int, len(groups))
	joined := map[int]*builder{}
	for _, g := range groups {
		i, again := place[g.Name()]
		if !again {
			place[g.Name()] = len(merged)
			merged = append(merged, g)
			continue
		}
		if joined[i] == nil {
			joined[i] = &builder{name: g.Name(), preferred: merged[i].Preferred(), versions: slices.Clone(merged[i].Versions())}
		}
		for _, v := range g.Versions() {
			joined[i].add(v)
		}
	}
	for i, b := range joined {
		merged[i] = b.group()
	}
	return merged
}
