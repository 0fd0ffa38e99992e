// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/freshmapper/freshmapper/hack/dev/gotest"
)

// part is a part of a run of hack/test.sh.
type part struct {
	name, seconds string
	verdict       string // "ok"; anything else is a failure
	gotest.Report
}

// sum prints what a run of hack/test.sh came to, and fails unless all is well; the last
// line says the same. The folder has a file NAME.part for each part: its name, exit
// status and seconds, with tabs between. While the part runs there is only the name.
// NAME.1.json and so on are what its runs of go test said. A second argument is the
// reason why the run has ended early.
func sum(_ context.Context, c *checkout, args []string) error {
	if len(args) < 1 || len(args) > 2 {
		fmt.Fprintln(c.stderr, "error: use hack/test.sh")
		return errUsage
	}
	parts, err := readParts(args[0])
	if err != nil {
		return err
	}
	all, broken := table(c.stdout, parts)
	verdict, good := fmt.Sprintf("all %d parts are ok", len(parts)), false
	switch {
	case len(args) == 2:
		verdict = args[1]
	case len(parts) == 0:
		verdict = "NO PART was run"
	case len(broken) > 0:
		verdict = "FAILED: " + strings.Join(broken, "; ")
	case all.Count(gotest.Failed) > 0: // though go test passed
		verdict = "tests FAILED"
	default:
		good = true
	}
	fmt.Fprintf(c.stdout, "\n%d passed, %d failed, %d skipped; %s\n", all.Count(gotest.Passed), all.Count(gotest.Failed), all.Count(gotest.Skipped), verdict)
	if !good {
		return errSaid
	}
	return nil
}

// table prints a line for each part, and for each test that failed or was skipped.
func table(out io.Writer, parts []part) (all gotest.Report, broken []string) {
	fmt.Fprintf(out, "\n%-52s %-18s %6s %8s\n", "part", "result", "tests", "seconds")
	for _, p := range parts {
		fmt.Fprintf(out, "%-52s %-18s %6d %8s\n", p.name, p.verdict, len(p.Tests), p.seconds)
		all.Tests = append(all.Tests, p.Tests...)
		if p.verdict != "ok" {
			broken = append(broken, p.name)
		}
	}
	for _, test := range all.Tests {
		switch name := strings.TrimPrefix(test.Package, "github.com/freshmapper/freshmapper/") + " " + test.Name; test.State {
		case gotest.Failed:
			fmt.Fprintf(out, "FAILED: %s\n", name)
		case gotest.Skipped:
			fmt.Fprintf(out, "skipped: %s: %s\n", name, test.Reason())
		}
	}
	return all, broken
}

// readParts reads the parts in the order of their files' names.
func readParts(dir string) ([]part, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.part"))
	if err != nil {
		return nil, err
	}
	var parts []part
	for _, file := range files {
		p, err := readPart(file)
		if err != nil {
			return nil, fmt.Errorf("read how a part ended: %w", err)
		}
		parts = append(parts, p)
	}
	return parts, nil
}

func readPart(file string) (p part, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return p, err
	}
	words := append(strings.Split(strings.TrimSpace(string(text)), "\t"), "", "")
	p.name, p.seconds = words[0], words[2]
	runs, err := filepath.Glob(strings.TrimSuffix(file, ".part") + ".*.json")
	if err != nil {
		return p, err
	}
	for _, run := range runs {
		events, err := os.Open(run)
		if err != nil {
			return p, err
		}
		err = p.Read(events)
		events.Close() //nolint:errcheck // it has been read
		if err != nil {
			return p, err
		}
	}
	switch status := words[1]; {
	case status == "":
		p.verdict = "UNFINISHED"
	case status != "0":
		p.verdict = "FAILED (" + status + ")"
	case len(runs) > 0 && len(p.Tests) == 0: // go test passes if a pattern matches nothing
		p.verdict = "FAILED (no tests)"
	default:
		p.verdict = "ok"
	}
	return p, nil
}
