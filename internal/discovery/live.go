// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// acceptLegacy is the only form in which single groups and versions are served.
const acceptLegacy = "application/json"

// Version reads the resources of one group-version. served is false if the
// server answered that there is no such group-version; err, if any, is an *Error.
func (c *Client) Version(ctx context.Context, gv schema.GroupVersion) (table *snapshot.Table, served bool, err error) {
	path, ok := versionPath(gv)
	if !ok {
		return nil, false, nil
	}
	resources, err := get(ctx, c, request{path: path, gv: gv, accept: acceptLegacy}, func(doc document) ([]snapshot.Resource, error) {
		return decodeResources(doc.body, gv)
	})
	if errors.Is(err, errNotServed) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	return snapshot.NewTable(resources), true, nil
}

// Group reads one group's list of versions, and the resources of each. served is
// false if the server serves none of them. A version that could not be read
// carries the reason; one that went while we read is left out.
//
// known are versions that the group had before. The list at /apis/<group> is made
// from APIServices and runs behind the versions themselves, so that a known one
// that is not in it is asked for as well, and stays if it is served.
func (c *Client) Group(ctx context.Context, name string, known []string) (group *snapshot.Group, served bool, err error) {
	list, _, err := c.List(ctx, name)
	if err != nil {
		return nil, false, err
	}
	versions := map[string]snapshot.Version{}
	c.Versions(ctx, toRead(list, known), func(gv schema.GroupVersion, table *snapshot.Table, served bool, err error) {
		if err != nil || served {
			versions[gv.Version] = snapshot.Version{Name: gv.Version, Table: table, Err: err}
		}
	})
	group = list.Keep(versions)
	return group, len(group.Versions()) > 0, nil
}

// toRead lists the versions of list, then those known ones that are not in it.
func toRead(list *snapshot.Group, known []string) []schema.GroupVersion {
	var gvs []schema.GroupVersion
	for _, v := range list.Versions() {
		gvs = append(gvs, schema.GroupVersion{Group: list.Name(), Version: v.Name})
	}
	for _, name := range known {
		if list.Version(name) == nil {
			gvs = append(gvs, schema.GroupVersion{Group: list.Name(), Version: name})
		}
	}
	return gvs
}

// Versions reads one group-version after the other and hands each result, as
// Version returns it, to record. One that is not answered does not keep the
// others from being read: it may be an aggregated API that hangs, and so may the
// next. But after each two in a row the server itself is asked. If it does not
// answer either the rest fail alike, without waiting for as many timeouts.
func (c *Client) Versions(
	ctx context.Context, gvs []schema.GroupVersion,
	record func(gv schema.GroupVersion, table *snapshot.Table, served bool, err error),
) {
	silent, gone := 0, false
	for _, gv := range gvs {
		if silent == 2 {
			silent, gone = 0, c.Ping(ctx) != nil
		}
		if gone {
			path, _ := versionPath(gv)
			record(gv, nil, false, &Error{Path: path, GroupVersion: gv, Err: errGone})
			continue
		}
		table, served, err := c.Version(ctx, gv)
		if silent++; !Unanswered(err) {
			silent = 0
		}
		record(gv, table, served, err)
	}
}

// Unanswered says that the read that ended with err got no answer at all.
func Unanswered(err error) bool {
	var failed *Error
	return errors.As(err, &failed) && failed.Code == 0
}

// List reads one group's versions without their resources. listed is false, and
// the group has no versions, if the server answered that there is no such group.
func (c *Client) List(ctx context.Context, name string) (group *snapshot.Group, listed bool, err error) {
	none := snapshot.NewGroup(name, "", nil, false)
	path, decode := "/apis/"+name, decodeGroup
	if name == "" {
		path, decode = "/api", decodeCore
	} else if !segment(name) {
		return none, false, nil
	}
	r := request{path: path, gv: schema.GroupVersion{Group: name}, accept: acceptLegacy}
	group, err = get(ctx, c, r, func(doc document) (*snapshot.Group, error) { return decode(doc.body, name) })
	if errors.Is(err, errNotServed) {
		return none, false, nil
	}
	return group, err == nil, err
}
