// SPDX-License-Identifier: Apache-2.0

// Command stage writes this project's changes to controller-runtime's own mapper and
// client as patches for upstream.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/mail"
	"os"
	"path/filepath"

	"github.com/freshmapper/freshmapper/hack/fork/cli"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

const help = `stage writes patches for controller-runtime.

  stage -o DIR [-base V] [-author 'NAME <ADDRESS>']

stage writes the patches to DIR, which must be absent or empty. Each patch applies to
the release V by itself, builds and passes its tests. In a checkout of the tag V of
controller-runtime run

  git am DIR/0001-*.patch       for one of them
  git am -3 DIR/*.patch         for all, in this order

Upstream asks contributors to sign a CLA: as author, name somebody who has signed it.

  -base V     the controller-runtime release to change (default ` + newest + `); the files
              that the patches change must be those of the default
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
	if entries, err := os.ReadDir(out); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s holds %s: remove it, or choose another folder", out, entries[0].Name())
	}
	mails, err := makeMails(ctx, base, author)
	if err != nil {
		return err
	}
	for _, mail := range mails {
		if err := tree.Write(out, mail.file, mail.text); err != nil {
			return fmt.Errorf("write a patch: %w", err)
		}
		fmt.Fprintf(stdout, "%s\n\t+%d lines of code, +%d of tests\n", filepath.Join(out, mail.file), mail.code, mail.tests)
	}
	return nil
}
