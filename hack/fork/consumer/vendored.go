// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// checkVendored: what the build takes from a vendor folder is what is in the tree.
// The go command compares versions only, and the tree has none.
func (j *job) checkVendored(manifest *tree.Manifest, shown string) error {
	vendor, command := j.vendor()
	if vendor == "" {
		return nil
	}
	copied := filepath.Join(vendor, filepath.FromSlash(tree.Module))
	stale, err := firstOther(manifest, copied)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s has no %s, and the build takes it from there: run %s in %s",
			j.show(j.relative(vendor)), tree.Module, command, quoted(filepath.Dir(vendor)))
	}
	if err != nil {
		return fmt.Errorf("compare %s with %s: %w", j.show(j.relative(copied)), shown, err)
	}
	if stale == "" {
		return nil
	}
	return fmt.Errorf("%s is not what is in %s, and the build takes it from there (the first file that differs: %s): run %s in %s",
		j.show(j.relative(copied)), shown, stale, command, quoted(filepath.Dir(vendor)))
}

// firstOther names the first file in a vendor folder's copy that is not in the
// tree, or not so. Line ends may differ: a checkout may have changed them.
func firstOther(manifest *tree.Manifest, copied string) (string, error) {
	var others []string
	err := fs.WalkDir(os.DirFS(copied), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(copied, filepath.FromSlash(name)))
		if manifest.Files[name] != tree.Digest(bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))) {
			others = append(others, name)
		}
		return err
	})
	if err != nil || len(others) == 0 {
		return "", err
	}
	return slices.Min(others), nil
}
