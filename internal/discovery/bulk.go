// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/freshmapper/freshmapper/internal/share"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Bulk is what one bulk read of a server found. It is immutable.
type Bulk struct {
	Core, Named Half // of /api and of /apis
	List        *snapshot.List
}

// Half is what was read from one of the two bulk paths.
type Half struct {
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

// Halves selects the halves of the document to read.
type Halves struct{ Core, Named bool }

// Document reads the groups of the server in its order: the core group at /api, the
// others at /apis. If the server has the aggregated document, the versions come with
// their tables; otherwise they are only listed. The server does not send a half that has
// not changed since the last call. A half that halves does not select counts as not
// changed. If neither half has changed, the result is that of the last call. Until a call
// has succeeded, both halves are read.
func (c *Client) Document(ctx context.Context, halves Halves) (*Bulk, error) {
	last := c.last
	if last == nil {
		last, halves = &Bulk{}, Halves{Core: true, Named: true}
	}
	core, named := &last.Core, &last.Named
	var err error
	if halves.Core {
		if core, err = c.half(ctx, corePath, core); err != nil {
			return nil, err
		}
	}
	if halves.Named {
		if named, err = c.half(ctx, namedPath, named); err != nil {
			return nil, err
		}
	}
	if core != &last.Core || named != &last.Named {
		if last, err = newBulk(core, named, last.List); err != nil {
			return nil, c.failure(request{path: namedPath}, http.StatusOK, err, nil)
		}
	}
	c.last = last
	return last, nil
}

// newBulk joins the core group with the named ones. last is the previous list, or nil.
func newBulk(core, named *Half, last *snapshot.List) (*Bulk, error) {
	b := &Bulk{Core: *core, Named: *named}
	groups := slices.Concat(core.Groups, named.Groups)
	aggregated := core.Aggregated() && named.Aggregated()
	if aggregated {
		if b.List = share.List(groups, share.KeyOfAll(core.Key, named.Key), last); b.List.Unique() {
			all := b.List.Groups() // equal groups, which other mappers hold as well
			b.Core.Groups, b.Named.Groups = all[:len(core.Groups)], all[len(core.Groups):]
			return b, nil
		}
	}
	merged, err := merge(groups)
	b.List = snapshot.NewList(merged, aggregated)
	return b, err
}

// half reads one of the two paths. It returns last if the document has not changed.
//
// A 304 proves nothing in two cases. Its own ETag may be another one: then a gateway
// speaks of a document that it has, and not of last. And the credentials may be others
// than those that last was sent to, because files and plugins bring new ones: a server may
// give documents of different content the same ETag.
func (c *Client) half(ctx context.Context, path string, last *Half) (*Half, error) {
	unproven := false
	r := request{path: path, accept: acceptBulk, etag: last.etag}
	half, err := get(ctx, c, r, func(doc document) (*Half, error) {
		if doc.notModified {
			unproven = doc.etag != "" && doc.etag != last.etag || doc.caller != last.caller
			return last, nil
		}
		decoded, err := decodeBulk(doc.body, path)
		if err != nil {
			return nil, err
		}
		return &Half{*decoded, doc.etag, doc.caller}, nil
	})
	switch {
	case errors.Is(err, errNotServed):
		return notServed(path)
	case unproven:
		return c.half(ctx, path, &Half{})
	}
	return half, err
}

// notServed returns an empty document for /api: servers that only extend another one,
// behind an APIService, have no core group. All servers have /apis.
func notServed(path string) (*Half, error) {
	if path == corePath {
		return &Half{}, nil
	}
	return nil, notFound(path)
}

func notFound(path string) *Error {
	return &Error{Path: path, Code: http.StatusNotFound, Err: errors.New("the server answered 404 Not Found")}
}

// merge joins groups of the same name, which no server should send, into the first of them.
func merge(groups []*snapshot.Group) ([]*snapshot.Group, error) {
	versions := make(map[string][]snapshot.Version, len(groups))
	for _, g := range groups {
		versions[g.Name()] = append(versions[g.Name()], g.Versions()...)
	}
	merged := make([]*snapshot.Group, 0, len(versions))
	for _, g := range groups {
		all, first := versions[g.Name()]
		if !first {
			continue
		}
		delete(versions, g.Name())
		if len(all) > len(g.Versions()) {
			var err error
			if g, err = newGroup(g.Name(), g.Preferred(), all); err != nil {
				return nil, err
			}
		}
		merged = append(merged, g)
	}
	return merged, nil
}

// No server that stores its APIs in etcd exceeds these bounds: names are DNS subdomains,
// a thousand groups are many, and groups with ten versions are rare. Within them it does
// not matter how much more memory a group takes than its bytes, nor that snapshots search
// versions one by one and look up every beginning of a name.
const (
	maxGroups    = 1 << 16
	maxGroupName = 253
	maxVersions  = 1 << 12
)

// newGroup makes a group as the server lists it. It changes versions. It leaves out
// versions whose name cannot be a part of a path, or that lookups do not take for a
// version.
func newGroup(name, preferred string, versions []snapshot.Version) (*snapshot.Group, error) {
	versions = slices.DeleteFunc(versions, func(v snapshot.Version) bool {
		return !segment(v.Name) || v.Name == runtime.APIVersionInternal
	})
	if err := checkSize(name, len(versions)); err != nil {
		return nil, err
	}
	return snapshot.NewGroup(name, preferred, mergeVersions(versions)), nil
}

func checkCount(groups int) error {
	if groups > maxGroups {
		return fmt.Errorf("the document has more than %d groups", maxGroups)
	}
	return nil
}

func checkSize(group string, versions int) error {
	if len(group) > maxGroupName {
		return fmt.Errorf("the name of a group has more than %d bytes", maxGroupName)
	}
	if versions > maxVersions {
		return fmt.Errorf("a group has more than %d versions", maxVersions)
	}
	return nil
}

// mergeVersions drops a version whose name has come before, unless it was read and the
// earlier one was not.
func mergeVersions(versions []snapshot.Version) []snapshot.Version {
	at := make(map[string]int, len(versions))
	merged := make([]snapshot.Version, 0, len(versions))
	for _, v := range versions {
		i, ok := at[v.Name]
		switch {
		case !ok:
			at[v.Name] = len(merged)
			merged = append(merged, v)
		case merged[i].Table == nil:
			merged[i] = v
		}
	}
	return merged
}
