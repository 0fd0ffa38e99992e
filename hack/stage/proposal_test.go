// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper/hack/stage/small"
)

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// There is a text to paste for the issue and for each patch, and each is short
// enough to be read.
func TestTextsToPaste(t *testing.T) {
	changes, err := small.Changes(stock(t))
	if err != nil {
		t.Fatal(err)
	}
	issue := read(t, "proposal/issue.md")
	if n := strings.Count(issue, "\n"); n > 60 {
		t.Errorf("the issue has %d lines", n)
	}
	all := issue
	for i, patch := range made(t) {
		name := small.Patches()[i].Name
		text := read(t, "proposal/"+name+".md")
		title, _, _ := strings.Cut(changes[i].Message, "\n")
		if !strings.HasPrefix(text, title+"\n") {
			t.Errorf("%s does not begin with the title of its commit, %q", name, title)
		}
		if n := strings.Count(text, "\n"); n > 40 {
			t.Errorf("%s has %d lines", name, n)
		}
		for _, want := range []string{"What does this do, and why do we need it?", "```release-note\n"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s has no %q", name, want)
			}
		}
		if row := fmt.Sprintf("| %c |", 'a'+i); !strings.Contains(issue, row) || !strings.Contains(issue, fmt.Sprintf("| %d |\n", patch.Size.Code)) {
			t.Errorf("the issue does not say that %s adds %d lines", name, patch.Size.Code)
		}
		all += text
	}
	for _, discussed := range []string{"#3543", "#2557", "#2901", "#2663", "#2869", "#3542"} {
		if !strings.Contains(all, discussed) {
			t.Errorf("nothing answers what was said on %s", discussed)
		}
	}
}
