// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"slices"
	"sync/atomic"
)

// draft is a group of the snapshot's own while it is changed.
type draft struct {
	name      string
	preferred string
	versions  []draftVersion
	groupRead Seq
	used      *atomic.Bool
}

type draftVersion struct {
	Version
	versionReads
}

// draft returns a copy of a group to change, which is empty if nothing is known of the group.
func (s *Snapshot) draft(group string) *draft {
	g := s.Group(group)
	if g == nil {
		return &draft{name: group, used: new(atomic.Bool)}
	}
	d := &draft{name: group, preferred: g.preferred, versions: make([]draftVersion, len(g.versions))}
	for i, v := range g.versions {
		d.versions[i] = draftVersion{v, s.readsOf(g, i)}
	}
	if g.overlay == nil {
		d.used = new(atomic.Bool)
	} else {
		d.used, d.groupRead = g.overlay.used, g.overlay.groupRead
	}
	return d
}

// maxUndocumentedVersions bounds the versions of a group that the document does not have, and maxUndocumentedGroups
// the groups with such a version. A server that lists others each time must not fill the memory. What exceeds a
// bound is forgotten, and found again if it is there.
const (
	maxUndocumentedVersions = 64
	maxUndocumentedGroups   = 4096
)

// group ends the change. It returns nil if nothing is known of the group. documented is what the document has of it.
func (d *draft) group(documented *Group) *Group {
	if len(d.versions)-documented.count() > maxUndocumentedVersions {
		d.versions = slices.DeleteFunc(d.versions, func(v draftVersion) bool { return documented.indexOf(v.Name) < 0 })
	}
	if len(d.versions) == 0 && documented == nil {
		return nil
	}
	own := new(struct { // one allocation
		group   Group
		overlay overlay
	})
	own.overlay = overlay{used: d.used, groupRead: d.groupRead, reads: make([]versionReads, len(d.versions))}
	own.group = Group{
		name: d.name, preferred: d.preferred, versions: make([]Version, len(d.versions)), overlay: &own.overlay,
	}
	for i, v := range d.versions {
		own.group.versions[i] = v.Version
		own.overlay.reads[i] = v.versionReads
	}
	own.group.rank()
	return &own.group
}

// version returns the version of that name, or nil.
func (d *draft) version(name string) *draftVersion {
	for i := range d.versions {
		if d.versions[i].Name == name {
			return &d.versions[i]
		}
	}
	return nil
}

// add returns the version of that name, which is added if it is not known.
func (d *draft) add(name string) *draftVersion {
	if d.version(name) == nil {
		d.versions = append(d.versions, draftVersion{Version: Version{Name: name}})
	}
	return d.version(name)
}

func (d *draft) names() []string {
	names := make([]string, len(d.versions))
	for i, v := range d.versions {
		names[i] = v.Name
	}
	return names
}

// arrange puts the versions into the order of names, which a read has found that began at a sequence number, and adds
// those that are not known.
func (d *draft) arrange(names []string, began Seq) {
	for _, name := range names {
		d.add(name)
	}
	arranged := make([]draftVersion, 0, len(d.versions))
	for i, name := range mergeOrder(d.names(), names) {
		v := *d.version(name)
		v.listed = 0
		if i < len(names) {
			v.listed = began
		}
		arranged = append(arranged, v)
	}
	d.versions = arranged
}

// takeDocument takes what a document says whose read began at a sequence number. What was read later stays as it is,
// and so does what the document does not have.
func (d *draft) takeDocument(documented *Group, began Seq) {
	for i := range documented.versions {
		news := &documented.versions[i]
		d.add(news.Name).takeDocument(news, began)
	}
	if d.groupRead < began {
		d.preferred = documented.preferred
		d.arrange(documented.names(), began)
	}
}

// takeDocument takes what such a document says of the version. A version that the document marks as
// stale, or only lists, keeps its table: that says nothing of what it serves.
func (v *draftVersion) takeDocument(news *Version, began Seq) {
	if news.Table != nil && v.answered < began {
		v.Table, v.removed, v.answered = news.Table, false, began
	}
	if news.onlyListed() || v.removed || v.tried >= began {
		return
	}
	if v.Err != nil {
		v.tried = 0
	}
	v.Err = news.Err
	if v.Table == nil {
		v.answered = began
	}
}

// takeLive takes what the version's own path has answered to a read that began at a sequence number.
func (v *draftVersion) takeLive(found VersionResult, began Seq) {
	v.tried, v.Err = began, found.Err
	switch {
	case found.Table != nil:
		v.answered, v.removed = began, false
		same := found.Table.sameAnswers(v.Table) && found.Table.sameResourceList(v.Table)
		if !same { // whoever reads many versions compares each, again and again
			v.Table = found.Table
		}
	case found.NotFound():
		v.answered, v.removed = began, true
		v.Table = nil
		if v.listed < began {
			v.listed = 0 // if it is re-created, its old place is none
		}
	case v.removed:
		v.answered, v.removed = 0, false // it failed: nobody knows any more
	}
}
