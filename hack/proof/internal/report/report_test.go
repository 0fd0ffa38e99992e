// SPDX-License-Identifier: Apache-2.0

package report

import (
	"os"
	"path/filepath"
	"testing"
)

// Write makes the folder, so that hours of work are not lost if it is not there
// yet.
func TestWriteMakesTheFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there")
	p := &Page{}
	if err := p.Write(dir, "page.md"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "page.md")); err != nil {
		t.Error(err)
	}
}
