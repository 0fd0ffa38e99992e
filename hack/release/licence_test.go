// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper"
	"github.com/freshmapper/freshmapper/hack/fork/forktest"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// The full text of the licence, which scanners look for, is in the module, in the tree and
// in the release repository.
func TestLicence(t *testing.T) {
	texts := map[string]string{"the module": forktest.Text(t, "../..", "LICENSE")}
	for _, line := range tree.Lines {
		made, err := tree.Make(context.Background(), line.Newest, nil, freshmapper.Source, false)
		if err != nil {
			t.Fatal(err)
		}
		texts["the tree of "+line.Newest] = string(made["LICENSE"])
	}
	dir, _ := published(t, "v0.25")
	texts["the release repository"] = forktest.Text(t, dir, "LICENSE")
	for where, text := range texts {
		for _, part := range []string{"Version 2.0, January 2004", "9. Accepting Warranty or Additional Liability.", "END OF TERMS AND CONDITIONS"} {
			if !strings.Contains(text, part) {
				t.Errorf("LICENSE of %s does not say %q", where, part)
			}
		}
	}
}
