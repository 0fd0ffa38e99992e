// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// acceptPlain is the only format in which single groups and versions are served.
const acceptPlain = "application/json"

// readPath reads what a version's own path has, or that of a group for a gv without a version. It returns nil if the
// server answered that there is no such thing. proven reports whether that was the API server: otherwise the answer had
// no Audit-Id, and no document has had one lately.
func readPath[T any](
	ctx context.Context, c *Client, gv schema.GroupVersion, decode func([]byte, schema.GroupVersion) (*T, error),
) (found *T, proven bool, err error) {
	path, ok := pathOf(gv)
	if !ok {
		return nil, true, nil
	}
	if err := placeholderError(gv); err != nil {
		return nil, false, err
	}
	found, err = get(ctx, c, request{path: path, gv: gv, accept: acceptPlain}, func(x *exchange) (*T, error) {
		return decode(x.body, gv)
	})
	if errors.Is(err, errNotServed) {
		return nil, !errors.Is(err, errUnproven), nil
	}
	if err != nil {
		return nil, false, err
	}
	c.hasRead.Store(true)
	return found, false, nil
}

// Version reads the resources of one version of a group. The table is nil if the server answered that there is no such
// version, or if err, an *Error, is not nil. proven is that of readPath.
func (c *Client) Version(ctx context.Context, group, version string) (table *snapshot.Table, proven bool, err error) {
	if version == "" {
		return nil, true, nil
	}
	keepLists := c.keepResourceLists.Load()
	decode := func(body []byte, gv schema.GroupVersion) (*snapshot.Table, error) {
		return decodeTable(body, gv, keepLists)
	}
	return readPath(ctx, c, schema.GroupVersion{Group: group, Version: version}, decode)
}

// List reads one group's versions without their resources: their names in server order, and the version that the server
// prefers. There are no versions if the server answered that there is no such group. proven is that of readPath.
func (c *Client) List(ctx context.Context, name string) (versions []string, preferred string, proven bool, err error) {
	group, proven, err := readPath(ctx, c, schema.GroupVersion{Group: name}, decodeGroup)
	if group == nil {
		return nil, "", proven, err
	}
	for _, v := range group.Versions() {
		versions = append(versions, v.Name)
	}
	return versions, group.Preferred(), false, nil
}
