// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
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
	for i, patch := range made(t, "small") {
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

func TestReplaceTable(t *testing.T) {
	name := filepath.Join(t.TempDir(), "page.md")
	for range 2 {
		if err := os.WriteFile(name, []byte("above\n"+begin+"old\n"+end+"below\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := replaceTable(name, "| new |\n"); err != nil {
			t.Fatal(err)
		}
		if got, want := read(t, name), "above\n"+begin+"\n| new |\n\n"+end+"below\n"; got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
	if err := os.WriteFile(name, []byte("above\n"+begin), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := replaceTable(name, ""); err == nil || !strings.Contains(err.Error(), "no place for the table") {
		t.Errorf("error: %v", err)
	}
}

// The proposal has a place for the table.
func TestProposalHasPlace(t *testing.T) {
	if page := read(t, "PROPOSAL.md"); strings.Count(page, begin) != 1 || strings.Count(page, end) != 1 {
		t.Error("PROPOSAL.md has no place for the table")
	}
}
