// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"github.com/freshmapper/freshmapper/hack/dev/gotest"
	"github.com/freshmapper/freshmapper/hack/dev/proc"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

const compatibilityUsage = `usage: hack/test.sh -compatibility [-lines V,V...]

Builds and runs a program with each way in (MapperProvider, the fork), with every
supported controller-runtime, with the oldest Go that it takes and with the one
that is installed. It writes docs/compatibility.md or, with -lines v0.20.4,v0.25.2 say,
prints the table of those releases.

An older Go comes from the Go module proxy, as GOTOOLCHAIN does it.
`

const compatibilityHead = `<!-- SPDX-License-Identifier: Apache-2.0 -->

# Compatibility

Written by ` + "`hack/test.sh -compatibility`" + `. For each row a program with a manager was built and run, once with this mapper through
` + "`MapperProvider`" + ` and once with the fork, with the k8s.io modules that this controller-runtime requires: the oldest Go that it
takes, and the newest. How upstream's own tests fare on the fork of each is in [MATRIX.md](../hack/fork/MATRIX.md).

`

const compatibilityTail = `
Any patch release of these lines may be forked; the newest of each is what is tested. API servers: discovery as Kubernetes 1.37
and 1.28 serve it, the latter with and without aggregated discovery, in ` + "`hack/test.sh`" + `.

With the provider go.mod gains one requirement and no module moves, but for one: with v0.21 to v0.23 the indirect
` + "`github.com/davecgh/go-spew`" + ` goes from v1.1.1 to the commit after it, which k8s.io v0.32 requires.
`

func compatibility(ctx context.Context, c *checkout, args []string) error {
	flags := flag.NewFlagSet("compatibility", flag.ContinueOnError)
	lines := flags.String("lines", "", "")
	if err := c.parse(flags, args, compatibilityUsage); err != nil {
		return err
	}
	if *lines != "" {
		table, err := c.compatible(ctx, strings.Split(*lines, ","))
		fmt.Fprint(c.stdout, table)
		return err
	}
	table, tested := c.compatible(ctx, newest())
	if ctx.Err() != nil {
		return ctx.Err()
	}
	text := compatibilityHead + table + compatibilityTail
	fmt.Fprint(c.stdout, text)
	if err := os.WriteFile(c.path("docs/compatibility.md"), []byte(text), 0o644); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	return tested
}

// compatible returns a table, and an error if something in it failed.
func (c *checkout) compatible(ctx context.Context, versions []string) (string, error) {
	var table bytes.Buffer
	var all error
	fmt.Fprint(&table, "| controller-runtime | k8s.io | Go | provider | fork |\n|---|---|---|---|---|\n")
	for _, version := range versions {
		module, err := c.require(ctx, version)
		if err != nil {
			return table.String(), err
		}
		for _, goVersion := range module.goVersions {
			provider, errProvider := c.cell(ctx, "TestProvider", version, goVersion)
			fork, errFork := c.cell(ctx, "TestFork", version, goVersion)
			fmt.Fprintf(&table, "| %s | %s | %s | %s | %s |\n", version, module.kubernetes, goVersion, provider, fork)
			all = errors.Join(all, errProvider, errFork)
		}
	}
	return table.String(), failed(all)
}

// cell tries one.
func (c *checkout) cell(ctx context.Context, test, version, goVersion string) (string, error) {
	c.say("%s, controller-runtime %s, Go %s", test, version, goVersion)
	_, err := gotest.Command{
		Dir: c.root, Env: []string{"GOTOOLCHAIN=go" + goVersion}, Progress: c.stderr,
		Args: []string{"-count=1", "-timeout", "60m", "./hack/ways", "-run", "^" + test + "$/^" + regexp.QuoteMeta(version) + "$"},
	}.Run(ctx)
	if err != nil {
		return "FAILED", err
	}
	return "ok", nil
}

// required is what a release of controller-runtime requires.
type required struct {
	kubernetes string   // the version of the k8s.io modules
	goVersions []string // the newest patch of the oldest minor version, if that is another, and what is installed
}

func (c *checkout) require(ctx context.Context, version string) (required, error) {
	var r required
	dir, err := tree.Folder(ctx, version, nil)
	if err != nil {
		return r, err
	}
	said, err := proc.Output(ctx, dir, nil, "go", "mod", "edit", "-json")
	if err != nil {
		return r, err
	}
	var mod struct {
		Go      string
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal([]byte(said), &mod); err != nil {
		return r, fmt.Errorf("read go.mod of %s %s: %w", tree.Module, version, err)
	}
	for _, require := range mod.Require {
		if require.Path == "k8s.io/client-go" {
			r.kubernetes = require.Version
		}
	}
	installed, err := proc.Output(ctx, c.root, nil, "go", "env", "GOVERSION")
	if err != nil {
		return r, err
	}
	installed = strings.TrimPrefix(installed, "go")
	if minor(mod.Go) != minor(installed) {
		oldest, err := c.newestGo(ctx, minor(mod.Go))
		if err != nil {
			return r, err
		}
		r.goVersions = append(r.goVersions, oldest)
	}
	r.goVersions = append(r.goVersions, installed)
	return r, nil
}

// minor is "1.23" of "1.23.4".
func minor(version string) string {
	words := strings.SplitN(version, ".", 3)
	return strings.Join(words[:min(2, len(words))], ".")
}

// newestGo is the newest patch release of a minor version of Go for this machine.
func (c *checkout) newestGo(ctx context.Context, minor string) (string, error) {
	listed, err := proc.Output(ctx, c.root, nil, "go", "list", "-m", "-versions", "golang.org/toolchain")
	if err != nil {
		return "", err
	}
	released := regexp.MustCompile(`-go` + regexp.QuoteMeta(minor) + `\.([0-9]+)\.` + runtime.GOOS + "-" + runtime.GOARCH + `(?:\s|$)`)
	patch := -1
	for _, found := range released.FindAllStringSubmatch(listed, -1) {
		n, err := strconv.Atoi(found[1])
		if err == nil && n > patch {
			patch = n
		}
	}
	if patch < 0 {
		return "", fmt.Errorf("the Go module proxy has no Go %s for %s/%s", minor, runtime.GOOS, runtime.GOARCH)
	}
	return fmt.Sprintf("%s.%d", minor, patch), nil
}
