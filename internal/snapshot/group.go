// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// Seq is a sequence number. A mapper numbers its reads and resets in the order in which they begin: a read takes
// its number just before its first request. 0 stands for never.
type Seq uint64

// Version is one version of a group. A version that is only listed has neither a Table nor an Err, and a version
// that was found removed has neither, too.
type Version struct {
	Name string

	// Table is what the version serves. It is nil if that was never read.
	Table *Table
	// Err is why the version could not be read the last time, by its own path or by the document. What it served
	// before may stand beside it.
	Err error
}

// onlyListed reports whether nothing but the name is known.
func (v *Version) onlyListed() bool { return v.Table == nil && v.Err == nil }

// versionReads says as of which reads a version is known. readsOf returns that for each version of a snapshot.
type versionReads struct {
	// answered is the read that has found what the version serves, or that it was removed: of the version's own path,
	// or of a document that says what it serves, or that it cannot be read. It is 0 if nothing is known but the name,
	// or a failure of its own path.
	answered Seq
	// tried is the last read of the version's own path, however that ended, and 0 if there was none. A document with
	// news ends a failure: then tried is 0, too. Invariant: what the path has found has answered <= tried.
	tried Seq
	// listed is the latest group discovery or document with news that lists the version: that gives the version its
	// place in the order. It is 0 if the latest leaves the version out, or if it was found removed since.
	listed Seq
	// removed reports whether the version's own path answered 404, at tried.
	removed bool
}

// listedAgain reports whether a removed version was listed since its path answered 404. A lookup asks it again.
func (r versionReads) listedAgain() bool { return r.removed && r.listed > r.tried }

// placed reports whether it is known where the version stands among those of its group: it was listed, or order, the
// last read of the versions' order, is not older than what is known of the version. Before that its place, behind all
// others, is a guess, and no lookup that chooses among several is answered from a guess.
func (r versionReads) placed(order Seq) bool { return r.listed > 0 || r.answered <= order }

// mayBeServed reports whether a lookup that names no version asks for this one.
func (r versionReads) mayBeServed() bool { return !r.removed || r.listedAgain() }

// lastTried returns the last read of the version, whether it succeeded or failed. It is 0 if nothing is known: the
// version was never read, or was listed again since it was found removed.
func (r versionReads) lastTried() Seq {
	if r.listedAgain() {
		return 0
	}
	return max(r.answered, r.tried)
}

// Group is one API group. It is immutable. Most groups are the document's own, and all mappers of the process share
// them. If live reads have found something else or something more, the snapshot has a copy of its own with that, and
// the copy has an overlay.
type Group struct {
	name      string
	preferred string    // as the server says; may name a version that is not served
	versions  []Version // in server order, with those that were removed
	ranked    []int32   // positions in versions in client-go's order of priority; follows from the others
	complete  bool      // no version is only listed; follows from the others
	overlay   *overlay  // nil: the group is the document's own
}

// overlay says on which reads a snapshot's own copy of a group rests. What the document says of the group is in the
// snapshot's document alone.
type overlay struct {
	used      *atomic.Bool   // a lookup was answered from the group since somebody asked for that; all copies share it
	groupRead Seq            // the last read of group discovery; or the last document that had the group, if no longer
	reads     []versionReads // of each version of the group, in the order of Group.versions
}

// NewGroup makes a group of a document, of versions in server order. preferred may be
// empty or name a version that is not among them. The group keeps versions. Versions that
// serve the same resources come to share a table.
func NewGroup(name, preferred string, versions []Version) *Group {
	g := &Group{name: name, preferred: preferred, versions: slices.Clip(versions)}
	g.rank()
	return g
}

// rank fills in what follows from the versions.
func (g *Group) rank() {
	g.ranked = make([]int32, len(g.versions))
	g.complete = true
	for i := range g.versions {
		if g.versions[i].onlyListed() {
			g.complete = false
		}
		if i > 0 {
			g.versions[i].shareTable(&g.versions[i-1])
		}
		g.ranked[i] = int32(i)
	}
	slices.SortStableFunc(g.ranked, func(a, b int32) int {
		return cmp.Compare(g.priority(&g.versions[a]), g.priority(&g.versions[b]))
	})
}

// shareTable makes v keep the table of another version, if both were made of the same resources. A table with a
// resource list is that of one version.
func (v *Version) shareTable(other *Version) {
	if v.Table.ResourceList() != nil || other.Table.ResourceList() != nil {
		return
	}
	if v.Table.sameRows(other.Table) {
		v.Table = other.Table
	}
}

// priority follows newDiscoveryRESTMapper in k8s.io/client-go/restmapper: v1 of the core group comes before all
// others, then the preferred version, then the others in server order.
func (g *Group) priority(v *Version) int {
	switch {
	case g.isCore() && v.Name == "v1":
		return 0
	case v.Name == g.preferred:
		return 1
	default:
		return 2
	}
}

func (g *Group) isCore() bool { return g.name == "" }

// Name returns the group's name; "" is the core group.
func (g *Group) Name() string { return g.name }

// Preferred returns the version that the server prefers, which it may not serve.
func (g *Group) Preferred() string { return g.preferred }

// Versions returns the group's versions in server order. The caller must not change them.
func (g *Group) Versions() []Version {
	if g.overlay == nil {
		return g.versions
	}
	served := make([]Version, 0, len(g.versions))
	for i, v := range g.versions {
		if !g.removed(i) {
			served = append(served, v)
		}
	}
	return served
}

// Version returns the version of that name. It returns nil if that is not known or was found removed. g may be nil.
func (g *Group) Version(name string) *Version {
	i := g.indexOf(name)
	if i < 0 || g.removed(i) {
		return nil
	}
	return &g.versions[i]
}

// indexOf returns where in g.versions the version of that name stands, or -1. g may be nil.
func (g *Group) indexOf(name string) int {
	if g == nil {
		return -1
	}
	for i := range g.versions {
		if g.versions[i].Name == name {
			return i
		}
	}
	return -1
}

func (g *Group) names() []string {
	names := make([]string, len(g.versions))
	for i := range g.versions {
		names[i] = g.versions[i].Name
	}
	return names
}

// count counts the versions, with those that were removed. g may be nil.
func (g *Group) count() int {
	if g == nil {
		return 0
	}
	return len(g.versions)
}

// table returns what a version serves, or nil if that is not known. g may be nil.
func (g *Group) table(version string) *Table {
	i := g.indexOf(version)
	if i < 0 {
		return nil
	}
	return g.versions[i].Table
}

// overlayReads returns the reads of a version: none in a group of the document.
func (g *Group) overlayReads(i int) versionReads {
	if g.overlay == nil {
		return versionReads{}
	}
	return g.overlay.reads[i]
}

// removed reports whether a version was found removed.
func (g *Group) removed(i int) bool { return g.overlayReads(i).removed }

// ClearUsed forgets that lookups were answered from the group, and reports whether one was since the last call.
func (g *Group) ClearUsed() bool { return g.overlay != nil && g.overlay.used.Swap(false) }

// markUsed notes that a lookup is answered from the group. It does not write if that is known.
func (g *Group) markUsed() {
	if g.overlay != nil {
		mark(g.overlay.used)
	}
}

// mark sets a flag, without writing if it is set: then the processors need not pass it around.
func mark(flag *atomic.Bool) {
	if !flag.Load() {
		flag.Store(true)
	}
}

// groupRead returns the last read of group discovery. g may be nil.
func (g *Group) groupRead() Seq {
	if g == nil || g.overlay == nil {
		return 0
	}
	return g.overlay.groupRead
}

// confirmedBy reports whether the document whose read began at a sequence number has all that is known of g: no live
// read is younger. documented is what the document has of the group, or nil.
func (g *Group) confirmedBy(documented *Group, began Seq) bool {
	if documented == nil || !g.sameAsDocument(documented) {
		return false
	}
	last := g.groupRead()
	for i := range g.versions {
		last = max(last, g.overlayReads(i).tried)
	}
	return last < began
}

// served lists the positions of the versions that were not found removed: in server order, or the best one first. g
// may be nil.
func (g *Group) served(bestFirst bool) []int {
	if g == nil {
		return nil
	}
	positions := make([]int, 0, len(g.versions))
	for i := range g.versions {
		if bestFirst {
			i = int(g.ranked[i])
		}
		if !g.removed(i) {
			positions = append(positions, i)
		}
	}
	return positions
}

func (g *Group) servesNothing() bool {
	for i := range g.versions {
		if !g.removed(i) {
			return false
		}
	}
	return true
}

// sameAnswers reports whether lookups in both groups have the same answers in the same order. A
// version that was listed before and is now read for the first time is no difference: it was
// served all along. g and other may be nil.
func (g *Group) sameAnswers(other *Group) bool {
	if g == other {
		return true
	}
	sameName := func(i, j int) bool { return g.versions[i].Name == other.versions[j].Name }
	sameVersion := func(i, j int) bool {
		a, b := &g.versions[i], &other.versions[j]
		if !sameName(i, j) {
			return false
		}
		return a.onlyListed() || b.onlyListed() || a.Table.sameAnswers(b.Table)
	}
	return slices.EqualFunc(g.served(true), other.served(true), sameName) &&
		slices.EqualFunc(g.served(false), other.served(false), sameVersion)
}

// sameResourceLists reports whether both groups, which have the same versions, have the same resource lists of them.
func (g *Group) sameResourceLists(other *Group) bool {
	return slices.EqualFunc(g.versions, other.versions, func(a, b Version) bool {
		return a.Table.sameResourceList(b.Table)
	})
}

// sameAsDocument reports whether g answers as a document's group does: the same versions in the same order, and of
// each the same answers or a failure. documented may be nil.
func (g *Group) sameAsDocument(documented *Group) bool {
	if g == documented {
		return true
	}
	if documented == nil || g.preferred != documented.preferred || len(g.versions) != len(documented.versions) {
		return false
	}
	for i := range g.versions {
		if g.removed(i) || !g.versions[i].sameAsDocument(&documented.versions[i]) {
			return false
		}
	}
	return true
}

// contradicts reports whether live reads have found other versions in g than the document has, or other resources in
// one of them. Reads that failed have found nothing. g is nil if live reads have found that the group is gone.
func (g *Group) contradicts(documented *Group) bool {
	if g == nil || len(g.versions) != len(documented.versions) {
		return true
	}
	for _, version := range documented.versions {
		i := g.indexOf(version.Name)
		if i < 0 || g.removed(i) {
			return true
		}
		if !version.onlyListed() && !g.versions[i].Table.sameAnswers(version.Table) {
			return true
		}
	}
	return false
}

// sameAsDocument reports whether a document says of a version what is known of it. A document that only lists the
// version says no more than its name.
func (v *Version) sameAsDocument(documented *Version) bool {
	if v.Name != documented.Name {
		return false
	}
	if documented.onlyListed() {
		return true
	}
	sameFailure := (v.Err == nil) == (documented.Err == nil)
	return sameFailure && v.Table.sameAnswers(documented.Table)
}
