// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// A list takes memory for its groups, however many of their names begin with others.
func TestNamesThatBeginWithOthersTakeNoMemory(t *testing.T) {
	var groups []*Group
	for i := range 240 {
		groups = append(groups, NewGroup(strings.Repeat("x", i+1), "", nil))
	}
	for i := range 60_000 {
		groups = append(groups, NewGroup(fmt.Sprintf("%s%05d", strings.Repeat("x", 240), i), "", nil))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	list := NewList(groups, true)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 32<<20 {
		t.Errorf("%d groups took %d MiB", len(groups), took>>20)
	}
	n := 0
	list.order.eachBeginning("xx", func(int) { n++ })
	if n != len(groups)-1 {
		t.Errorf("%d of %d groups begin with xx", n, len(groups))
	}
}
