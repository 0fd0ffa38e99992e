// SPDX-License-Identifier: Apache-2.0

// Command release makes a git repository of the fork, with a branch and a tag
// for each line of controller-runtime, ready to push.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/freshmapper/freshmapper"
	"github.com/freshmapper/freshmapper/hack/fork/cli"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
	"github.com/freshmapper/freshmapper/hack/release/publish"
)

const help = `release makes a git repository of controller-runtime with this mapper inside.

  release -repo DIR [-lines v0.20..v0.25] [-fresh N] [-notes DIR]

For each line: a branch, fresh-0.25 say, with upstream's release as it is and on
top of it the fork, and a tag, v0.25.2-fresh.1 say. DIR must be absent or empty,
or hold such a repository without changes of yours: then the branches go on.
Nothing is pushed. The same sources give the same commits and tags.

  -lines L    lines, one (v0.25), several (v0.24,v0.25) or a range (default %[1]s)
  -fresh N    the number in the tags, for a further release of the same version (default 1)
  -notes DIR  write the release notes there, a file for each tag
  -module M   where the repository will be, for the replace line (default %[2]s)
  -author A   who the commits are by (default %[3]s)
  -date D     of the fork's commits, 2006-01-02 say (default: upstream's release)
`

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is main with its surroundings given, and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	r := publish.Request{Ours: freshmapper.Source, Matrix: freshmapper.Matrix, Out: stdout}
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&r.Dir, "repo", "", "")
	lines := flags.String("lines", allLines(), "")
	flags.IntVar(&r.Fresh, "fresh", 1, "")
	flags.StringVar(&r.Notes, "notes", "", "")
	flags.StringVar(&r.Module, "module", publish.Module, "")
	flags.StringVar(&r.Author, "author", publish.Author, "")
	flags.Func("date", "", func(date string) (err error) {
		r.Date, err = time.Parse(time.DateOnly, date)
		return err
	})
	return cli.Command{
		Flags: flags, Help: fmt.Sprintf(help, allLines(), publish.Module, publish.Author),
		Valid: func() (err error) {
			if r.Dir == "" {
				return errors.New("give -repo DIR")
			}
			r.Lines, err = publish.ParseLines(*lines)
			return err
		},
		Do: func(ctx context.Context) error { return publish.Publish(ctx, r) },
	}.Run(args, stdout, stderr)
}

func allLines() string {
	return tree.Lines[0].Minor + ".." + tree.Lines[len(tree.Lines)-1].Minor
}
