// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/freshmapper/freshmapper/hack/dev/proc"
)

const verifyUsage = `usage: hack/verify.sh [-fast | -root]

Checks everything about the checkout that needs no test run: formatting, vet,
go.mod and go.sum, lint, script syntax, paths of this machine left in files.
Files not yet added to git are checked too. A failed check does not stop the
others; the exit status is 1 if any failed.

  -fast    without golangci-lint, which the first run builds in a few minutes
  -root    with golangci-lint for the root module alone, as hack/test.sh has it
`

// verifier runs checks and notes what they came to.
type verifier struct {
	*checkout
	rows           strings.Builder
	passed, failed int
}

func verify(ctx context.Context, c *checkout, args []string) error {
	flags := flag.NewFlagSet("verify", flag.ContinueOnError)
	fast := flags.Bool("fast", false, "")
	rootOnly := flags.Bool("root", false, "")
	if err := c.parse(flags, args, verifyUsage); err != nil {
		return err
	}
	modules, err := c.modules(ctx)
	if err != nil {
		return err
	}
	v := &verifier{checkout: c}
	v.checkout.verifyFiles(ctx, v)
	for _, module := range modules {
		v.vet(ctx, module)
		v.command(ctx, "tidy", module, "go", "mod", "tidy", "-diff")
	}
	if !*fast {
		v.command(ctx, "config", ".", c.tool("golangci-lint", "config", "verify")...)
		for _, module := range modules {
			if module == "." || !*rootOnly {
				v.lint(ctx, module)
			}
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	fmt.Fprintf(c.stdout, "\n%-8s %-36s %s\n%s", "check", "module", "result", &v.rows)
	fmt.Fprintf(c.stdout, "verify: %d checks, %d passed, %d failed\n", v.passed+v.failed, v.passed, v.failed)
	if v.failed > 0 {
		return errSaid
	}
	return nil
}

// check notes whether do succeeds, and shows what it said only if it does not.
func (v *verifier) check(name, module string, do func(said *bytes.Buffer) error) {
	begun, verdict := time.Now(), "ok"
	var said bytes.Buffer
	if err := do(&said); err != nil {
		verdict = "failed"
		fmt.Fprintf(v.stderr, "    %v\n    %s\n", err, strings.ReplaceAll(strings.TrimSpace(said.String()), "\n", "\n    "))
		v.failed++
	} else {
		v.passed++
	}
	v.say("%s %s: %s (%s)", name, module, verdict, seconds(time.Since(begun)))
	v.row(name, module, verdict)
}

// command is a check that a command makes, in the folder of the module.
func (v *verifier) command(ctx context.Context, name, module string, args ...string) {
	v.check(name, module, func(said *bytes.Buffer) error {
		_, err := proc.Command{Dir: v.path(module), Args: args, Stdout: said, Stderr: said}.Run(ctx)
		return err
	})
}

// skip notes a check that is not made, which does not count.
func (v *verifier) skip(name, module, reason string) { v.row(name, module, "skipped: "+reason) }

func (v *verifier) row(name, module, verdict string) {
	fmt.Fprintf(&v.rows, "%-8s %-36s %s\n", name, module, verdict)
}

// errFound ends a check that has listed what is wrong.
var errFound = errors.New("these are at fault")

func (c *checkout) verifyFiles(ctx context.Context, v *verifier) {
	v.check("gofmt", ".", func(said *bytes.Buffer) error {
		files, err := c.files(ctx, "*.go")
		if err == nil {
			_, err = proc.Command{Dir: c.root, Args: append([]string{"gofmt", "-l"}, files...), Stdout: said, Stderr: said}.Run(ctx)
		}
		if err == nil && said.Len() > 0 {
			err = errFound
		}
		return err
	})
	v.check("bash", ".", func(said *bytes.Buffer) error {
		files, err := c.files(ctx, "*.sh")
		for _, file := range files {
			_, broken := proc.Command{Dir: c.root, Args: []string{"bash", "-n", file}, Stdout: said, Stderr: said}.Run(ctx)
			err = errors.Join(err, broken)
		}
		return err
	})
	v.check("paths", ".", func(said *bytes.Buffer) error { return c.localPaths(ctx, said) })
}

// localPaths looks for paths of the machine that a file was written on: they mean
// nothing anywhere else.
func (c *checkout) localPaths(ctx context.Context, said *bytes.Buffer) error {
	files, err := c.files(ctx)
	if err != nil {
		return err
	}
	var local []string
	for _, dir := range []string{c.root, os.Getenv("HOME")} {
		if dir = strings.TrimRight(dir, "/"); dir != "" {
			local = append(local, regexp.QuoteMeta(dir))
		}
	}
	found := regexp.MustCompile(`(^|[^[:alnum:]_./-])(` + strings.Join(local, "|") + `)(/|[^[:alnum:]_.-]|$)`)
	for _, file := range files {
		text, err := os.ReadFile(c.path(file))
		if err != nil {
			return fmt.Errorf("look for paths of this machine: %w", err)
		}
		for i, line := range bytes.Split(text, []byte("\n")) {
			if found.Match(line) {
				fmt.Fprintf(said, "%s:%d:%s\n", file, i+1, line)
			}
		}
	}
	if said.Len() > 0 {
		return errFound
	}
	return nil
}

func (v *verifier) vet(ctx context.Context, module string) {
	if v.noCode(ctx, module) {
		v.skip("vet", module, "no Go code")
		return
	}
	v.command(ctx, "vet", module, "go", "vet", "-tags="+tags(module), "./...")
}

func (v *verifier) lint(ctx context.Context, module string) {
	switch {
	case v.noCode(ctx, module):
		v.skip("lint", module, "no Go code")
	case strings.HasPrefix(module, "hack/envtest/"):
		v.skip("lint", module, "only starts another project's main")
	default:
		v.command(ctx, "lint", module, v.tool("golangci-lint", "run", "--allow-serial-runners", "--build-tags", tags(module), "./...")...)
	}
}

// tags are what a module builds with here: examples that import the fork's API
// have another way for stock controller-runtime, which is what they have here.
func tags(module string) string {
	if strings.HasPrefix(module, "testdata/consumers/") {
		return "stock"
	}
	return ""
}

// noCode reports whether a module does nothing but pin another project's program,
// as hack/tools does. One whose packages cannot be listed has code.
func (v *verifier) noCode(ctx context.Context, module string) bool {
	packages, err := proc.Output(ctx, v.path(module), nil, "go", "list", "./...")
	return err == nil && packages == ""
}
