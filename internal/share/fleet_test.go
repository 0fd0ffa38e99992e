// SPDX-License-Identifier: Apache-2.0

package share_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/share"
)

// uniqueGroups is a server that has hardly anything in common with others.
func uniqueGroups(server, groups int) []fakeapi.Group {
	list := fakeapi.Typical(groups, 2, 3)
	for i := range list {
		if list[i].Name != "" {
			list[i].Name = fmt.Sprintf("c%d.%s", server, list[i].Name)
		}
	}
	return list
}

// Of a fleet whose mappers are gone there is left what the bound allows, and
// nothing once its time is over.
func TestStoppedFleet(t *testing.T) {
	const (
		limit   = 4 << 20
		servers = 40
	)
	defer share.Keep(share.DefaultKeepFor, share.DefaultKeepBytes)
	before := heapInUse()
	run := func(from, servers int) {
		for i := range servers {
			server := fakeapi.New(uniqueGroups(from+i, 200)...)
			read(t, newNamed(t, server.Config(), server.Client(), uniqueName(t)))
		}
	}
	share.Keep(time.Hour, limit)
	run(0, servers)
	bytes, kept := share.KeptBytes(), share.Kept()[3]
	if bytes > limit || bytes < limit/2 || kept < 2 || kept >= servers {
		t.Errorf("%d documents with %d bytes are kept, of at most %d bytes", kept, bytes, limit)
	}
	grown := heapInUse() - before
	t.Logf("%d of %d documents are kept, %d bytes by our count, %d by the heap", kept, servers, bytes, grown)
	if grown > limit*3/2 {
		t.Errorf("the heap has grown by %d bytes, of at most %d", grown, limit)
	}
	share.Keep(time.Second, limit)
	run(servers, 3)
	if !share.Collected(func() bool { return share.Kept()[3] == 0 && heapInUse()-before < 1<<20 }) {
		t.Errorf("%v groups, lists and documents are left, %d bytes by the heap", share.Kept(), heapInUse()-before)
	}
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
