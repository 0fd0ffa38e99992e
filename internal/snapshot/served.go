// SPDX-License-Identifier: Apache-2.0

package snapshot

import "k8s.io/apimachinery/pkg/api/meta"

// Kind is a kind, as the server spells it, in a version that serves it.
type Kind struct {
	Mapping meta.RESTMapping
	Verbs   Verbs
}

// KindsWhere lists the kinds that are known to be served and are wanted, in server order.
func (s *Snapshot) KindsWhere(wanted func(*Resource) bool) (kinds []Kind) {
	for _, g := range s.groups {
		for i := range g.versions {
			v := &g.versions[i]
			rows := v.table().all()
			for j := range rows {
				if r := &rows[j]; wanted(r) && v.Table.spelled(r.Kind) == r {
					k := Kind{Verbs: r.Verbs}
					match{g, v, r}.fill(&k.Mapping, r.Kind)
					kinds = append(kinds, k)
				}
			}
		}
	}
	return kinds
}

// SomeResource returns the name of a resource that is known, or "". A lookup of it in all groups has a current
// answer only if all groups have.
func (s *Snapshot) SomeResource() string {
	for _, r := range s.lastTable().all() {
		return r.Name
	}
	return ""
}
