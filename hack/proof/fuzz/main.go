// SPDX-License-Identifier: Apache-2.0

// Fuzz runs every fuzz target of the root module, one after the other.
//
//	go run ./fuzz [-time 10m] [-target REGEXP] [-o results]
//
// An input that breaks something is left in the package's testdata/fuzz, as go test
// does, to be committed with the fix.
package main

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

const root = "../.."

func main() {
	each := flag.Duration("time", 10*time.Minute, "how long each target runs")
	only := flag.String("target", ".", "which targets, as a regular expression")
	out := report.Out()
	report.Main("fuzz", func(ctx context.Context) error { return run(ctx, *each, *only, *out) })
}

// target is a fuzz target, and what came of it.
type target struct {
	pkg, name     string
	execs, corpus string
	failed        bool
	took          time.Duration
	output        []byte
}

func run(ctx context.Context, each time.Duration, only, out string) error {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	targets, err := list(ctx, wanted)
	if err != nil {
		return err
	}
	begin := time.Now()
	for _, t := range targets {
		fmt.Fprintf(os.Stderr, "%s in %s\n", t.name, t.pkg)
		t.fuzz(ctx, each)
	}
	return write(targets, each, time.Since(begin), out)
}

// list asks go test for the targets of every package that has some.
func list(ctx context.Context, wanted *regexp.Regexp) ([]*target, error) {
	cmd := command(ctx, "test", "-list=^Fuzz", "./apiutil/...", "./internal/...", "./hack/...")
	cmd.Stderr = os.Stderr
	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the targets: %w", err)
	}
	var targets []*target
	var names []string
	for lines := bufio.NewScanner(bytes.NewReader(output)); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "Fuzz") {
			names = append(names, line)
			continue
		}
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "ok" {
			for _, name := range names {
				if wanted.MatchString(name) {
					targets = append(targets, &target{pkg: fields[1], name: name})
				}
			}
			names = nil
		}
	}
	if len(targets) == 0 {
		return nil, fmt.Errorf("no target is like %q", wanted)
	}
	return targets, nil
}

func command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOWORK=off")
	return cmd
}

var progress = regexp.MustCompile(`execs: (\d+).*new interesting: \d+ \(total: (\d+)\)`)

func (t *target) fuzz(ctx context.Context, each time.Duration) {
	begin := time.Now()
	cmd := command(ctx, "test", "-run=^$", "-fuzz=^"+t.name+"$", "-fuzztime="+each.String(),
		"-timeout="+(each+10*time.Minute).String(), t.pkg)
	var output bytes.Buffer
	cmd.Stdout = io.MultiWriter(&output, os.Stderr)
	cmd.Stderr = cmd.Stdout
	failed := cmd.Run() != nil
	t.took, t.output = time.Since(begin), output.Bytes()
	// Before Go 1.27 go test may end like this when its time is over, though no input
	// has failed (https://go.dev/issue/75804).
	t.failed = failed && (!bytes.Contains(t.output, []byte("\n    context deadline exceeded\n")) || bytes.Contains(t.output, []byte("Failing input")))
	if all := progress.FindAllSubmatch(t.output, -1); len(all) > 0 {
		t.execs, t.corpus = string(all[len(all)-1][1]), string(all[len(all)-1][2])
	}
}

func write(targets []*target, each, took time.Duration, out string) error {
	p := report.NewPage("Fuzzing", fmt.Sprintf("go run ./fuzz -time %v", each), took)
	p.Text("Each target ran for %v, with what `go test` had kept of earlier runs on this machine as well as with its seeds.\n", each)
	var rows [][]string
	var broken report.Broken
	for _, t := range targets {
		verdict := "nothing found"
		if t.failed {
			verdict = "**failed**"
			broken.Add("%s in %s:\n\n```\n%s\n```", t.name, t.pkg, t.output[max(0, len(t.output)-1500):])
		}
		rows = append(rows, []string{t.name, strings.TrimPrefix(t.pkg, "github.com/freshmapper/freshmapper/"), t.execs, t.corpus, verdict})
	}
	p.Table([]string{"target", "package", "inputs", "in the corpus", ""}, rows)
	return p.Finish(out, "fuzz", &broken)
}
