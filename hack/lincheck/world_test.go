// SPDX-License-Identifier: Apache-2.0

package lincheck

import (
	"math/rand/v2"
	"slices"
	"strings"

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
