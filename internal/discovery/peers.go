// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/share"
)

// acceptLocal asks for the aggregated document of this API server alone. From 1.36
// (KEP-4020) servers know the parameter profile (apiserver,
// pkg/endpoints/discovery/aggregated/wrapper.go).
const acceptLocal = "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer," +
	"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer"

// MayBeOfPeer reports whether another API server of the same cluster may serve versions of
// the group that this one does not serve. Only built-in groups are listed for peers.
func MayBeOfPeer(group string) bool {
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}

// ServedLocally reports whether this API server lists a version in the document that leaves
// out its peers. It reports true for a server that has no such document, because it has no
// peers either.
func (c *Client) ServedLocally(ctx context.Context, gv schema.GroupVersion) (bool, error) {
	path := namedPath
	if gv.Group == "" {
		path = corePath
	}
	r := request{path: path, gv: gv, accept: acceptLocal}
	doc, err := get(ctx, c, r, func(seen *exchange) (*share.Document, error) { return decodeBulk(seen.body, path) })
	var failed *Error
	switch {
	case errors.Is(err, errNotServed), errors.As(err, &failed) && failed.Code == 406, err == nil && !doc.Aggregated():
		return true, nil
	case err != nil:
		return false, err
	}
	for _, g := range doc.Groups {
		if g.Name() == gv.Group {
			return g.Version(gv.Version) != nil, nil
		}
	}
	return false, nil
}
