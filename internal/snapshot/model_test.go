// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/restmapper"
)

// model is a Snapshot in the plainest form: a list of groups, changed in place,
// and the moments at which things happened.
type model struct {
	groups     []modelGroup
	read       bool
	ordered    bool
	generation uint64

	now        int            // counts all events
	reset      int            // when everything was last reset
	bulkBegan  int            // when the latest bulk read began
	groupReset map[string]int // when groups were reset that have not been read since
}

type modelGroup struct {
	name      string
	preferred string
	listed    bool
	versions  []modelVersion
}

type modelVersion struct {
	docVersion
	outdated bool
	err      error
}

func (v *modelVersion) known() bool { return v.read && !v.outdated }

func (m *model) tick() int {
	m.now++
	return m.now
}

func (m *model) clone() *model {
	c := *m
	c.groups = slices.Clone(m.groups)
	for i := range c.groups {
		c.groups[i].versions = slices.Clone(m.groups[i].versions)
	}
	c.groupReset = maps.Clone(m.groupReset)
	return &c
}

func (m *model) find(group string) int {
	return slices.IndexFunc(m.groups, func(g modelGroup) bool { return g.name == group })
}

func (g *modelGroup) find(version string) int {
	return slices.IndexFunc(g.versions, func(v modelVersion) bool { return v.name == version })
}

func (m *model) outdated() bool { return m.reset > m.bulkBegan }

func (m *model) servable(group string) bool {
	_, waiting := m.groupReset[group]
	return !waiting && !m.outdated()
}

// document is what the model knows, as a mapper of client-go would be made of it.
func (m *model) document() document {
	var doc document
	for _, g := range m.groups {
		group := docGroup{name: g.name, preferred: g.preferred}
		for _, v := range g.versions {
			group.versions = append(group.versions, v.docVersion)
		}
		doc = append(doc, group)
	}
	return doc
}

// changed moves the generation if what is served is no longer what it was before.
func (m *model) changed(before *model) {
	if m.read && !before.read || m.servesOtherThan(before) {
		m.generation++
	}
}

func (m *model) servesOtherThan(before *model) bool {
	if len(m.groups) != len(before.groups) {
		return true
	}
	return slices.ContainsFunc(m.groups, func(g modelGroup) bool {
		i := before.find(g.name)
		return i < 0 || g.servesOtherThan(before.groups[i])
	})
}

func (g *modelGroup) servesOtherThan(before modelGroup) bool {
	// Until a group was listed nobody knew its order and its preferred version.
	order := func(g modelGroup) []string {
		var names []string
		for _, v := range g.versions {
			names = append(names, v.name)
		}
		if !before.listed {
			slices.Sort(names)
		}
		return names
	}
	if !slices.Equal(order(*g), order(before)) {
		return true
	}
	if g.preferred != before.preferred && (before.listed || before.preferred != "") {
		return true
	}
	for _, v := range g.versions {
		old := before.versions[before.find(v.name)]
		if v.read && old.read && !sameAnswers(v.resources, old.resources) {
			return true
		}
	}
	return false
}

// sameAnswers says that client-go's mapper answers everything alike from a and b.
func sameAnswers(a, b []Resource) bool {
	if slices.Equal(a, b) {
		return true
	}
	of := func(resources []Resource) meta.RESTMapper {
		doc := document{{name: "g", versions: []docVersion{{name: "v", read: true, resources: resources}}}}
		return restmapper.NewDiscoveryRESTMapper(doc.library())
	}
	if !maps.Equal(unaskable(a), unaskable(b)) {
		return false
	}
	ours, others := of(a), of(b)
	for _, r := range slices.Concat(a, b) {
		for _, kind := range []string{r.Kind, strings.ToLower(r.Kind), r.Kind + "List", "List"} {
			q := query{method: restMapping, gk: schema.GroupKind{Group: "g", Kind: kind}}
			if !q.askLibrary(ours).equal(q.askLibrary(others)) {
				return false
			}
		}
		plural, singular := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: r.Kind})
		for _, name := range []string{r.Name, r.Singular, plural.Resource, singular.Resource, singular.Resource + "list", singular.Resource + "lists", "list", "lists"} {
			for _, method := range []method{kindFor, resourcesFor, resourceSingularizer} {
				q := query{method: method, resource: name, gvr: schema.GroupVersionResource{Group: "g", Resource: name}}
				if !q.askLibrary(ours).equal(q.askLibrary(others)) {
					return false
				}
			}
		}
	}
	return true
}

// unaskable collects the names that count although no query can ask for them.
func unaskable(resources []Resource) map[string]bool {
	names := map[string]bool{}
	for _, r := range NewTable(resources).rows {
		for _, name := range []string{r.Name, r.Singular} {
			if name != strings.ToLower(name) {
				names[name] = true
			}
		}
	}
	return names
}

// bulk records a bulk read that began at a certain time.
func (m *model) bulk(found []modelGroup, began int) {
	before := m.clone()
	m.groups = nil
	for _, g := range found {
		m.groups = append(m.groups, before.carryOver(g))
	}
	m.read, m.ordered, m.bulkBegan = true, true, max(m.bulkBegan, began)
	maps.DeleteFunc(m.groupReset, func(_ string, at int) bool { return at < began })
	m.changed(before)
}

// carryOver is g with the last known resources of those versions that come without.
func (m *model) carryOver(g modelGroup) modelGroup {
	g.versions = slices.Clone(g.versions)
	i := m.find(g.name)
	if i < 0 {
		return g
	}
	for j := range g.versions {
		v := &g.versions[j]
		k := m.groups[i].find(v.name)
		if v.read || k < 0 {
			continue
		}
		old := m.groups[i].versions[k]
		if old.read {
			v.read, v.resources = true, old.resources
			v.outdated = old.outdated || !m.servable(g.name)
		}
		if v.err == nil && m.servable(g.name) {
			v.err = old.err
		}
	}
	return g
}

// group records a live read of a group; g has no versions if it is not served.
func (m *model) group(g modelGroup, began int) {
	before := m.clone()
	m.put(g.name, before.carryOver(g))
	if m.groupReset[g.name] < began {
		delete(m.groupReset, g.name)
	}
	m.changed(before)
}

// put replaces a group; one without versions goes.
func (m *model) put(name string, g modelGroup) {
	i := m.find(name)
	switch {
	case i < 0 && len(g.versions) > 0:
		m.groups = append(m.groups, g)
		m.ordered = false
	case i >= 0 && len(g.versions) == 0:
		m.groups = slices.Delete(m.groups, i, i+1)
	case i >= 0:
		m.groups[i] = g
	}
}

// version records a live read of one version.
func (m *model) version(group string, v modelVersion) {
	before := m.clone()
	i := m.find(group)
	if i < 0 {
		m.put(group, modelGroup{name: group, versions: []modelVersion{v}})
	} else {
		m.groups[i].put(v)
	}
	m.changed(before)
}

func (g *modelGroup) put(v modelVersion) {
	if i := g.find(v.name); i >= 0 {
		g.versions[i] = v
		return
	}
	g.listed = false
	at := len(g.versions)
	for i := len(g.versions) - 1; i >= 0; i-- {
		if version.CompareKubeAwareVersionStrings(v.name, g.versions[i].name) > 0 {
			at = i
		}
	}
	g.versions = slices.Insert(g.versions, at, v)
}

func (m *model) withoutVersion(group, version string) {
	before := m.clone()
	if i := m.find(group); i >= 0 && m.groups[i].find(version) >= 0 {
		g := m.groups[i]
		g.listed = false
		g.versions = slices.DeleteFunc(slices.Clone(g.versions), func(v modelVersion) bool { return v.name == version })
		m.put(group, g)
	}
	m.changed(before)
}

func (m *model) failedVersion(group, version string, err error) {
	if i := m.find(group); i >= 0 {
		if j := m.groups[i].find(version); j >= 0 {
			m.groups[i].versions[j].err = err
		}
	}
}

// compareState returns how s differs from the model, but for its answers.
func (m *model) compareState(s *Snapshot) error {
	if len(s.groups) != len(m.groups) {
		return fmt.Errorf("%d groups, not %d", len(s.groups), len(m.groups))
	}
	for i := range m.groups {
		if err := m.groups[i].compareState(s.groups[i]); err != nil {
			return fmt.Errorf("group %q at %d: %w", m.groups[i].name, i, err)
		}
	}
	if s.read != m.read || s.ordered != m.ordered || s.Outdated() != m.outdated() || s.generation != m.generation {
		return fmt.Errorf("read %v, ordered %v, outdated %v, generation %d, not %v, %v, %v, %d",
			s.read, s.ordered, s.Outdated(), s.generation, m.read, m.ordered, m.outdated(), m.generation)
	}
	for _, group := range groupWords {
		if _, waiting := m.groupReset[group]; waiting != s.GroupOutdated(group) {
			return fmt.Errorf("group %q is outdated: %v, not %v", group, s.GroupOutdated(group), waiting)
		}
	}
	return nil
}

func (g *modelGroup) compareState(got *Group) error {
	if got.name != g.name || got.preferred != g.preferred || got.listed != g.listed || len(got.versions) != len(g.versions) {
		return fmt.Errorf("%q, preferred %q, listed %v, %d versions, not %q, %v, %d", got.name, got.preferred, got.listed, len(got.versions),
			g.preferred, g.listed, len(g.versions))
	}
	for i, v := range g.versions {
		other := got.versions[i]
		switch {
		case other.Name != v.name:
			return fmt.Errorf("version %d is %s, not %s", i, other.Name, v.name)
		case other.Outdated != v.outdated || !errors.Is(other.Err, v.err) || v.err == nil && other.Err != nil:
			return fmt.Errorf("%s: outdated %v, error %w, not %v, %w", v.name, other.Outdated, other.Err, v.outdated, v.err)
		case (other.Table != nil) != v.read:
			return fmt.Errorf("%s: read %v, not %v", v.name, other.Table != nil, v.read)
		case v.read && !slices.Equal(other.Table.rows, NewTable(v.resources).rows):
			return fmt.Errorf("%s: serves %v, not %v", v.name, other.Table.rows, v.resources)
		}
	}
	return nil
}

// compareAnswer returns how s answers q otherwise than client-go's mapper, or
// settles it although a read could change the answer, or does not settle it
// although none could.
func (m *model) compareAnswer(s *Snapshot, doc document, library meta.RESTMapper, q query) error {
	got, settled := q.ask(s)
	want := q.askLibrary(library)
	if expected := doc.expected(q, got, want); expected != "" {
		return errors.New((&disagreement{doc, q, got, expected}).String())
	}
	why := m.unsettled(doc, q, want)
	switch {
	case settled && why != "":
		return fmt.Errorf("%v\n%v\nis settled as %v although %s", doc, q, got, why)
	case !settled && why == "" && m.exact(doc, q, want):
		return fmt.Errorf("%v\n%v\nis not settled as %v although nothing could change that", doc, q, got)
	}
	return nil
}

// exact says whether q is one of those queries for which an answer counts as
// settled whenever nothing can change it. Searches through several versions or
// groups are more careful, and so is everything that asks for lists, because
// no table can change what those are.
func (m *model) exact(doc document, q query, want answer) bool {
	if strings.Contains(strings.ToLower(q.gvr.Resource+q.gk.Kind), "list") || doc.mapOrdered(q) != nil {
		return false
	}
	switch q.method {
	case restMapping:
		i := m.find(q.gk.Group)
		// The library takes "*" for any version, but serves none of that name.
		return i >= 0 && (m.groups[i].listed || len(specified(q.versions)) > 0 && !slices.Contains(q.versions, "*"))
	case restMappings:
		return len(q.versions) == len(slices.Compact(slices.Sorted(slices.Values(q.versions))))
	case resourceSingularizer:
		return false
	default:
		return !q.searches() || q.endsInCore(want)
	}
}

// unsettled says what could change the answer to q, or "".
func (m *model) unsettled(doc document, q query, want answer) string {
	if isNoMatch(want.err) {
		return "absence is for a read to say"
	}
	if want.err != nil && q.resourceName() == "" {
		return ""
	}
	if m.outdated() {
		return "everything was reset"
	}
	for group := range m.groupReset {
		if q.selects(group) && (group == "" || !q.endsInCore(want)) {
			return fmt.Sprintf("group %q was reset", group)
		}
	}
	for description, other := range m.possible(doc, q, want) {
		if a := other.ask(q); !a.equal(want) && doc.mapOrdered(q) == nil && other.mapOrdered(q) == nil {
			return fmt.Sprintf("%s may change it to %v", description, a)
		}
	}
	return ""
}

// possible returns, by what was read for it, documents that may turn out to be
// the true ones. Each has one change that is as bad as can be for q.
func (m *model) possible(doc document, q query, want answer) map[string]document {
	all := map[string]document{}
	// Searches do without versions that were tried, but for those of the very
	// group asked for.
	gaveUp := func(g modelGroup, v modelVersion) bool {
		return v.err != nil && q.searches() && (q.gvr.Group == "" || q.gvr.Group != g.name) && !q.endsInCore(want)
	}
	for i, g := range m.groups {
		for j, v := range g.versions {
			if v.known() || gaveUp(g, v) {
				continue
			}
			for k, resources := range q.spoilers() {
				other := doc.clone()
				other[i].versions[j].read = true
				other[i].versions[j].resources = resources
				all[fmt.Sprintf("reading %s/%s (%d)", g.name, v.name, k)] = other
			}
		}
		if g.listed {
			continue
		}
		for _, name := range append(slices.Clone(q.versions), q.gvr.Version, "hidden") {
			if g.find(name) >= 0 {
				continue
			}
			other := doc.clone()
			hidden := docVersion{name: name, read: true, resources: q.spoilers()[1]}
			other[i].versions = slices.Insert(other[i].versions, 0, hidden)
			all[fmt.Sprintf("listing %s/%s", g.name, name)] = other
		}
		other := doc.clone()
		slices.Reverse(other[i].versions)
		all[fmt.Sprintf("listing %s", g.name)] = other
		for _, v := range g.versions {
			other := doc.clone()
			other[i].preferred = v.name
			all[fmt.Sprintf("listing %s with %s preferred", g.name, v.name)] = other
		}
	}
	if !m.ordered {
		other := doc.clone()
		slices.Reverse(other)
		all["listing all groups"] = other
	}
	if !m.read {
		hidden := docGroup{name: q.gvr.Group + ".hidden", versions: []docVersion{{name: cmp.Or(q.gvr.Version, "v1"), read: true, resources: q.spoilers()[1]}}}
		all["reading all groups"] = append(document{hidden}, doc...)
	}
	return all
}
