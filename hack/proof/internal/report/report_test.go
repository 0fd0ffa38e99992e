// SPDX-License-Identifier: Apache-2.0

package report

import (
	"os"
	"path/filepath"
	"testing"
)

// The folder that is asked for may not be there yet when hours of work are over.
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
