// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"runtime"
	"testing"
)

// The size of a group is what it takes up on the heap, within half of it.
func TestSize(t *testing.T) {
	heap := func() float64 {
		runtime.GC()
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return float64(stats.HeapAlloc)
	}
	for _, kinds := range []int{1, 3, 10, 60} {
		const count = 1000
		groups := make([]*Group, count)
		before := heap()
		for i := range groups {
			var versions []Version
			for v := range 2 {
				rows := make([]Resource, kinds)
				for k := range rows {
					rows[k] = Resource{Name: fmt.Sprintf("kinds%d-%d", i, k), Singular: fmt.Sprintf("kind%d-%d", i, k), Kind: fmt.Sprintf("Kind%d-%d", i, k)}
				}
				versions = append(versions, Version{Name: fmt.Sprintf("v%d", v), Table: NewTable(rows)})
			}
			groups[i] = NewGroup(fmt.Sprintf("group%d.example.com", i), "v1", versions)
		}
		measured := (heap() - before) / count
		if size := float64(groups[0].Size()); size < measured/1.5 || size > measured*1.5 {
			t.Errorf("%d kinds: size %.0f, measured %.0f", kinds, size, measured)
		}
		t.Logf("%d kinds: size %d, measured %.0f", kinds, groups[0].Size(), measured)
		runtime.KeepAlive(groups)
	}
}
