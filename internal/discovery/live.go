// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"net/http"

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
	doc, err := c.get(ctx, path, gv, acceptLegacy, "")
	if errors.Is(err, errNotServed) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	resources, err := decodeResources(doc.body, gv)
	if err != nil {
		return nil, false, &Error{Path: path, GroupVersion: gv, Code: http.StatusOK, Err: err}
	}
	return snapshot.NewTable(resources), true, nil
}

// Group reads one group's versions, and the resources of each. served is false
// if the server answered that there is no such group. A version that could not
// be read carries the reason; one that went while we read is left out.
func (c *Client) Group(ctx context.Context, name string) (group *snapshot.Group, served bool, err error) {
	listed, served, err := c.list(ctx, name)
	if err != nil || !served {
		return nil, served, err
	}
	gvs := make([]schema.GroupVersion, 0, len(listed.Versions()))
	for _, v := range listed.Versions() {
		gvs = append(gvs, schema.GroupVersion{Group: name, Version: v.Name})
	}
	versions := make([]snapshot.Version, 0, len(gvs))
	c.Versions(ctx, gvs, func(gv schema.GroupVersion, table *snapshot.Table, served bool, err error) {
		if err != nil || served {
			versions = append(versions, snapshot.Version{Name: gv.Version, Table: table, Err: err})
		}
	})
	return snapshot.NewGroup(name, listed.Preferred(), versions, true), len(versions) > 0, nil
}

// Versions reads one group-version after the other and hands each result, as
// Version returns it, to record. One that is not answered does not keep the
// others from being read; after the second in a row the server counts as gone,
// and the rest fail alike without waiting for as many timeouts.
func (c *Client) Versions(
	ctx context.Context, gvs []schema.GroupVersion,
	record func(gv schema.GroupVersion, table *snapshot.Table, served bool, err error),
) {
	silent := 0
	for _, gv := range gvs {
		if silent >= 2 {
			path, _ := versionPath(gv)
			record(gv, nil, false, &Error{Path: path, GroupVersion: gv, Err: errGone})
			continue
		}
		table, served, err := c.Version(ctx, gv)
		if silent++; !unanswered(err) {
			silent = 0
		}
		record(gv, table, served, err)
	}
}

// unanswered says that a request got no answer at all.
func unanswered(err error) bool {
	var failed *Error
	return errors.As(err, &failed) && failed.Code == 0
}

// list reads a group's list of versions.
func (c *Client) list(ctx context.Context, name string) (*snapshot.Group, bool, error) {
	path, decode := "/apis/"+name, decodeGroup
	if name == "" {
		path, decode = "/api", decodeCore
	} else if !segment(name) {
		return nil, false, nil
	}
	doc, err := c.get(ctx, path, schema.GroupVersion{Group: name}, acceptLegacy, "")
	if errors.Is(err, errNotServed) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	group, err := decode(doc.body, name)
	if err != nil {
		return nil, false, &Error{Path: path, GroupVersion: schema.GroupVersion{Group: name}, Code: http.StatusOK, Err: err}
	}
	return group, true, nil
}
