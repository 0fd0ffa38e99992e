// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"fmt"
	"go/format"
	"maps"
	"path"
	"slices"
	"strings"
)

// apiutilDir is where upstream's mapper lives, and ours in its place.
const apiutilDir = "pkg/client/apiutil"

// mapperFiles are the files of upstream's mapper that make way for ours, and their
// white-box test.
var mapperFiles = []string{"restmapper.go", "errors.go", "restmapper_wb_test.go"}

// putMapper puts our mapper in the place of upstream's.
func (d *draft) putMapper() error {
	for _, name := range mapperFiles {
		if _, err := d.upstream(path.Join(apiutilDir, name)); err != nil {
			return err
		}
		delete(d.files, path.Join(apiutilDir, name))
	}
	for _, name := range slices.Sorted(maps.Keys(d.ours)) {
		// apiutil/x becomes pkg/client/apiutil/x, internal/x becomes pkg/client/apiutil/internal/x.
		to := path.Join(apiutilDir, strings.TrimPrefix(name, "apiutil/"))
		if within, ok := strings.CutPrefix(name, "internal/follow/"); ok {
			to = path.Join("pkg/internal/follow", within) // for clients and caches, too
		}
		if to == defaults {
			continue
		}
		data, err := localize(name, d.ours[name])
		if err == nil {
			err = d.put(to, data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// imports makes imports of our module imports of the tree's.
var imports = strings.NewReplacer(
	`"`+Ours+`/apiutil`, `"`+Module+"/"+apiutilDir,
	`"`+Ours+`/internal/follow`, `"`+Module+`/pkg/internal/follow`,
	`"`+Ours+`/internal`, `"`+Module+"/"+apiutilDir+`/internal`,
)

// localize adapts a file of ours to the tree. Whatever is not Go, and everything below a
// testdata folder, stays as it is.
func localize(name string, src []byte) ([]byte, error) {
	if path.Ext(name) != ".go" || slices.Contains(strings.Split(name, "/"), "testdata") {
		return src, nil
	}
	edited := imports.Replace(string(src))
	if strings.Contains(edited, `"`+Ours) {
		return nil, fmt.Errorf("our %s imports what the tree does not have: only apiutil and internal come along", name)
	}
	data, err := format.Source([]byte(edited)) // the new paths sort elsewhere
	if err != nil {
		return nil, fmt.Errorf("format our %s after its imports were rewritten: %w", name, err)
	}
	return data, nil
}
