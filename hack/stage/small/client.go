// SPDX-License-Identifier: Apache-2.0

package small

import (
	"go/ast"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

const (
	clientFile = "pkg/client/client_rest_resources.go"
	getter     = "getResource"
)

// followMapper is the fourth patch: what the client keeps of a kind is kept for
// one generation of the mapper, and is looked up without the client's lock.
func followMapper(files tree.Files) error {
	err := edit(files, mapperFile, func(f file) {
		f.AddField("mapper", "initialDiscoveryDone", "\t// generation moves with mapper.\n\tgeneration uint64")
		f.put("generation", "getMapper")
		f.After(addToCache, "m.mapper = ", "\n\tm.generation++")
		f.After("Reset", "m.mapper = ", "\n\tm.generation++")
	})
	if err != nil {
		return err
	}
	return edit(files, clientFile, func(f file) {
		maps, entry := f.kept()
		f.AddField("clientRestResources", "mu", "\t// generation is the mapper's that what is kept belongs to\n\tgeneration uint64")
		f.Before(getter, "c.mu.RLock()", "// This comes before the lookup, so that no mapping is older than its generation.\n\tgeneration := c.mapperGeneration()\n\n\t")
		f.After(getter, "r, known := "+entry, "\n\tknown = known && c.generation == generation")
		f.Remove(getter, "c.mu.Lock()")
		f.Remove(getter, "defer c.mu.Unlock()")
		f.Before(getter, entry+" = r", "c.mu.Lock()\n\tdefer c.mu.Unlock()\n\tc.keepFor(generation)\n\t")
		f.putRepeated("client", getter, "MAPS", maps)
	})
}

// kept returns the maps that the client keeps mappings in, and how getResource
// writes the place of a kind in one of them.
func (f file) kept() (maps []string, entry string) {
	for _, field := range f.Fields("clientRestResources") {
		if kind, ok := field.Type.(*ast.MapType); ok && f.Text(kind.Value) == "*resourceMeta" {
			maps = append(maps, field.Names[0].Name)
		}
	}
	if len(maps) == 0 {
		f.Unexpected("map to *resourceMeta")
	}
	if holes := f.Shape(getter, "…\n\tr, known := <entry>\n…\n}"); holes != nil {
		entry = holes[0]
	}
	return maps, entry
}
