// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/freshmapper/freshmapper/internal/share"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// half is what was read from one of the two bulk paths.
type half struct {
	share.Document
	etag   string    // empty if the server sent none
	caller share.Key // of the credentials that it was sent to
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

const (
	corePath  = "/api"
	namedPath = "/apis"
)

// Document reads the groups of the server in its order: the core group at /api, the
// others at /apis. If the server has the aggregated document, the versions come with
// their tables; otherwise they are only listed. The server does not send a half that has
// not changed since the last call. If neither half has changed, the result is that of the
// last call. Document may not be called concurrently.
func (c *Client) Document(ctx context.Context) (*snapshot.List, error) {
	core, err := c.readHalf(ctx, corePath, c.core)
	if err != nil {
		return nil, err
	}
	named, err := c.readHalf(ctx, namedPath, c.named)
	if err != nil {
		return nil, err
	}
	if core != c.core || named != c.named {
		c.core, c.named, c.list = core, named, listOf(core, named, c.list)
	}
	return c.list, nil
}

// listOf joins the core group with the named ones. last is the previous list, or nil. If
// other mappers hold equal groups, the halves come to hold the same ones.
func listOf(core, named *half, last *snapshot.List) *snapshot.List {
	groups := slices.Concat(core.Groups, named.Groups)
	aggregated := core.Aggregated() && named.Aggregated()
	if aggregated {
		if list := share.List(groups, share.KeyOfAll(core.Key, named.Key), last); list.Unique() {
			all := list.Groups()
			core.Groups, named.Groups = all[:len(core.Groups)], all[len(core.Groups):]
			return list
		}
	}
	return last.Next(merge(groups), aggregated)
}

// readHalf reads one of the two paths. It returns last if the document has not changed.
//
// A 304 proves nothing in two cases. Its own ETag may be another one: then a gateway
// speaks of a document that it has, and not of last. And the credentials may be others
// than those that last was sent to, because files and plugins bring new ones: a server may
// give documents of different content the same ETag.
func (c *Client) readHalf(ctx context.Context, path string, last *half) (*half, error) {
	unproven := false
	r := request{path: path, accept: acceptBulk, etag: last.etag}
	read, err := get(ctx, c, r, func(seen *exchange) (*half, error) {
		if seen.code == http.StatusNotModified {
			unproven = seen.etag != "" && seen.etag != last.etag || seen.caller != last.caller
			return last, nil
		}
		decoded, err := decodeBulk(seen.body, path)
		if err != nil {
			return nil, err
		}
		return &half{*decoded, seen.etag, seen.caller}, nil
	})
	switch {
	case unproven:
		return c.readHalf(ctx, path, &half{})
	case path == corePath && errors.Is(err, errNotServed):
		// Servers that only extend another one, behind an APIService, have no core group. All
		// servers have /apis.
		return &half{}, nil
	}
	return read, err
}

// merge joins groups of the same name, which no server should send, into the first of them.
func merge(groups []*snapshot.Group) []*snapshot.Group {
	parts := make(map[string][]*snapshot.Group, len(groups))
	for _, g := range groups {
		parts[g.Name()] = append(parts[g.Name()], g)
	}
	merged := make([]*snapshot.Group, 0, len(parts))
	for _, g := range groups {
		if all := parts[g.Name()]; all != nil {
			merged = append(merged, join(all))
			delete(parts, g.Name())
		}
	}
	return merged
}

func join(groups []*snapshot.Group) *snapshot.Group {
	if len(groups) == 1 {
		return groups[0]
	}
	b := builder{name: groups[0].Name(), preferred: groups[0].Preferred()}
	for _, g := range groups {
		for _, v := range g.Versions() {
			b.add(v)
		}
	}
	return b.group()
}
