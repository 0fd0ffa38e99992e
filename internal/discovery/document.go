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

// groupList is what was read from /api or from /apis: the groups there, with or without their resources.
type groupList struct {
	groups []*snapshot.Group
	key    share.Key // of the bytes of the groups, if mappers share them; else zero
	etag   string    // empty if the server sent none

	hasResources       bool // this is the aggregated document, which has the resources of every version
	keepsResourceLists bool // it was read to keep resource lists, so no other mapper shares it

	credentialsKey    share.Key // of the request, see credentialsKeyOf; zero: there was none
	credentialChanges int       // how many reads in a row had other credentials than the one before
}

// aggregated reports whether the resources of every version are there. If there is no version, they are.
func (l *groupList) aggregated() bool { return l.hasResources || len(l.groups) == 0 }

// withoutContent returns a list of which nothing is known but with which credentials it was read. The next request for
// it is unconditional.
func (l *groupList) withoutContent() *groupList {
	return &groupList{credentialsKey: l.credentialsKey, credentialChanges: l.credentialChanges}
}

// acceptDocument asks for the aggregated document, or for the plain list if the server has none. v2 comes before
// v2beta1 (servers 1.26 to 1.29). Protobuf comes before JSON, because it has half the size and decodes in a fraction
// of the time. Servers take the first format that they know.
const acceptDocument = "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
	"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
	"application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList," +
	"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList," +
	"application/json"

// acceptDocumentJSON asks for the same without protobuf, as client-go does: for servers that ignore the parameters, and
// for resource lists, which are read from JSON alone.
const acceptDocumentJSON = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
	"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList," +
	"application/json"

const (
	corePath  = "/api"
	namedPath = "/apis"
)

// Document reads the groups of the server in its order: the core group at /api, the others at /apis. If the server
// has the aggregated document, the versions come with their tables; otherwise they are only listed. The server does
// not send again what has not changed since the last call. If nothing has changed, the result is that of the last
// call. One of the two may be empty: a server may have the core group alone, or all others. Document may not be
// called concurrently.
func (c *Client) Document(ctx context.Context) (*snapshot.Document, error) {
	core, coreHasAuditID, err := c.readGroupList(ctx, corePath, c.core)
	var unproven error
	if errors.Is(err, errUnproven) {
		// It may be an extension server's own 404, see readGroupList. The answer at /apis decides that.
		core, unproven, err = &groupList{}, err, nil
	}
	if err != nil {
		return nil, err
	}
	named, namedHasAuditID, err := c.readGroupList(ctx, namedPath, c.named)
	if err != nil {
		return nil, err
	}
	if unproven != nil && namedHasAuditID {
		return nil, unproven
	}
	if len(core.groups)+len(named.groups) == 0 {
		err := errors.New("the server lists no API groups, and none at " + corePath)
		return nil, &Error{Path: namedPath, Code: http.StatusOK, Err: err}
	}
	c.hasRead.Store(true)
	c.noteAuditID(coreHasAuditID || namedHasAuditID)
	if core != c.core || named != c.named {
		c.setDocument(core, named)
	}
	return c.document, nil
}

// noteAuditID notes whether the document had an Audit-Id.
func (c *Client) noteAuditID(hasAuditID bool) {
	if !hasAuditID {
		c.lastAuditID.Store(nil)
		return
	}
	now := time.Now()
	c.lastAuditID.Store(&now)
}

func (c *Client) setDocument(core, named *groupList) {
	c.document = documentOf(core, named, c.document)
	c.core, c.named = core, named
	all, n := c.document.Groups(), len(core.groups)
	if len(all) == n+len(named.groups) { // no name comes twice
		// The lists are parts of the document, and take no memory of their own.
		core.groups, named.groups = all[:n:n], all[n:]
	}
}

// documentOf joins the core group with the named ones. last is the previous document, or nil.
// Mappers with the same groups come to hold the same document.
func documentOf(core, named *groupList, last *snapshot.Document) *snapshot.Document {
	aggregated := core.aggregated() && named.aggregated()
	next := func() (*snapshot.Document, error) {
		return last.Successor(mergeGroups(slices.Concat(core.groups, named.groups)), aggregated), nil
	}
	if !aggregated || core.keepsResourceLists || named.keepsResourceLists {
		document, _ := next()
		return document
	}
	key := share.KeyOf("core and named groups", slices.Concat(core.key[:], named.key[:]))
	document, _ := share.Documents.Get(key, next)
	return document
}

// maxCredentialChanges is how many reads in a row may have had other credentials before the next one is unconditional:
// a 304 would prove nothing, and the list would be read again. The first read with the same credentials ends that.
const maxCredentialChanges = 2

// readGroupList reads one of the two paths. It returns last if the document has not changed, and reports whether the
// answer had an Audit-Id.
func (c *Client) readGroupList(
	ctx context.Context, path string, last *groupList,
) (read *groupList, hasAuditID bool, err error) {
	keepLists := c.keepResourceLists.Load()
	if keepLists && !last.keepsResourceLists {
		last = last.withoutContent() // a 304 would bring no resource lists
	}
	answer, err := c.requestGroupList(ctx, path, last, keepLists)
	if answer.unprovenMatch {
		answer, err = c.requestGroupList(ctx, path, last.withoutContent(), keepLists)
	}
	if err != nil && answer.isProtobuf && !c.jsonOnly {
		c.jsonOnly = true
		answer, err = c.requestGroupList(ctx, path, last.withoutContent(), keepLists)
		c.jsonOnly = err == nil
	}
	if path == corePath && errors.Is(err, errNotServed) && !errors.Is(err, errUnproven) {
		// Servers that only extend another one, behind an APIService, have no core group. All servers have /apis.
		return &groupList{}, true, nil
	}
	return answer.list, answer.hasAuditID, err
}

// groupListAnswer is the answer to one request of /api or /apis.
type groupListAnswer struct {
	list       *groupList // nil if there was an error
	hasAuditID bool
	isProtobuf bool

	// unprovenMatch reports whether the list is said not to have changed, and that proves nothing. Its ETag may be
	// another one: then a gateway speaks of a document that it has. Or the credentials are others than those with
	// which the list was read, because files and plugins bring new ones: a server may give documents of different
	// content the same ETag.
	unprovenMatch bool
}

// requestGroupList sends one request. The list is last if that has not changed.
func (c *Client) requestGroupList(
	ctx context.Context, path string, last *groupList, keepLists bool,
) (answer groupListAnswer, err error) {
	r := request{path: path, accept: acceptDocument, etag: last.etag}
	if c.jsonOnly || keepLists {
		r.accept = acceptDocumentJSON
	}
	if last.credentialChanges >= maxCredentialChanges {
		r.etag = ""
	}
	answer.list, err = get(ctx, c, r, func(x *exchange) (*groupList, error) {
		answer.hasAuditID = x.hasAuditID
		otherCredentials := x.credentialsKey != last.credentialsKey
		if x.code == http.StatusNotModified {
			otherETag := x.etag != "" && x.etag != last.etag
			answer.unprovenMatch = otherETag || otherCredentials
			if !answer.unprovenMatch {
				last.credentialChanges = 0
			}
			return last, nil
		}
		answer.isProtobuf = bytes.HasPrefix(x.body, []byte(protobufMagic))
		read, err := decodeDocument(x.body, path, keepLists)
		if err != nil {
			return nil, err
		}
		read.etag = x.etag
		read.keepsResourceLists = keepLists
		read.credentialsKey = x.credentialsKey
		wasRead := last.credentialsKey != (share.Key{})
		if wasRead && otherCredentials {
			read.credentialChanges = last.credentialChanges + 1
		}
		return read, nil
	})
	return answer, err
}

// mergeGroups joins groups of the same name, which no server should send, into the first of them.
func mergeGroups(groups []*snapshot.Group) []*snapshot.Group {
	merged := make([]*snapshot.Group, 0, len(groups))
	position := make(map[string]int, len(groups))
	joined := map[int]*groupBuilder{}
	for _, g := range groups {
		i, isKnown := position[g.Name()]
		if !isKnown {
			position[g.Name()] = len(merged)
			merged = append(merged, g)
			continue
		}
		if joined[i] == nil {
			joined[i] = &groupBuilder{
				name:      g.Name(),
				preferred: merged[i].Preferred(),
				versions:  slices.Clone(merged[i].Versions()),
			}
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
