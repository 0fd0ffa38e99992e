// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/share"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Bulk is a bulk document, shared with other mappers of this process.
type Bulk = share.Bulk

// acceptBulk asks for the aggregated document, v2 before v2beta1 (servers 1.26
// to 1.29) and protobuf, which is half the size and decodes in a fraction of the
// time, before JSON; and for the plain list where there is none. Servers take
// the first form that they know.
const acceptBulk = "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
	"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
	"application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList," +
	"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList," +
	"application/json"

const (
	corePath  = "/api"
	namedPath = "/apis"
)

// Bulk reads the groups of the server in its order, with two requests: /api and
// /apis. Where the server has the aggregated document the versions come with
// their tables, else they are only listed. Documents that have not changed since
// the last call are not sent, and if neither has, the result is the last one.
func (c *Client) Bulk(ctx context.Context) (*Bulk, error) {
	last := c.last
	if last == nil {
		last = share.Recall(c.server)
	}
	if last == nil {
		last = &Bulk{}
	}
	core, err := c.bulkDocument(ctx, corePath, &last.Core)
	if err != nil {
		return nil, err
	}
	named, err := c.bulkDocument(ctx, namedPath, &last.Named)
	if err != nil {
		return nil, err
	}
	c.last = last
	if core != &last.Core || named != &last.Named {
		c.last = newBulk(core, named)
	}
	share.Remember(c.server, c.last)
	return c.last, nil
}

// newBulk joins the core group with the named ones.
func newBulk(core, named *share.Document) *Bulk {
	b := &Bulk{Core: *core, Named: *named}
	groups := slices.Concat(core.Groups, named.Groups)
	keys := slices.Concat(core.Keys, named.Keys)
	aggregated := len(keys) == len(groups)
	if aggregated && !duplicates(groups) {
		b.List = share.List(groups, keys)
	} else {
		b.List = snapshot.NewList(merge(groups), aggregated)
	}
	return b
}

// bulkDocument reads one of the two paths. It returns last if that has not changed.
func (c *Client) bulkDocument(ctx context.Context, path string, last *share.Document) (*share.Document, error) {
	doc, err := c.get(ctx, path, schema.GroupVersion{}, acceptBulk, last.ETag)
	if errors.Is(err, errNotServed) {
		return notServed(path)
	}
	if err != nil {
		return nil, err
	}
	if doc.notModified {
		return last, nil
	}
	decoded, err := decodeBulk(doc.body, path)
	if err != nil {
		return nil, c.failure(path, schema.GroupVersion{}, http.StatusOK, err)
	}
	decoded.ETag = doc.etag
	return decoded, nil
}

// notServed tolerates that a server has no core group: those that only extend
// another one, behind an APIService, have none. All have /apis.
func notServed(path string) (*share.Document, error) {
	if path == corePath {
		return &share.Document{}, nil
	}
	return nil, &Error{Path: path, Code: http.StatusNotFound, Err: errors.New("the server answered 404 Not Found")}
}

func duplicates(groups []*snapshot.Group) bool {
	seen := make(map[string]bool, len(groups))
	for _, g := range groups {
		if seen[g.Name()] {
			return true
		}
		seen[g.Name()] = true
	}
	return false
}

// merge joins groups of the same name, which no server should send, into the first of them.
func merge(groups []*snapshot.Group) []*snapshot.Group {
	at := make(map[string]int, len(groups))
	merged := make([]*snapshot.Group, 0, len(groups))
	for _, g := range groups {
		i, ok := at[g.Name()]
		if !ok {
			at[g.Name()] = len(merged)
			merged = append(merged, g)
			continue
		}
		versions := mergeVersions(slices.Concat(merged[i].Versions(), g.Versions()))
		merged[i] = snapshot.NewGroup(g.Name(), merged[i].Preferred(), versions, true)
	}
	return merged
}

// mergeVersions drops later versions of a name that has come before, but for
// those that were read where the earlier was not.
func mergeVersions(versions []snapshot.Version) []snapshot.Version {
	merged := make([]snapshot.Version, 0, len(versions))
	for _, v := range versions {
		i := slices.IndexFunc(merged, func(other snapshot.Version) bool { return other.Name == v.Name })
		switch {
		case i < 0:
			merged = append(merged, v)
		case merged[i].Table == nil:
			merged[i] = v
		}
	}
	return merged
}
