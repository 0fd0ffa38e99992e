// SPDX-License-Identifier: Apache-2.0

package lincheck

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// The names of everything that is ever served, in the server's order, which is nobody
// else's. One group's name begins with another's; Job in batch is always there.
var (
	groupNames   = [...]string{"example.com", "apps.example.com", "batch", "apps"}
	kindNames    = [...]string{"Widget", "Gadget", "Job"}
	versionNames = [...]string{"v1", "v2", "v1beta1"}
	allVersions  = []int{0, 1, 2}
)

const (
	groupBatch = 2
	kindJob    = 2
	kindOfPeer = 1 // in batch
)

// builtIn reports whether another API server of the cluster may serve what this one does not: no
// group of a CustomResourceDefinition or an APIService.
func builtIn(group int) bool { return !strings.Contains(groupNames[group], ".") }

// A State is how one kind of one group is served: as a CustomResourceDefinition
// it has one scope in all its versions. The zero value is a kind that is absent.
type State struct {
	Versions   uint8 // bit n stands for versionNames[n]
	Namespaced bool
}

func (s State) in(version int) bool { return s.Versions&(1<<version) != 0 }

func (s State) String() string {
	if s.Versions == 0 {
		return "absent"
	}
	return strings.Join(namesOf(filter(allVersions, s.in)), ",") + " " + scope(s.Namespaced)
}

func namesOf(versions []int) (names []string) {
	for _, v := range versions {
		names = append(names, versionNames[v])
	}
	return names
}

func scope(namespaced bool) string {
	if namespaced {
		return "namespaced"
	}
	return "cluster"
}

// A World is all that is served at one moment. It is a value.
type World [len(groupNames)][len(kindNames)]State

// has reports whether a version of a group is served.
func (w World) has(group, version int) bool {
	return slices.ContainsFunc(w[group][:], func(s State) bool { return s.in(version) })
}

func (w World) versions(group int) []int {
	return filter(allVersions, func(version int) bool { return w.has(group, version) })
}

func (w World) lists(group int) bool { return len(w.versions(group)) > 0 }

// groupString describes a group for the timeline.
func (w World) groupString(group int) string {
	var parts []string
	for k, s := range w[group] {
		if s.Versions != 0 {
			parts = append(parts, kindNames[k]+" "+s.String())
		}
	}
	if len(parts) == 0 {
		return groupNames[group] + ": absent"
	}
	return groupNames[group] + ": " + strings.Join(parts, "; ")
}

func firstWorld(rnd *rand.Rand, peer bool) World {
	var w World
	if peer {
		w[groupBatch][kindOfPeer] = State{Versions: 1, Namespaced: true}
	}
	w[groupBatch][kindJob] = State{Versions: 1 << 1, Namespaced: true}
	for range 6 {
		w = w.next(rnd)
	}
	return w
}

// next is the world after one change: a kind or a whole group comes or goes,
// changes its scope, or is served in other versions.
func (w World) next(rnd *rand.Rand) World {
	g := [...]int{0, 1, 3}[rnd.IntN(3)]
	if rnd.IntN(8) == 0 {
		w[g] = [len(kindNames)]State{}
		return w
	}
	s := &w[g][rnd.IntN(2)]
	switch {
	case s.Versions == 0:
		*s = State{Versions: uint8(1 + rnd.IntN(7)), Namespaced: rnd.IntN(2) == 0}
	case rnd.IntN(3) == 0:
		*s = State{}
	case rnd.IntN(2) == 0:
		s.Namespaced = !s.Namespaced
	default:
		s.Versions = moved(rnd, s.Versions)
	}
	return w
}

// moved returns other versions; half the time none of them is among the old ones.
func moved(rnd *rand.Rand, old uint8) uint8 {
	versions := uint8(1 + rnd.IntN(7))
	if others := versions &^ old; others != 0 && rnd.IntN(2) == 0 {
		return others
	}
	if versions == old {
		return 1 << rnd.IntN(3)
	}
	return versions
}

// serveAt makes a fake server serve the world, as one API server of a cluster: what a peer
// serves alone is in its documents only. A list of kinds has them in the order of kindNames,
// a document in the opposite one: the order is no change.
func (w World) serveAt(server *fakeapi.Server, document bool) {
	peer := w[groupBatch][kindOfPeer]
	w[groupBatch][kindOfPeer] = State{}
	groups := w.groups()
	if document {
		for _, g := range groups {
			for _, v := range g.Versions {
				slices.Reverse(v.Resources)
			}
		}
	}
	server.SetGroups(groups...)
	if peer.Versions != 0 {
		var alone World
		alone[groupBatch][kindOfPeer] = peer
		server.SetPeers(alone.groups()[1])
	}
}

// groups is the world for the fake server.
func (w World) groups() []fakeapi.Group {
	core := fakeapi.Resource{Name: "pods", Singular: "pod", Kind: "Pod", Namespaced: true}
	list := []fakeapi.Group{{Versions: []fakeapi.Version{{Name: "v1", Resources: []fakeapi.Resource{core}}}}}
	for g, name := range groupNames {
		if !w.lists(g) {
			continue
		}
		group := fakeapi.Group{Name: name}
		for _, v := range w.versions(g) {
			group.Versions = append(group.Versions, w.version(g, v))
		}
		list = append(list, group)
	}
	return list
}

func (w World) version(group, version int) fakeapi.Version {
	v := fakeapi.Version{Name: versionNames[version]}
	for k, s := range w[group] {
		if s.in(version) {
			v.Resources = append(v.Resources, fakeapi.Resource{
				Name: resourceName(k), Singular: strings.ToLower(kindNames[k]), Kind: kindNames[k], Namespaced: s.Namespaced,
			})
		}
	}
	return v
}

func resourceName(kind int) string { return strings.ToLower(kindNames[kind]) + "s" }

// A Stamp is a moment. Seq orders all moments of a history; At is the virtual
// time, which stands still while anything runs.
type Stamp struct {
	Seq int
	At  time.Duration
}

func (s Stamp) before(t Stamp) bool { return s.Seq < t.Seq }

// A History is all that happened in one run, each list in the order of its
// beginnings. The lists are not changed any more when the run has ended.
type History struct {
	Seed     uint64
	Legacy   bool
	Calm     bool // without faults
	Peer     bool // a peer alone serves Gadget in batch
	Replicas bool // two replicas answer in turn: one as of now, and one that is behind like the document
	NoIDs    bool // no answer of the server has an Audit-Id
	Document Lag

	Ops      []*Op
	Requests []*Request
	Worlds   []Change // changes of what is served live; the first is the start
	Docs     []Change // changes of what is behind: the document, or all that the older replica says
	Faults   []*Fault

	mu    sync.Mutex // guards all above while the run lasts
	seq   int
	start time.Time
}

// A Lag is how far the document is behind what is served.
type Lag int

// The lags of a document.
const (
	LagNone Lag = iota // but for the moment between the two changes
	LagSome
	LagMuch
)

func (l Lag) String() string { return [...]string{"up to date", "behind", "far behind"}[l] }

// A Change is a world and when it began.
type Change struct {
	Stamp
	World World
}

// A Fault is a time in which a part of the server fails.
type Fault struct {
	From, Until Stamp
	Group       int // of the live endpoints of a group; or the document, or all there is
	Version     int // of its path alone; or everyVersion
	Kind        fakeapi.Fault
}

const (
	theServer    = -2
	theDocument  = -1
	everyVersion = -1
)

// meets reports whether a request meets the fault.
func (f *Fault) meets(r *Request) bool {
	switch f.Group {
	case theServer:
		return true
	case theDocument:
		return !r.live()
	}
	return f.Group == r.Group && (f.Version == everyVersion || f.Version == r.Version)
}

func (f *Fault) String() string {
	where := append([]string{"the server", "the document"}, groupNames[:]...)[f.Group+2]
	if f.Version != everyVersion {
		where += "/" + versionNames[f.Version]
	}
	return where + ", " + f.Kind.String()
}

// concerns reports whether a lookup may need what the fault is about.
func (f *Fault) concerns(o *Op) bool {
	return f.Group < 0 || slices.Contains(o.groups(), f.Group) &&
		(f.Version == everyVersion || slices.Contains(o.versions(), f.Version))
}

// A Request is one that the mapper sent and what came back.
type Request struct {
	Path       string
	Group      int  // -1: of none of ours
	Version    int  // -1: of the group itself
	Doc        bool // for /apis
	Start, End Stamp
	World      World // whose truth the answer tells, if it has not failed
	Code       int
	Fault      *Fault // nil: it was answered truly
	Err        error
}

func (r *Request) failed() bool { return r.Fault != nil || r.Err != nil }

func (r *Request) live() bool { return r.Group >= 0 }

// An OpKind is a method of the mapper.
type OpKind int

// The methods that are called.
const (
	OpMapping OpKind = iota
	OpMappings
	OpKindFor
	OpReset
	OpResetGroup
)

// An Op is one call of the mapper.
type Op struct {
	Client       int
	Kind         OpKind
	Group        string   // may be partial or empty for OpKindFor
	Versions     []string // none: any
	Name         int      // of kindNames
	Call, Return Stamp

	Found    []Found
	NoMatch  bool
	Err      error // any other error
	Panicked bool
}

// Found is one mapping, or one kind, that was returned.
type Found struct {
	Group, Version, Kind int
	Namespaced, Scoped   bool // Scoped: the answer says the scope
}

func (f Found) String() string {
	text := fmt.Sprintf("%s/%s %s", groupNames[f.Group], versionNames[f.Version], kindNames[f.Kind])
	if f.Scoped {
		text += " " + scope(f.Namespaced)
	}
	return text
}

func (o *Op) lookup() bool { return o.Kind != OpReset && o.Kind != OpResetGroup }

// byPrefix reports whether a lookup is about all groups whose names begin with its own.
func (o *Op) byPrefix() bool {
	return o.Kind == OpKindFor && (len(o.Versions) == 0 || o.Group == "")
}

// groups lists the groups in which a lookup may find something, in server order.
func (o *Op) groups() []int {
	var list []int
	for g, name := range groupNames {
		if name == o.Group || o.byPrefix() && strings.HasPrefix(name, o.Group) {
			list = append(list, g)
		}
	}
	return list
}

// versions lists the versions asked for: in the order of the question if there
// is one, else all in server order.
func (o *Op) versions() []int {
	var list []int
	for _, name := range o.Versions {
		list = append(list, slices.Index(versionNames[:], name))
	}
	if len(list) == 0 {
		return allVersions
	}
	return list
}

func (o *Op) String() string {
	switch o.Kind {
	case OpReset:
		return "Reset()"
	case OpResetGroup:
		return fmt.Sprintf("ResetGroup(%s)", o.Group)
	case OpKindFor:
		return fmt.Sprintf("KindFor(%q %q %s)", o.Group, strings.Join(o.Versions, ","), resourceName(o.Name))
	case OpMappings:
		return fmt.Sprintf("RESTMappings(%s %s %v)", o.Group, kindNames[o.Name], o.Versions)
	default:
		return fmt.Sprintf("RESTMapping(%s %s %v)", o.Group, kindNames[o.Name], o.Versions)
	}
}

func (o *Op) answer() string {
	switch {
	case !o.lookup():
		return "done"
	case o.NoMatch:
		return "NoMatch"
	case o.Err != nil:
		return fmt.Sprintf("error: %v", o.Err)
	default:
		return fmt.Sprint(o.Found)
	}
}

// note runs change with the stamp of now, under the history's lock.
func (h *History) note(change func(now Stamp)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seq++
	change(Stamp{Seq: h.seq, At: time.Since(h.start)})
}

func (h *History) mode() string {
	if h.Legacy {
		return "legacy"
	}
	return "aggregated"
}

// String returns what kind of history it is.
func (h *History) String() string {
	trouble := "faults"
	if h.Calm {
		trouble = "no faults"
	}
	if h.Peer {
		trouble += ", a peer"
	}
	if h.Replicas {
		trouble += ", two replicas"
	}
	if h.NoIDs {
		trouble += ", no Audit-Ids"
	}
	return fmt.Sprintf("%s seed %d (document %s, %s)", h.mode(), h.Seed, h.Document, trouble)
}
