// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"maps"
	"slices"
	"strings"
)

// forms is the full index that client-go builds for one group-version
// (newDiscoveryRESTMapper in k8s.io/client-go/restmapper, on top of
// meta.DefaultRESTMapper). If forms clash, the last one added wins. It exists only
// while a Table is made, to find the table's exceptions.
type forms struct {
	kinds     map[string]target
	kindOf    map[string]string // plural or singular → kind
	singulars map[string]string // plural → singular
}

// spell adds every form of every row in client-go's order.
func spell(rows []Resource) *forms {
	f := &forms{
		kinds:     make(map[string]target, 3*len(rows)+1),
		kindOf:    make(map[string]string, 4*len(rows)+2),
		singulars: make(map[string]string, 2*len(rows)+1),
	}
	for _, r := range rows {
		f.add(strings.ToLower(r.Kind), r.Singular, r.target())
		f.add(r.Kind, r.Singular, r.target())
		f.addGuessed(r.Kind+listSuffix, r.Namespaced)
	}
	f.addGuessed(listSuffix, false)
	return f
}

func (f *forms) addGuessed(kind string, namespaced bool) {
	plural, singular := guess(kind)
	f.add(kind, singular, target{resource: plural, namespaced: namespaced})
}

func (f *forms) add(kind, singular string, to target) {
	f.singulars[to.resource] = singular
	f.kindOf[singular] = kind
	f.kindOf[to.resource] = kind
	f.kinds[kind] = to
}

func (f *forms) equal(other *forms) bool {
	return maps.Equal(f.kinds, other.kinds) && maps.Equal(f.kindOf, other.kindOf) && maps.Equal(f.singulars, other.singulars)
}

// exceptionsTo returns the right answers where t would give a wrong one, or nil if it
// never would. The caller sets t.odd afterwards.
func (f *forms) exceptionsTo(t *Table) *exceptions {
	odd := &exceptions{kinds: map[string]target{}, names: map[string]named{}, singulars: map[string]string{}}
	for kind, want := range f.kinds {
		if got, _ := t.target(kind); got != want {
			odd.kinds[kind] = want
		}
	}
	for plural, want := range f.singulars {
		if got, ok := t.singularOf(plural); !ok || got != want {
			odd.singulars[plural] = want
		}
	}
	f.oddNames(t, odd.names)
	if len(odd.kinds)+len(odd.names)+len(odd.singulars) == 0 {
		return nil
	}
	return odd
}

// oddNames collects the names for which t would give a wrong kind or wrong resources.
func (f *forms) oddNames(t *Table, odd map[string]named) {
	resources := f.resourcesByName()
	for name, kind := range f.kindOf {
		if name == "" {
			continue // no query has an empty resource
		}
		want := named{kind: kind, resources: resources[name], exact: f.exact(name, resources[name])}
		gotKind, _ := t.kindOf(name)
		gotExact, found := t.resourceOf(name)
		if gotKind != kind || !found || gotExact != want.exact || len(want.resources) != 1 {
			odd[name] = want
		}
	}
}

// resourcesByName lists, for each name, the plurals of the resources that have it as
// plural or singular, sorted.
func (f *forms) resourcesByName() map[string][]string {
	byName := make(map[string][]string, len(f.kindOf))
	for plural, singular := range f.singulars {
		byName[plural] = append(byName[plural], plural)
		if singular != plural {
			byName[singular] = append(byName[singular], plural)
		}
	}
	for _, plurals := range byName {
		if len(plurals) > 1 {
			slices.Sort(plurals)
		}
	}
	return byName
}

// exact returns the one resource for a fully qualified query. client-go takes the first
// in a map. We prefer the resource with exactly that name.
func (f *forms) exact(name string, resources []string) string {
	if _, ok := f.singulars[name]; ok || len(resources) == 0 {
		return name
	}
	return resources[0]
}
