// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"slices"

	apiversion "k8s.io/apimachinery/pkg/version"
)

// group makes the group of the facts, or nil if nothing is left of it. It returns the
// document's own group if the facts add nothing to it.
func (f facts) group(name string) *Group {
	if f.doc != nil && len(f.versions) == 0 && f.list == 0 {
		return f.doc
	}
	var versions []Version
	var unlisted Tick
	for _, listed := range f.listing() {
		if v, ok := f.version(listed); ok {
			versions = append(versions, v)
		}
	}
	for _, v := range f.versions {
		if v.table != nil && !slices.ContainsFunc(versions, func(have Version) bool { return have.Name == v.name }) {
			found, _ := f.version(v.name)
			versions = insertVersion(versions, found)
			unlisted = max(unlisted, v.read)
		}
	}
	if f.doc == nil && len(versions) == 0 {
		return nil
	}
	g := NewGroup(name, f.preferred(), versions)
	g.own, g.unlisted = &f, unlisted
	return g
}

// listing lists the names of the versions in server order.
func (f *facts) listing() []string {
	first, then := f.doc.names(), f.listed
	if f.listLeads() {
		first, then = then, first
	}
	names := slices.Clone(first)
	for _, name := range then {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func (f *facts) preferred() string {
	if f.listLeads() {
		return f.favorite
	}
	return f.doc.preferred
}

// listLeads reports whether the group's own list, read live, takes precedence over the
// document's. It does, unless the own list lacks a version that the document has. The
// document has a new version of a CustomResourceDefinition as soon as that is served, but
// /apis/<group> lists it only after an APIService was made for it.
func (f *facts) listLeads() bool {
	return f.doc == nil || f.list > 0 && !slices.ContainsFunc(f.doc.names(), func(name string) bool {
		return !slices.Contains(f.listed, name) && !f.get(name).gone
	})
}

// sameList reports whether the live list has nothing to add to the document's.
func (f *facts) sameList() bool {
	if f.listLeads() {
		return f.favorite == f.doc.preferred && slices.Equal(f.listed, f.doc.names())
	}
	return !slices.ContainsFunc(f.listed, func(name string) bool { return f.doc.find(name) == nil })
}

// version returns what is known of a version that is listed or was read. ok is false if
// the version is gone.
func (f *facts) version(name string) (v Version, ok bool) {
	known := f.get(name)
	if known.gone {
		return Version{}, false
	}
	v = Version{Name: name}
	if said := f.doc.find(name); said != nil {
		v = *said
	}
	v.doubted = slices.Contains(f.lacked, name) && (known.table != nil || !f.passed)
	if known.table != nil {
		v.Table, v.Read, v.Live = known.table, known.read, known.live
		if known.live {
			v.Err = nil // it only explained why the document has no table
		}
	}
	if known.err != nil {
		v.Err = known.err
	}
	return v, true
}

// insertVersion inserts a version that is not listed in the place where the API server
// would list it among the versions of a CustomResourceDefinition.
func insertVersion(versions []Version, v Version) []Version {
	at := slices.IndexFunc(versions, func(other Version) bool {
		return apiversion.CompareKubeAwareVersionStrings(v.Name, other.Name) > 0
	})
	if at < 0 {
		at = len(versions)
	}
	return slices.Insert(versions, at, v)
}
