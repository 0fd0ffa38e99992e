// SPDX-License-Identifier: Apache-2.0

// Command release makes a git repository of the fork, with a branch and a tag
// for each line of controller-runtime, ready to push.
//
// All trees are made in memory before anything is written, and git gets all of
// them in one stream: so a run that fails, or is interrupted, leaves the
// repository as it was.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/freshmapper/freshmapper"
	"github.com/freshmapper/freshmapper/hack/fork/cli"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

const (
	// home is where the repository is expected to be pushed to.
	home = "github.com/freshmapper/controller-runtime"
	// nobody is the default author of the commits.
	nobody = "freshmapper <noreply@freshmapper.invalid>"
)

const help = `release makes a git repository of controller-runtime with this mapper inside.

  release -repo DIR [-lines v0.20..v0.25] [-module M] [-notes DIR] [-author A]

Each line gets a branch (fresh-0.25), which has upstream's release and on top of
it the fork, and a tag (v0.25.2-fresh.1). DIR must be absent or empty, or hold such
a repository without changes of yours: then a line gets the next tag if its newest
one holds something else, and is left alone if not. release pushes nothing. The same
sources give the same commits and tags from an empty folder, or from the same earlier tags.

  -lines L    which lines: one (v0.25) or a range (default %[1]s)
  -notes DIR  write the release notes and the SBOM (CycloneDX) of each new tag there
  -module M   where the repository will be, for the replace line (default %[2]s)
  -author A   the author of the commits (default %[3]s); their date is that of the upstream release
`

type options struct {
	repo           string      // a folder
	lines          []tree.Line // at their newest tested releases
	notes          string      // a folder for the release notes; "" for none
	module, author string
	ours           fs.FS     // apiutil and internal
	matrix         string    // hack/fork/MATRIX.md
	out            io.Writer // progress
}

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	all := tree.Lines[0].Minor + ".." + tree.Lines[len(tree.Lines)-1].Minor
	o := options{ours: freshmapper.Source, matrix: freshmapper.Matrix, out: stdout}
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&o.repo, "repo", "", "")
	lines := flags.String("lines", all, "")
	flags.StringVar(&o.notes, "notes", "", "")
	flags.StringVar(&o.module, "module", home, "")
	flags.StringVar(&o.author, "author", nobody, "")
	return cli.Command{
		Flags: flags, Help: fmt.Sprintf(help, all, home, nobody),
		Valid: func() (err error) {
			if o.repo == "" {
				return errors.New("give -repo DIR")
			}
			o.lines, err = parseLines(*lines)
			return err
		},
		Do: func(ctx context.Context) error { return release(ctx, o) },
	}.Run(args, stdout, stderr)
}

// parseLines reads "v0.25" or "v0.20..v0.25".
func parseLines(text string) ([]tree.Line, error) {
	from, to, isRange := strings.Cut(text, "..")
	if !isRange {
		to = from
	}
	first, last := indexOf(from), indexOf(to)
	if first < 0 || last < first {
		return nil, fmt.Errorf("-lines %q: use a line, or a range of them, of %s", text, tree.Supported())
	}
	return tree.Lines[first : last+1], nil
}

func indexOf(minor string) int {
	return slices.IndexFunc(tree.Lines, func(line tree.Line) bool { return line.Minor == minor })
}
