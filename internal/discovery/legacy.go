// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/share"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// The legacy documents list a group's versions without their resources.

var errNoCoreVersions = errors.New("the server lists no versions of the core group")

// coreGroup reads an APIVersions. The first version is the preferred one, as in
// client-go.
func (d *jsonDocument) coreGroup() (*snapshot.Group, error) {
	var versions []legacyVersion
	for _, raw := range d.Versions {
		name := ""
		if err := json.Unmarshal(raw, &name); err != nil {
			return nil, fmt.Errorf("the list of core versions is malformed: %w", err)
		}
		versions = append(versions, legacyVersion{Version: name})
	}
	if len(versions) == 0 {
		return nil, errNoCoreVersions
	}
	return listed("", versions[0].Version, versions), nil
}

func (d *jsonDocument) groupList() (*share.Document, error) {
	if err := checkCount(len(d.Groups)); err != nil {
		return nil, err
	}
	doc := &share.Document{}
	for _, entry := range d.Groups {
		doc.Groups = append(doc.Groups, listed(entry.Name, entry.Preferred.Version, entry.Versions))
	}
	return doc, nil
}

// listed makes a group whose versions have not been read.
func listed(name, preferred string, versions []legacyVersion) *snapshot.Group {
	b := builder{name: name}
	for _, v := range versions {
		b.add(snapshot.Version{Name: v.Version})
	}
	return b.group(preferred)
}

// decodeCore reads the answer of /api to a request for the plain form. A cache that
// drops Vary may send the aggregated form. Then only the list of versions is used,
// because the resources may be of any age. Single groups and versions have one form
// only, so this can't happen there.
func decodeCore(body []byte, _ string) (*snapshot.Group, error) {
	doc, err := decodeForm(body, corePath)
	if err != nil {
		return nil, err
	}
	if len(doc.Groups) != 1 || doc.Groups[0].Name() != "" {
		return nil, errors.New("the response is not about the core group")
	}
	core := doc.Groups[0]
	if len(core.Versions()) == 0 {
		return nil, errNoCoreVersions
	}
	return core, checkList(core)
}

// decodeGroup reads the answer of /apis/<name>.
func decodeGroup(body []byte, name string) (*snapshot.Group, error) {
	doc, err := parseJSON(body)
	if err != nil {
		return nil, err
	}
	if doc.Kind != "APIGroup" {
		return nil, doc.wrongKind("APIGroup")
	}
	if doc.Name != name {
		return nil, fmt.Errorf("the response is about group %q", doc.Name)
	}
	versions := make([]legacyVersion, len(doc.Versions))
	for i, raw := range doc.Versions {
		if err := json.Unmarshal(raw, &versions[i]); err != nil {
			return nil, fmt.Errorf("the list of versions is malformed: %w", err)
		}
	}
	if len(versions) == 0 {
		return nil, errors.New("the server lists no versions of the group")
	}
	g := listed(name, doc.Preferred.Version, versions)
	return g, checkList(g)
}

// decodeResources reads the answer of /apis/<group>/<version>.
func decodeResources(body []byte, gv schema.GroupVersion) ([]snapshot.Resource, error) {
	doc, err := parseJSON(body)
	if err != nil {
		return nil, err
	}
	// Kind or group-version is enough: servers behind APIServices may leave out one.
	unnamed := doc.Kind == "" && doc.GroupVersion != ""
	if doc.Kind != "APIResourceList" && !unnamed {
		return nil, doc.wrongKind("APIResourceList")
	}
	if doc.GroupVersion != "" && doc.GroupVersion != gv.String() {
		return nil, fmt.Errorf("the response is about %q", doc.GroupVersion)
	}
	resources := make([]snapshot.Resource, 0, len(doc.Resources))
	for _, r := range doc.Resources {
		resources = append(resources, snapshot.Resource{
			Name: r.Name, Singular: r.SingularName, Kind: r.Kind, Namespaced: r.Namespaced, Verbs: snapshot.Verbs(r.Verbs),
		})
	}
	return resources, checkRows(resources)
}
