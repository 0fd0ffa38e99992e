// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"maps"
	"slices"
	"strings"
)

// forms is the full index that client-go builds for one group-version
// (newDiscoveryRESTMapper in k8s.io/client-go/restmapper, on top of
// meta.DefaultRESTMapper). If forms clash, the last one added wins.
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
	delete(f.kindOf, "") // no query has an empty name
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

// resources lists, sorted, the plurals of the resources that have name as plural or singular.
func (f *forms) resources(name string) (plurals []string) {
	if _, known := f.kindOf[name]; !known {
		return nil
	}
	for plural, singular := range f.singulars {
		if plural == name || singular == name {
			plurals = append(plurals, plural)
		}
	}
	slices.Sort(plurals)
	return plurals
}
