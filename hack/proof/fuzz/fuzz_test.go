// SPDX-License-Identifier: Apache-2.0

// Package fuzz runs every fuzz target of the root module, one after the other.
//
//	go test ./fuzz -v -timeout 0 -args -time 10m [-target REGEXP] [-o results]
//
// An input that breaks something is left in the package's testdata/fuzz, as go test
// does, to be committed with the fix.
package fuzz

import (
	"flag"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/freshmapper/freshmapper/hack/proof/internal/campaign"
)

var (
	each = flag.Duration("time", 0, "how long each target runs; 0: not at all")
	only = flag.String("target", ".", "which targets, as a regular expression")
)

const root = "../.."

var (
	listed   = regexp.MustCompile(`(?m)^(?:(Fuzz\w+)|ok\s+(\S+).*)$`)
	progress = regexp.MustCompile(`execs: (\d+).*new interesting: \d+ \(total: (\d+)\)`)
)

func TestTargets(t *testing.T) {
	if *each == 0 {
		t.Skip("-time does not say for how long; the seeds are tested where the targets are")
	}
	c := campaign.Begin(t, "fuzz")
	wanted, err := regexp.Compile(*only)
	if err != nil {
		t.Fatal(err)
	}
	said, err := c.GoTest(root, nil, "-list=^Fuzz", "./apiutil/...", "./internal/...", "./hack/...")
	if err != nil {
		t.Fatalf("listing the targets: %v", err)
	}
	var rows [][]string
	var targets []string // of the package whose name comes after them
	for _, line := range listed.FindAllStringSubmatch(said, -1) {
		if target, pkg := line[1], line[2]; target == "" {
			for _, target := range targets {
				rows = append(rows, fuzz(c, target, pkg))
			}
			targets = nil
		} else if wanted.MatchString(target) {
			targets = append(targets, target)
		}
	}
	if rows == nil {
		t.Fatalf("no target is like %q", *only)
	}
	p := c.Page("Fuzzing")
	p.Text("Each target ran for %v, with what `go test` had kept of earlier runs on this machine as well as with its seeds.\n", *each)
	p.Table([]string{"target", "package", "inputs", "in the corpus", ""}, rows)
	c.Finish(p)
}

// fuzz runs a target, and returns its row of the table.
func fuzz(c *campaign.Campaign, target, pkg string) []string {
	said, err := c.GoTest(root, nil, "-run=^$", "-fuzz=^"+target+"$", "-fuzztime="+each.String(), "-timeout="+(*each+10*time.Minute).String(), pkg)
	verdict := "nothing found"
	// Before Go 1.27 go test may end like this when its time is over, though no input
	// has failed (https://go.dev/issue/75804).
	over := strings.Contains(said, "\n    context deadline exceeded\n") && !strings.Contains(said, "Failing input")
	if err != nil && !over {
		verdict = "**failed**"
		c.Broken("%s in %s:\n\n```\n%s\n```", target, pkg, said[max(0, len(said)-1500):])
	}
	row := []string{target, strings.TrimPrefix(pkg, "github.com/freshmapper/freshmapper/"), "", "", verdict}
	if all := progress.FindAllStringSubmatch(said, -1); len(all) > 0 {
		copy(row[2:], all[len(all)-1][1:])
	}
	return row
}
