// SPDX-License-Identifier: Apache-2.0

package snapshot

// These are measured sizes in bytes: of a group, a version, a table with its maps, and a
// row with its entries in the maps.
const (
	groupSize   = 160
	versionSize = 112
	tableSize   = 250
	rowSize     = 200
)

// Size returns about how many bytes the group takes.
func (g *Group) Size() int64 {
	size := groupSize + len(g.name) + len(g.preferred) + versionSize*len(g.versions)
	var last *Table // versions next to each other may share one
	for i := range g.versions {
		v := &g.versions[i]
		size += len(v.Name)
		if v.Table != nil && v.Table != last {
			size += v.Table.size()
		}
		last = v.Table
	}
	return int64(size)
}

func (t *Table) size() int {
	size := tableSize + rowSize*len(t.rows)
	for _, r := range t.rows {
		size += len(r.Name) + len(r.Singular) + len(r.Kind)
	}
	return size
}
