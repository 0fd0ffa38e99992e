// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// acceptLegacy is the only form in which single groups and versions are served.
const acceptLegacy = "application/json"

// live reads what is said of a version, or of a group without one. It returns nil if the
// server answered that there is no such thing.
func live[T any](ctx context.Context, c *Client, gv schema.GroupVersion, decode func([]byte, schema.GroupVersion) (*T, error)) (*T, error) {
	path, ok := pathOf(gv)
	if !ok {
		return nil, nil
	}
	if err := errMarked(gv); err != nil {
		return nil, err
	}
	found, err := get(ctx, c, request{path: path, gv: gv, accept: acceptLegacy}, func(seen *exchange) (*T, error) {
		return decode(seen.body, gv)
	})
	if errors.Is(err, errNotServed) {
		return nil, nil
	}
	return found, err
}

// Version reads the resources of one version of a group. The table is nil if the
// server answered that there is no such version; err, if any, is an *Error.
func (c *Client) Version(ctx context.Context, group, version string) (*snapshot.Table, error) {
	if version == "" {
		return nil, nil
	}
	return live(ctx, c, schema.GroupVersion{Group: group, Version: version}, decodeTable)
}

// List reads one group's versions without their resources: their names in server order,
// and the version that the server prefers. There are no versions if the server answered
// that there is no such group.
func (c *Client) List(ctx context.Context, name string) (versions []string, preferred string, err error) {
	group, err := live(ctx, c, schema.GroupVersion{Group: name}, decodeGroup)
	if group == nil {
		return nil, "", err
	}
	for _, v := range group.Versions() {
		versions = append(versions, v.Name)
	}
	return versions, group.Preferred(), nil
}

// Unanswered reports whether the read that ended with err was sent and got no answer at
// all.
func Unanswered(err error) bool {
	var failed *Error
	return errors.As(err, &failed) && failed.Code == 0 && !errors.Is(err, ErrNotSent)
}

// NotAwaited returns the error for a read that a caller did not wait for longer than wait,
// because others before got no answer.
func NotAwaited(read snapshot.Read, wait time.Duration) error {
	failed := versionError(read.Group, read.Version, 0, fmt.Errorf("no answer within %v, after requests before it got none", wait))
	if read.Part == snapshot.PartDocument {
		failed.Path = namedPath
	}
	return failed
}

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
	read, err := get(ctx, c, r, func(seen *exchange) (*half, error) { return decodeBulk(seen.body, path) })
	var failed *Error
	switch {
	case errors.Is(err, errNotServed), errors.As(err, &failed) && failed.Code == 406, err == nil && !read.aggregated():
		return true, nil
	case err != nil:
		return false, err
	}
	for _, g := range read.groups {
		if g.Name() == gv.Group {
			return g.Version(gv.Version) != nil, nil
		}
	}
	return false, nil
}
