// SPDX-License-Identifier: Apache-2.0

package small

import (
	"go/ast"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

const (
	clientFile = "pkg/client/client_rest_resources.go"
	getter     = "getResource"
)

// followMapper is the fourth patch: what the client keeps of a kind is kept for
// one generation of the mapper, and is looked up without the client's lock.
func followMapper(files tree.Files) error {
	f := &file{files: files, name: mapperFile}
	f.field("mapper", "initialDiscoveryDone", "\t// generation moves with mapper.\n\tgeneration uint64")
	f.put("generation", "getMapper")
	f.after(addToCache, "m.mapper = ", "\n\tm.generation++")
	f.after("Reset", "m.mapper = ", "\n\tm.generation++")
	if f.err != nil {
		return f.err
	}
	c := &file{files: files, name: clientFile}
	c.followMapper()
	return c.err
}

func (f *file) followMapper() {
	maps, entry := f.kept()
	f.field("clientRestResources", "mu", "\t// generation is the mapper's that what is kept belongs to\n\tgeneration uint64")
	f.before(getter, "c.mu.RLock()", "// This comes before the lookup, so that no mapping is older than its generation.\n\tgeneration := c.mapperGeneration()\n\n\t")
	f.after(getter, "r, known := "+entry, "\n\tknown = known && c.generation == generation")
	f.remove(getter, "c.mu.Lock()")
	f.remove(getter, "defer c.mu.Unlock()")
	f.before(getter, entry+" = r", "c.mu.Lock()\n\tdefer c.mu.Unlock()\n\tc.keepFor(generation)\n\t")
	f.putRepeated("client", getter, "MAPS", maps)
}

// kept returns the maps that the client keeps mappings in, and how getResource
// writes the place of a kind in one of them.
func (f *file) kept() (maps []string, entry string) {
	f.edit(func(s tree.Source) error {
		fields, err := s.Struct("clientRestResources")
		if err != nil {
			return err
		}
		for _, field := range fields.Fields.List {
			if kind, ok := field.Type.(*ast.MapType); ok && s.Text(kind.Value) == "*resourceMeta" {
				maps = append(maps, field.Names[0].Name)
			}
		}
		get, ok := named(s, getter).(*ast.FuncDecl)
		if !ok || len(maps) == 0 {
			return s.Unexpected("map to *resourceMeta with a method %s", getter)
		}
		load, err := only(s, get, "r, known := ")
		if err == nil {
			entry = strings.TrimPrefix(s.Text(load), "r, known := ")
		}
		return err
	})
	return maps, entry
}
