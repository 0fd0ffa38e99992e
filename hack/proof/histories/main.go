// SPDX-License-Identifier: Apache-2.0

// Histories has hack/lincheck check random histories of lookups and resets.
//
//	go run ./histories [-n 5000] [-seed N] [-o results]
//
// It checks n histories of each kind of server with one processor, where a seed
// gives the same history each time, and as many with all processors, where the steps
// of the mapper race within one instant.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"time"

	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

type options struct {
	histories int
	seed      uint64
}

func main() {
	var o options
	flag.IntVar(&o.histories, "n", 5000, "how many histories, of each kind of server and each number of processors")
	flag.Uint64Var(&o.seed, "seed", 0, "of the first; 0: a random one")
	out := report.Out()
	report.Main("histories", func(ctx context.Context) error { return run(ctx, o, *out) })
}

// part is the histories of one kind of server on so many processors.
type part struct {
	server     string
	processors int
	counts     []string // in the order of columns
	broken     string   // how many break a rule; empty if none
}

var columns = []string{"server", "processors", "histories", "with faults", "found", "NoMatch", "errors", "resets", "requests", "that break a rule"}

func run(ctx context.Context, o options, out string) error {
	if o.seed == 0 {
		o.seed = uint64(rand.Uint32())
	}
	begin := time.Now()
	var parts []*part
	for _, processors := range []int{1, max(2, runtime.NumCPU())} {
		for _, server := range []string{"aggregated", "legacy"} {
			p := &part{server: server, processors: processors}
			fmt.Fprintf(os.Stderr, "%s server, %d processors\n", server, processors)
			if err := p.check(ctx, o); err != nil {
				return err
			}
			parts = append(parts, p)
		}
	}
	return write(o, out, parts, time.Since(begin))
}

var (
	tally  = regexp.MustCompile(`(\d+) histories, (\d+) with faults: (\d+) lookups found something, (\d+) ended in NoMatch and (\d+) in an error; (\d+) resets, (\d+) requests`)
	broken = regexp.MustCompile(`(\d+) of \d+ histories break a rule`)
)

// check runs the histories. It returns an error if they did not come to an end.
func (p *part) check(ctx context.Context, o options) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-timeout=3h", "-run=^TestHistories$/^"+p.server+"$", ".",
		"-seed", strconv.FormatUint(o.seed, 10), "-histories", strconv.Itoa(o.histories), "-processors", strconv.Itoa(p.processors))
	cmd.Dir, cmd.Env = "../lincheck", append(os.Environ(), "GOWORK=off")
	var output bytes.Buffer
	cmd.Stdout = io.MultiWriter(&output, os.Stderr)
	cmd.Stderr = cmd.Stdout
	failed := cmd.Run()
	counts := tally.FindSubmatch(output.Bytes())
	if counts == nil {
		return fmt.Errorf("the histories of the %s server on %d processors did not come to an end: %w", p.server, p.processors, failed)
	}
	for _, count := range counts[1:] {
		p.counts = append(p.counts, string(count))
	}
	if failed != nil {
		p.broken = "?"
		if match := broken.FindSubmatch(output.Bytes()); match != nil {
			p.broken = string(match[1])
		}
	}
	return nil
}

func write(o options, out string, parts []*part, took time.Duration) error {
	p := report.NewPage("Random histories", fmt.Sprintf("go run ./histories -n %d -seed %d", o.histories, o.seed), took)
	p.Text("hack/lincheck checked %d random histories of lookups and resets, by four callers of one mapper, against a server in memory that changes, lags and fails,", len(parts)*o.histories)
	p.Text("in virtual time. Every answer was held to F1 to F3 and F6 of DESIGN.md, and to a model of its truth by porcupine; the rules are in the")
	p.Text("[package comment](../../lincheck/doc.go). Where there is one processor, a seed nearly always gives the same history.\n")
	var rows [][]string
	var broken report.Broken
	for _, part := range parts {
		bad := "0"
		if part.broken != "" {
			bad = part.broken
			broken.Add("%s histories of the %s server on %d processors break a rule; the output shows them", bad, part.server, part.processors)
		}
		rows = append(rows, append(append([]string{part.server, strconv.Itoa(part.processors)}, part.counts...), bad))
	}
	p.Table(columns, rows)
	return p.Finish(out, "histories", &broken)
}
