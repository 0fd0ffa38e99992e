// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"strings"

	"github.com/freshmapper/freshmapper/hack/dev/gotest"
)

const verifyUsage = `usage: hack/verify.sh [-fast | -root]

Checks everything about the checkout that needs no test run: formatting, vet,
go.mod and go.sum, lint, script syntax, paths of this machine left in files.
Files not yet added to git are checked too. A failed check does not stop the
others; the exit status is 1 if any failed.

  -fast    without golangci-lint, which the first run builds in a few minutes
  -root    with golangci-lint for the root module alone, as hack/test.sh has it
`

func verify(ctx context.Context, c *checkout, args []string) error {
	flags := flag.NewFlagSet("verify", flag.ContinueOnError)
	fast := flags.Bool("fast", false, "")
	root := flags.Bool("root", false, "")
	if err := c.parse(flags, args, verifyUsage); err != nil {
		return err
	}
	lint := "all"
	if *root {
		lint = "root"
	}
	if *fast {
		lint = "none"
	}
	c.say("checking, shown when all is done")
	report, err := gotest.Command{Dir: c.root, Args: checks(lint), Progress: c.stderr}.Run(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, test := range report.Tests {
		if name, found := strings.CutPrefix(test.Name, "TestCheckout/"); found {
			fmt.Fprintf(c.stdout, "%-40s %s\n", name, test.State)
		}
	}
	if err != nil {
		return errSaid
	}
	return nil
}

// checks are the arguments of go test for all checks, with the linter on all modules,
// on the root module or on none.
func checks(lint string) []string {
	return []string{"-count=1", "-timeout", "60m", "-run", "^TestCheckout$", "./hack/dev/verify", "-args", "-modules", "-lint=" + lint}
}
