// SPDX-License-Identifier: Apache-2.0

// Command stage writes this project's changes to controller-runtime as a series
// of patches for upstream.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/mail"
	"os"
	"path/filepath"

	"github.com/freshmapper/freshmapper/hack/fork/cli"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
	"github.com/freshmapper/freshmapper/hack/stage/series"
	"github.com/freshmapper/freshmapper/hack/stage/small"
)

const help = `stage writes a patch series for controller-runtime.

  stage -o DIR [-base V] [-author 'NAME <ADDRESS>']

stage writes the patches to DIR. DIR must be absent or empty, or hold an earlier
series, which stage replaces. To apply the patches, check out the tag V of
controller-runtime and run

  git am DIR/*.patch

Each patch builds and passes its tests without those behind it. Upstream asks
contributors to sign a CLA: as author, name somebody who has signed it.

  -base V     the controller-runtime release to change (default %[1]s)
  -author A   the author of the commits (default %[2]s)

hack/stage/PROPOSAL.md says how to propose the patches. In a checkout of freshmapper,
hack/test.sh -measure measures what each patch buys.
`

const nobody = "freshmapper <freshmapper@example.invalid>"

type options struct {
	out, base, author string
}

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is main with its surroundings given, and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	var o options
	flags := flag.NewFlagSet("stage", flag.ContinueOnError)
	flags.StringVar(&o.out, "o", "", "")
	flags.StringVar(&o.base, "base", tree.Newest(), "")
	flags.StringVar(&o.author, "author", nobody, "")
	return cli.Command{
		Flags: flags, Help: fmt.Sprintf(help, tree.Newest(), nobody), Valid: func() error { return o.valid() },
		Do: func(ctx context.Context) error { return stage(ctx, o, stdout) },
	}.Run(args, stdout, stderr)
}

// valid returns an error if the flags do not fit together.
func (o options) valid() error {
	if o.out == "" {
		return errors.New("-o DIR is missing: name the folder for the patches")
	}
	if _, err := mail.ParseAddress(o.author); err != nil {
		return fmt.Errorf("-author %q is not like 'NAME <ADDRESS>': %w", o.author, err)
	}
	return nil
}

func stage(ctx context.Context, o options, stdout io.Writer) error {
	if _, err := tree.LineOf(o.base); err != nil {
		return err
	}
	old, err := earlier(o.out)
	if err != nil {
		return err
	}
	upstream, err := tree.Upstream(ctx, o.base, nil)
	if err != nil {
		return err
	}
	changes, err := small.Changes(upstream)
	if err != nil {
		return fmt.Errorf("series on %s %s: %w", tree.Module, o.base, err)
	}
	patches, err := series.Make(ctx, o.author, upstream, changes)
	if err != nil {
		return err
	}
	for _, name := range old {
		if err := os.Remove(name); err != nil {
			return fmt.Errorf("remove an earlier patch: %w", err)
		}
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return fmt.Errorf("make the folder for the patches: %w", err)
	}
	for _, patch := range patches {
		name := filepath.Join(o.out, patch.File)
		if err := os.WriteFile(name, patch.Mail, 0o644); err != nil {
			return fmt.Errorf("write a patch: %w", err)
		}
		fmt.Fprintf(stdout, "%s\n\t%s\n", name, patch.Size)
	}
	return nil
}

// earlier lists the patches of an earlier series in dir. Whatever else is there
// belongs to the user, and is an error.
func earlier(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the folder %s: %w", dir, err)
	}
	var names []string
	for _, entry := range entries {
		if matched, err := filepath.Match("[0-9][0-9][0-9][0-9]-*.patch", entry.Name()); err != nil || !matched || !entry.Type().IsRegular() {
			return nil, fmt.Errorf("%s holds %s, which is not a patch of a series: choose another folder", dir, entry.Name())
		}
		names = append(names, filepath.Join(dir, entry.Name()))
	}
	return names, nil
}
