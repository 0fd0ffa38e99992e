// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/restmapper"
)

func isNoMatch(err error) bool { return meta.IsNoMatchError(err) }

// ask puts q to client-go's mapper over d.
func (d document) ask(q query) answer {
	return q.askLibrary(restmapper.NewDiscoveryRESTMapper(d.library()))
}

func (q query) resourceName() string { return q.gvr.Resource + q.resource }

// searches says that q is put to several groups or versions.
func (q query) searches() bool {
	switch q.method {
	case restMapping, restMappings:
		return false
	case resourceSingularizer:
		return true
	default:
		return q.gvr.Group == "" || q.gvr.Version == "" || q.gvr.Version == "__internal"
	}
}

// selects says that the answer to q may come from group.
func (q query) selects(group string) bool {
	switch {
	case q.method == resourceSingularizer:
		return true
	case q.method == restMapping || q.method == restMappings:
		return group == q.gk.Group
	case q.searches():
		return strings.HasPrefix(group, q.gvr.Group)
	default:
		return group == q.gvr.Group
	}
}

// endsInCore says that q names no group and was answered by v1 of the core group,
// which comes before all others.
func (q query) endsInCore(a answer) bool {
	if q.gvr.Group != "" || a.err != nil {
		return false
	}
	switch value := a.value.(type) {
	case schema.GroupVersionKind:
		return value.GroupVersion() == schema.GroupVersion{Version: "v1"}
	case schema.GroupVersionResource:
		return value.GroupVersion() == schema.GroupVersion{Version: "v1"}
	}
	return false
}

// spoilers are contents that a version may turn out to have, the first of them
// nothing, each bound to change the answer to q if any can.
func (q query) spoilers() [][]Resource {
	name := strings.ToLower(q.resourceName())
	return [][]Resource{
		nil,
		{{Name: name, Singular: "spoiler", Kind: "Spoiler"}, {Name: "spoilers2", Singular: "spoiler2", Kind: q.gk.Kind}},
		{{Name: "spoilers", Singular: name, Kind: "Spoiler"}},
	}
}

// sequence is a server, what a mapper knows of it, and the model of that.
type sequence struct {
	dice   dice
	server document
	snap   *Snapshot
	model  *model
	reads  []begun // that have not ended
}

// begun is when a read began: as the snapshot numbers it, and truly.
type begun struct {
	clock uint64
	at    int
}

func TestRandomSequences(t *testing.T) {
	seeds := []uint64{1, 2, 3, 4, 5, 6, 7, uint64(time.Now().UnixNano())}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 1))
			for range 5 {
				q := &sequence{dice: random, server: randomDocument(random), snap: new(Snapshot), model: &model{groupReset: map[string]int{}}}
				if err := q.run(40); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	t.Logf("the last seed was random: %v", seeds)
}

// run takes steps until one fails.
func (q *sequence) run(steps int) error {
	var log []string
	for range steps {
		q.changeServer()
		before, was := q.snap, q.model.clone()
		log = append(log, q.step())
		if err := q.check(before); err != nil {
			for i, step := range log[:len(log)-1] {
				log[i], _, _ = strings.Cut(step, "{")
			}
			return fmt.Errorf("%w\nbefore the last of these steps, the model was %+v\n%s", err, was, strings.Join(log, "\n"))
		}
	}
	return nil
}

// changeServer changes this and that on the server.
func (q *sequence) changeServer() {
	q.server = q.server.clone()
	if len(q.server) == 0 || oneIn(q.dice, 20) {
		q.server = randomDocument(q.dice)
		return
	}
	i := q.dice.IntN(len(q.server))
	g := &q.server[i]
	switch q.dice.IntN(12) {
	case 0:
		q.server = slices.Delete(q.server, i, i+1)
	case 1:
		if name := pick(q.dice, groupWords); !slices.ContainsFunc(q.server, func(g docGroup) bool { return g.name == name }) {
			q.server = slices.Insert(q.server, i, randomGroup(q.dice, name))
		}
	case 2:
		q.server[0], q.server[i] = q.server[i], q.server[0]
	case 3:
		*g = randomGroup(q.dice, g.name)
	case 4:
		g.preferred = pick(q.dice, versionWords)
	case 5, 6, 7:
		if len(g.versions) > 0 {
			changeVersions(q.dice, g)
		}
	}
}

func changeVersions(d dice, g *docGroup) {
	i := d.IntN(len(g.versions))
	v := &g.versions[i]
	switch {
	case oneIn(d, 5):
		g.versions = slices.Delete(g.versions, i, i+1)
	case oneIn(d, 5):
		g.versions[0], g.versions[i] = g.versions[i], g.versions[0]
	case len(v.resources) == 0 || oneIn(d, 5):
		v.resources = randomResources(d)
	case oneIn(d, 3):
		slices.Reverse(v.resources)
	default:
		r := &v.resources[d.IntN(len(v.resources))]
		switch d.IntN(4) {
		case 0:
			r.Namespaced = !r.Namespaced
		case 1:
			r.Name = pick(d, nameWords)
		case 2:
			r.Singular = pick(d, nameWords)
		case 3:
			*r = randomResource(d)
		}
	}
}

// step does one thing to both and says what.
func (q *sequence) step() string {
	group, version, _ := randomResourceOf(q.dice, q.server)
	if oneIn(q.dice, 8) {
		group = pick(q.dice, groupWords)
	}
	switch q.dice.IntN(12) {
	case 0:
		q.reads = append(q.reads, begun{q.snap.Clock(), q.model.tick()})
		return "a read begins"
	case 1:
		q.snap, q.model.reset = q.snap.Reset(), q.model.tick()
		return "Reset"
	case 2:
		q.snap, q.model.groupReset[group] = q.snap.ResetGroup(group), q.model.tick()
		return fmt.Sprintf("ResetGroup %q", group)
	case 3, 4, 5:
		return q.bulk()
	case 6, 7:
		return q.readGroup(group)
	default:
		return q.readVersion(group, version)
	}
}

// began is a read that is ending now; most begin now as well.
func (q *sequence) began() begun {
	if len(q.reads) == 0 || !oneIn(q.dice, 3) {
		return begun{q.snap.Clock(), q.model.tick()}
	}
	i := q.dice.IntN(len(q.reads))
	read := q.reads[i]
	q.reads = slices.Delete(q.reads, i, i+1)
	return read
}

func (q *sequence) bulk() string {
	began, legacy := q.began(), oneIn(q.dice, 2)
	var groups []*Group
	var found []modelGroup
	for _, g := range q.server {
		group := q.found(g, func() (bool, error) {
			switch {
			case legacy:
				return false, nil
			case oneIn(q.dice, 8):
				return false, errUnread
			}
			return true, nil
		})
		found = append(found, group)
		groups = append(groups, q.share(group.snapshotGroup()))
	}
	q.snap = q.snap.WithBulk(NewList(groups, !legacy), began.clock)
	q.model.bulk(found, began.at)
	return fmt.Sprintf("WithBulk, begun %d, %v", began.at, found)
}

// share returns the group that the snapshot has already, if it is equal.
func (q *sequence) share(g *Group) *Group {
	if old := q.snap.Group(g.name); old.equal(g) {
		return old
	}
	return g
}

// found makes what a read finds of g; read says for each version how it went.
func (q *sequence) found(g docGroup, read func() (bool, error)) modelGroup {
	found := modelGroup{name: g.name, preferred: g.preferred, listed: true}
	for _, v := range g.versions {
		version := modelVersion{docVersion: docVersion{name: v.name}}
		if version.read, version.err = read(); version.read {
			version.resources = v.resources
		}
		found.versions = append(found.versions, version)
	}
	return found
}

func (g *modelGroup) snapshotGroup() *Group {
	var versions []Version
	for _, v := range g.versions {
		versions = append(versions, v.snapshotVersion())
	}
	return NewGroup(g.name, g.preferred, versions, true)
}

func (v *modelVersion) snapshotVersion() Version {
	version := Version{Name: v.name, Err: v.err}
	if v.read {
		version.Table = NewTable(v.resources)
	}
	return version
}

func (q *sequence) readGroup(group string) string {
	began := q.began()
	i := slices.IndexFunc(q.server, func(g docGroup) bool { return g.name == group })
	if i < 0 || len(q.server[i].versions) == 0 {
		q.snap = q.snap.WithoutGroup(group, began.clock)
		q.model.group(modelGroup{name: group}, began.at)
		return fmt.Sprintf("WithoutGroup %q, begun %d", group, began.at)
	}
	found := q.found(q.server[i], func() (bool, error) {
		if oneIn(q.dice, 6) {
			return false, errUnread
		}
		return true, nil
	})
	q.snap = q.snap.WithGroup(found.snapshotGroup(), began.clock)
	q.model.group(found, began.at)
	return fmt.Sprintf("WithGroup, begun %d, %v", began.at, found)
}

func (q *sequence) readVersion(group, version string) string {
	v := q.server.version(group, version)
	if oneIn(q.dice, 4) {
		err := errors.New("another reason")
		q.snap = q.snap.WithFailedVersion(group, version, err)
		q.model.failedVersion(group, version, err)
		return fmt.Sprintf("WithFailedVersion %q %s", group, version)
	}
	if v == nil || oneIn(q.dice, 10) {
		q.snap = q.snap.WithoutVersion(group, version)
		q.model.withoutVersion(group, version)
		return fmt.Sprintf("WithoutVersion %q %s", group, version)
	}
	found := modelVersion{docVersion: docVersion{name: version, read: true, resources: v.resources}}
	q.snap = q.snap.WithVersion(group, found.snapshotVersion())
	q.model.version(group, found)
	return fmt.Sprintf("WithVersion %q %v", group, found)
}

// check compares the snapshot with the model, and with the one before.
func (q *sequence) check(before *Snapshot) error {
	if err := checkInvariants(q.snap); err != nil {
		return err
	}
	if err := q.model.compareState(q.snap); err != nil {
		return err
	}
	doc := q.model.document()
	library := restmapper.NewDiscoveryRESTMapper(doc.library())
	for range 4 {
		if err := q.model.compareAnswer(q.snap, doc, library, randomQuery(q.dice, doc)); err != nil {
			return err
		}
	}
	if err := checkSharing(before, q.snap); err != nil {
		return err
	}
	return checkDiff(before, q.snap)
}

// checkSharing returns what b made anew although it is as it was in a.
func checkSharing(a, b *Snapshot) error {
	for _, g := range b.groups {
		if old := a.Group(g.name); old != g && old.equal(g) {
			return fmt.Errorf("group %q is equal and not the same", g.name)
		}
	}
	return nil
}

// checkDiff applies the changes from a to b and looks whether that makes b.
func checkDiff(a, b *Snapshot) error {
	kinds := a.kindSet()
	place := -1
	order := append(a.kindOrder(), b.kindOrder()...)
	for _, c := range Diff(a, b) {
		gvk := c.Mapping.GroupVersionKind
		now, had := kinds[gvk]
		next := kindState{c.Mapping.Resource.Resource, c.Mapping.Scope.Name(), b.isPreferred(gvk)}
		from := 0
		switch c.Type {
		case Removed:
			if next.preferred = a.isPreferred(gvk); !had || now != next {
				return fmt.Errorf("removed %v, which was %v (%v)", c.Mapping, now, had)
			}
			delete(kinds, gvk)
		case Added:
			if from = len(a.kindOrder()); had {
				return fmt.Errorf("added %v, which was there", c.Mapping)
			}
			kinds[gvk] = next
		case Changed:
			if from = len(a.kindOrder()); !had || now == next {
				return fmt.Errorf("changed %v, which was %v (%v)", c.Mapping, now, had)
			}
			kinds[gvk] = next
		}
		at := from + slices.Index(order[from:], gvk)
		if at <= place {
			return fmt.Errorf("%v is out of order", c.Mapping)
		}
		place = at
	}
	want := b.kindSet()
	for gvk, state := range kinds {
		// That a kind lost its place as the preferred one is not listed.
		if state.preferred && !want[gvk].preferred {
			state.preferred = false
			kinds[gvk] = state
		}
	}
	if !maps.Equal(kinds, want) {
		return fmt.Errorf("the changes lead to %v, not %v", kinds, want)
	}
	return nil
}

// kindState is what Diff compares of a kind.
type kindState struct {
	resource  string
	scope     meta.RESTScopeName
	preferred bool // a lookup without a version ends here
}

func (s *Snapshot) kindSet() map[schema.GroupVersionKind]kindState {
	kinds := map[schema.GroupVersionKind]kindState{}
	for _, gvk := range s.kindOrder() {
		m, _, _ := s.RESTMapping(gvk.GroupKind(), []string{gvk.Version})
		kinds[gvk] = kindState{m.Resource.Resource, m.Scope.Name(), s.isPreferred(gvk)}
	}
	return kinds
}

func (s *Snapshot) isPreferred(gvk schema.GroupVersionKind) bool {
	m, _, err := s.RESTMapping(gvk.GroupKind(), nil)
	return err == nil && m.GroupVersionKind == gvk
}

// kindOrder lists the kinds of s as the server does; of one listed twice, the last counts.
func (s *Snapshot) kindOrder() []schema.GroupVersionKind {
	var all []schema.GroupVersionKind
	for _, g := range s.groups {
		for _, v := range g.versions {
			if v.Table == nil {
				continue
			}
			for i, r := range v.Table.rows {
				if !slices.ContainsFunc(v.Table.rows[i+1:], func(later Resource) bool { return later.Kind == r.Kind }) {
					all = append(all, schema.GroupVersionKind{Group: g.name, Version: v.Name, Kind: r.Kind})
				}
			}
		}
	}
	return all
}
