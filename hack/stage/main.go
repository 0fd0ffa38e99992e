// SPDX-License-Identifier: Apache-2.0

// Command stage writes this project's changes to controller-runtime's own mapper and
// client as a series of patches for upstream.
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
)

const help = `stage writes a patch series for controller-runtime.

  stage -o DIR [-base V] [-author 'NAME <ADDRESS>']

stage writes the patches to DIR. DIR must be absent or empty, or hold an earlier
series, which stage replaces. To apply the patches, check out the tag V of
controller-runtime and run

  git am DIR/*.patch

Each patch builds and passes its tests without those behind it. Upstream asks
contributors to sign a CLA: as author, name somebody who has signed it.

  -base V     the controller-runtime release to change (default ` + newest + `); the files
              that the series changes must be those of the default
  -author A   the author of the commits (default ` + nobody + `)

hack/stage/PROPOSAL.md says how to propose the patches.
`

const (
	newest = "v0.25.2"
	nobody = "freshmapper <freshmapper@example.invalid>"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is main with its surroundings given, and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	var out, base, author string
	flags := flag.NewFlagSet("stage", flag.ContinueOnError)
	flags.StringVar(&out, "o", "", "")
	flags.StringVar(&base, "base", newest, "")
	flags.StringVar(&author, "author", nobody, "")
	var by *mail.Address
	valid := func() (err error) {
		if out == "" {
			return errors.New("-o DIR is missing: name the folder for the patches")
		}
		if by, err = mail.ParseAddress(author); err != nil {
			return fmt.Errorf("-author %q is not like 'NAME <ADDRESS>': %w", author, err)
		}
		return nil
	}
	return cli.Command{
		Flags: flags, Help: help, Valid: valid,
		Do: func(ctx context.Context) error { return stage(ctx, out, base, by, stdout) },
	}.Run(args, stdout, stderr)
}

func stage(ctx context.Context, out, base string, author *mail.Address, stdout io.Writer) error {
	old, err := earlier(out)
	if err != nil {
		return err
	}
	mails, err := makeSeries(ctx, base, author)
	if err != nil {
		return err
	}
	for _, name := range old {
		if err := os.Remove(name); err != nil {
			return fmt.Errorf("remove an earlier patch: %w", err)
		}
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return fmt.Errorf("make the folder for the patches: %w", err)
	}
	for _, mail := range mails {
		name := filepath.Join(out, mail.file)
		if err := os.WriteFile(name, mail.text, 0o644); err != nil {
			return fmt.Errorf("write a patch: %w", err)
		}
		fmt.Fprintf(stdout, "%s\n\t+%d lines of code, +%d of tests\n", name, mail.code, mail.tests)
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
