// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/freshmapper/freshmapper/hack/dev/proc"
)

// instead is a long test that is run in place of the others. With -page it writes a
// page with its results.
type instead struct {
	usage, folder, test string
	flags               []string // of the test; with any of them the page is only printed
	page                string   // the page in the checkout
}

var insteads = map[string]instead{
	"-matrix": {matrixUsage, "./hack/dev/matrix", "^TestUpstream$", []string{"lines", "packages"}, "hack/fork/MATRIX.md"},
}

const matrixUsage = `usage: hack/test.sh -matrix [-lines V,V...] [-packages P,P...]

Runs upstream's own tests, unmodified, on stock and on forked controller-runtime
trees of every supported line, and compares them test by test. Prints a table; a
run of everything writes it to hack/fork/MATRIX.md.

  -lines     releases, v0.20.4,v0.25.2 say; default: the newest tested one of each line
  -packages  folders, pkg/client/apiutil say, or with /... below;
             default: pkg/client/...,pkg/cache/...,pkg/cluster/...,pkg/manager/...,
             pkg/controller/...,pkg/builder/...,pkg/handler

With either nothing is written but the table to stdout. All of it
takes about a quarter of an hour for each release, most of it compiling.
`

func (i instead) run(ctx context.Context, c *checkout, args []string) error {
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	work, remove, err := scratch()
	if err != nil {
		return err
	}
	defer remove()
	passed, some := []string{}, false
	for _, name := range i.flags {
		flags.Func(name, "", func(value string) error {
			passed, some = append(passed, "-"+name+"="+value), true
			return nil
		})
	}
	if err := c.parse(flags, args, i.usage); err != nil {
		return err
	}
	page := filepath.Join(work, "page.md")
	if i.page != "" {
		passed = append(passed, "-page="+page)
	}
	_, err = proc.Command{
		Dir: c.root, Stdout: c.stderr, Stderr: c.stderr,
		Args: append([]string{"go", "test", "-count=1", "-timeout", "12h", "-v", "-run", i.test, i.folder, "-args"}, passed...),
	}.Run(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	text, none := os.ReadFile(page)
	if none != nil {
		return failed(err)
	}
	fmt.Fprintf(c.stdout, "%s", text)
	if !some { // a page that says what failed is worth having, too
		if err := os.WriteFile(c.path(i.page), text, 0o644); err != nil {
			return fmt.Errorf("write the page: %w", err)
		}
	}
	return failed(err)
}
