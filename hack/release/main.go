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
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/freshmapper/freshmapper"
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

type options struct {
	publish.Request
	help bool
}

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is main with its surroundings given, and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	opts, err := parse(args)
	if err == nil && opts.help {
		fmt.Fprintf(stdout, help, allLines(), publish.Module, publish.Author)
		return 0
	}
	if err == nil {
		opts.Ours, opts.Matrix, opts.Out = freshmapper.Source, freshmapper.Matrix, stdout
		err = publish.Publish(ctx, opts.Request)
	}
	if err != nil {
		fmt.Fprintf(stderr, "release: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
		return 1
	}
	return 0
}

func allLines() string {
	return tree.Lines[0].Minor + ".." + tree.Lines[len(tree.Lines)-1].Minor
}

func parse(args []string) (options, error) {
	var o options
	var lines, date string
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&o.Dir, "repo", "", "")
	flags.StringVar(&lines, "lines", allLines(), "")
	flags.IntVar(&o.Fresh, "fresh", 1, "")
	flags.StringVar(&o.Notes, "notes", "", "")
	flags.StringVar(&o.Module, "module", publish.Module, "")
	flags.StringVar(&o.Author, "author", publish.Author, "")
	flags.StringVar(&date, "date", "", "")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return options{help: true}, nil
	case err != nil:
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.Dir == "":
		err = errors.New("give -repo DIR")
	case date != "":
		if o.Date, err = time.Parse(time.DateOnly, date); err != nil {
			err = fmt.Errorf("-date %s is no date like 2006-01-02", date)
		}
	}
	if err == nil {
		o.Lines, err = publish.ParseLines(lines)
	}
	if err != nil {
		return o, fmt.Errorf("%w (-h explains)", err)
	}
	return o, nil
}
