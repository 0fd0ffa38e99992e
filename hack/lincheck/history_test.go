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
	return fmt.Sprintf("%s namespaced=%t", namesOf(filter(allVersions, s.in)), s.Namespaced)
}

func namesOf(versions []int) (names []string) {
	for _, v := range versions {
		names = append(names, versionNames[v])
	}
	return names
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

// describe tells of some groups, or of all.
func (w World) describe(groups ...int) string {
	var text strings.Builder
	for g, kinds := range w {
		if len(groups) > 0 && !slices.Contains(groups, g) {
			continue
		}
		fmt.Fprintf(&text, " %s:", groupNames[g])
		for k, s := range kinds {
			if s.Versions != 0 {
				fmt.Fprintf(&text, " %s %s;", kindNames[k], s)
			}
		}
	}
	return text.String()
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
	g, kind := [...]int{0, 1, 3}[rnd.IntN(3)], rnd.IntN(2)
	switch s := w[g][kind]; {
	case rnd.IntN(8) == 0:
		w[g] = [len(kindNames)]State{}
	case s.Versions != 0 && rnd.IntN(3) == 0:
		w[g][kind] = State{}
	case s.Versions != 0 && rnd.IntN(2) == 0:
		w[g][kind].Namespaced = !s.Namespaced
	default:
		w[g][kind] = State{Versions: uint8(1 + rnd.IntN(7)), Namespaced: rnd.IntN(2) == 0}
	}
	return w
}

// serveAt makes a fake server serve the world, as one API server of a cluster: what a peer
// serves alone is in its documents only. A list of kinds has them in the order of kindNames,
// a document in the opposite one: the order is no change.
func (w World) serveAt(server *fakeapi.Server, document bool) {
	peer := w[groupBatch][kindOfPeer]
	w[groupBatch][kindOfPeer] = State{}
	server.SetGroups(append(fakeapi.Typical(0, 0, 0), w.groups(document)...)...)
	if peer.Versions != 0 {
		var alone World
		alone[groupBatch][kindOfPeer] = peer
		server.SetPeers(alone.groups(document)...)
	}
}

// groups is the world for the fake server.
func (w World) groups(backwards bool) (list []fakeapi.Group) {
	for g, name := range groupNames {
		group := fakeapi.Group{Name: name}
		for _, version := range w.versions(g) {
			v := fakeapi.Version{Name: versionNames[version]}
			for k, s := range w[g] {
				if s.in(version) {
					v.Resources = append(v.Resources, fakeapi.Resource{
						Name: resourceName(k), Singular: strings.ToLower(kindNames[k]), Kind: kindNames[k], Namespaced: s.Namespaced,
					})
				}
			}
			if backwards {
				slices.Reverse(v.Resources)
			}
			group.Versions = append(group.Versions, v)
		}
		if w.lists(g) {
			list = append(list, group)
		}
	}
	return list
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
	Lag      int  // 0: the document follows each change at once; else it follows one time in so many, in part

	Ops      []*Op
	Requests []*Request
	Faults   []*Fault

	mu       sync.Mutex // guards all above while the run lasts
	seq      int
	timeline []string
	start    time.Time
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

func (r *Request) answer() string {
	switch {
	case r.Err != nil:
		return r.Err.Error()
	case r.Fault != nil:
		return fmt.Sprintf("%d, fault %s", r.Code, r.Fault.Kind)
	case r.live():
		return fmt.Sprintf("%d of%s", r.Code, r.World.describe(r.Group))
	}
	return fmt.Sprintf("%d of%s", r.Code, r.World.describe())
}

func (r *Request) failed() bool { return r.Fault != nil || r.Err != nil }

func (r *Request) live() bool { return r.Group >= 0 }

// An OpKind is a method of the mapper.
type OpKind string

const (
	OpMapping  OpKind = "RESTMapping"
	OpMappings OpKind = "RESTMappings"
	OpKindFor  OpKind = "KindFor"
	OpReset    OpKind = "Reset"
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
		text += fmt.Sprintf(" namespaced=%t", f.Namespaced)
	}
	return text
}

func (o *Op) lookup() bool { return o.Kind != OpReset }

// byPrefix reports whether a lookup is about all groups whose names begin with its own.
func (o *Op) byPrefix() bool {
	return o.Kind == OpKindFor && (len(o.Versions) == 0 || o.Group == "")
}

// groups lists the groups in which a lookup may find something, in server order.
func (o *Op) groups() (list []int) {
	for g, name := range groupNames {
		if name == o.Group || o.byPrefix() && strings.HasPrefix(name, o.Group) {
			list = append(list, g)
		}
	}
	return list
}

// versions lists the versions asked for: in the order of the question if there is one, else all in server order.
func (o *Op) versions() (list []int) {
	if len(o.Versions) == 0 {
		return allVersions
	}
	for _, name := range o.Versions {
		list = append(list, slices.Index(versionNames[:], name))
	}
	return list
}

func (o *Op) String() string {
	if !o.lookup() {
		return fmt.Sprintf("%s(%s)", o.Kind, o.Group)
	}
	return fmt.Sprintf("%s(%q %s %v)", o.Kind, o.Group, kindNames[o.Name], o.Versions)
}

// outcome says how a call ended, in a word.
func (o *Op) outcome() string {
	switch {
	case !o.lookup():
		return "reset"
	case o.NoMatch:
		return "NoMatch"
	case o.Err != nil:
		return "error"
	}
	return "found"
}

func (o *Op) answer() string {
	if o.Err != nil {
		return "error: " + o.Err.Error()
	}
	return fmt.Sprint(o.outcome(), " ", o.Found)
}

// note runs change with the stamp of now, under the history's lock. What it returns is a line of the timeline.
func (h *History) note(change func(now Stamp) string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seq++
	now := Stamp{Seq: h.seq, At: time.Since(h.start)}
	h.timeline = append(h.timeline, fmt.Sprintf("%6d %12s  %s", now.Seq, now.At, change(now)))
}

func (h *History) mode() string {
	if h.Legacy {
		return "legacy"
	}
	return "aggregated"
}

// String returns what kind of history it is.
func (h *History) String() string {
	return fmt.Sprintf("%s seed %d (document follows one change in %d; without faults: %t; a peer: %t; two replicas: %t; no Audit-Ids: %t)",
		h.mode(), h.Seed, h.Lag, h.Calm, h.Peer, h.Replicas, h.NoIDs)
}
