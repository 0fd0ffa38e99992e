// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"errors"
	"slices"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/restmapper"
)

// document is what a server serves, in the plainest form: from it the tests make
// a snapshot and, for comparison, client-go's mapper.
type document []docGroup

type docGroup struct {
	name      string
	preferred string
	versions  []docVersion
}

type docVersion struct {
	name      string
	read      bool // listed alone if not
	resources []Resource
}

// errUnread is why a version of a document could not be read.
var errUnread = errors.New("unread")

// snapshot makes the snapshot of a mapper that has read d.
func (d document) snapshot() *Snapshot {
	groups := make([]*Group, 0, len(d))
	for _, g := range d {
		versions := make([]Version, 0, len(g.versions))
		for _, v := range g.versions {
			version := Version{Name: v.name}
			if v.read {
				version.Table = NewTable(v.resources)
			}
			versions = append(versions, version)
		}
		groups = append(groups, NewGroup(g.name, g.preferred, versions))
	}
	return new(Snapshot).WithDocument(NewDocument(groups, true), 1)
}

// library makes client-go's mapper of the same.
func (d document) library() meta.RESTMapper {
	groups := make([]*restmapper.APIGroupResources, 0, len(d))
	for _, g := range d {
		group := &restmapper.APIGroupResources{VersionedResources: map[string][]metav1.APIResource{}}
		group.Group.Name, group.Group.PreferredVersion.Version = g.name, g.preferred
		for _, v := range g.versions {
			group.Group.Versions = append(group.Group.Versions, metav1.GroupVersionForDiscovery{Version: v.name})
			if v.read {
				group.VersionedResources[v.name] = libraryResources(v.resources)
			}
		}
		groups = append(groups, group)
	}
	return restmapper.NewDiscoveryRESTMapper(groups)
}

func libraryResources(resources []Resource) []metav1.APIResource {
	list := make([]metav1.APIResource, 0, len(resources))
	for _, r := range resources {
		list = append(list, metav1.APIResource{Name: r.Name, SingularName: r.Singular, Kind: r.Kind, Namespaced: r.Namespaced})
	}
	return list
}

// complete reports whether every version of d was read.
func (d document) complete() bool {
	for _, g := range d {
		if slices.ContainsFunc(g.versions, func(v docVersion) bool { return !v.read }) {
			return false
		}
	}
	return true
}

// asDocument is what the snapshot serves.
func (s *Snapshot) asDocument() document {
	var doc document
	for _, g := range s.Groups() {
		group := docGroup{name: g.name, preferred: g.preferred}
		for _, v := range g.Versions() {
			version := docVersion{name: v.Name, read: v.Table != nil}
			if version.read {
				version.resources = v.Table.rows
			}
			group.versions = append(group.versions, version)
		}
		doc = append(doc, group)
	}
	return doc
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
