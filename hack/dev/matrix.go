// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/freshmapper/freshmapper/hack/dev/gotest"
	"github.com/freshmapper/freshmapper/hack/dev/matrix"
	"github.com/freshmapper/freshmapper/hack/dev/proc"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

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

const allPackages = "pkg/client/...,pkg/cache/...,pkg/cluster/...,pkg/manager/...,pkg/controller/...,pkg/builder/...,pkg/handler"

// matrixRun runs upstream's tests on both sides of lines.
type matrixRun struct {
	*checkout
	work     string
	patterns []string // of packages
	found    apiServers
}

func runMatrix(ctx context.Context, c *checkout, args []string) error {
	flags := flag.NewFlagSet("matrix", flag.ContinueOnError)
	lines := flags.String("lines", "", "")
	packages := flags.String("packages", allPackages, "")
	if err := c.parse(flags, args, matrixUsage); err != nil {
		return err
	}
	work, remove, err := scratch()
	if err != nil {
		return err
	}
	defer remove()
	m := &matrixRun{checkout: c, work: work}
	for _, folder := range strings.Split(*packages, ",") {
		m.patterns = append(m.patterns, "./"+folder)
	}
	versions := newest()
	if *lines != "" {
		versions = strings.Split(*lines, ",")
	}
	var text bytes.Buffer
	good, err := m.table(ctx, &text, versions)
	if err != nil {
		return err
	}
	fmt.Fprint(c.stdout, &text)
	if *lines == "" && *packages == allPackages {
		if err := os.WriteFile(c.path("hack/fork/MATRIX.md"), text.Bytes(), 0o644); err != nil {
			return fmt.Errorf("write the table: %w", err)
		}
	}
	if !good {
		return errors.New("the fork is not as good as stock")
	}
	return nil
}

func (m *matrixRun) table(ctx context.Context, out io.Writer, versions []string) (good bool, err error) {
	described, err := m.findServers(ctx)
	if err != nil {
		return false, err
	}
	var lines []matrix.Line
	for _, version := range versions {
		line, err := m.line(ctx, version)
		if err != nil {
			return false, err
		}
		lines = append(lines, line)
	}
	return matrix.Write(out, described, lines), nil
}

// findServers finds the API servers, and describes them and Go for the table.
func (m *matrixRun) findServers(ctx context.Context) (string, error) {
	found, err := m.servers(ctx, filepath.Join(m.work, "store"))
	if err != nil {
		return "", err
	}
	m.found = found
	said := make([]string, 3)
	for i, args := range [][]string{
		{filepath.Join(m.found.latest, "kube-apiserver"), "--version"},
		{filepath.Join(m.found.legacy, "kube-apiserver"), "--version"},
		{"go", "env", "GOVERSION"},
	} {
		if said[i], err = proc.Output(ctx, m.root, nil, args...); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("API servers: %s; and %s for the part of upstream's test of the\n"+
		"mapper that is without aggregated discovery, for all of that test on v0.20, where both parts share a server. %s.", said[0], said[1], said[2]), nil
}

// line makes the trees of a release, both without the white-box test, and runs
// the tests on them.
func (m *matrixRun) line(ctx context.Context, version string) (matrix.Line, error) {
	line := matrix.Line{Version: version}
	m.say("%s: trees", version)
	source, err := tree.Folder(ctx, version, nil)
	if err != nil {
		return line, err
	}
	stock, forked := filepath.Join(m.work, version, "stock"), filepath.Join(m.work, version, "fork")
	if err := copyTree(stock, source); err != nil {
		return line, err
	}
	if err := os.Remove(filepath.Join(stock, "pkg/client/apiutil/restmapper_wb_test.go")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return line, err
	}
	if err := fork(ctx, forked, version, m.checkout); err != nil {
		return line, err
	}
	packages, err := m.tested(ctx, stock)
	if err != nil {
		return line, err
	}
	if line.Stock, err = m.side(ctx, stock, packages); err != nil {
		return line, err
	}
	line.Fork, err = m.side(ctx, forked, packages)
	return line, err
}

// tested are the folders of the packages asked for that have tests.
func (m *matrixRun) tested(ctx context.Context, dir string) ([]string, error) {
	args := append([]string{"go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}"}, m.patterns...)
	listed, err := proc.Output(ctx, dir, nil, args...)
	if err != nil {
		return nil, err
	}
	var folders []string
	for _, name := range strings.Fields(listed) {
		folders = append(folders, strings.TrimPrefix(name, tree.Module+"/"))
	}
	slices.Sort(folders)
	return slices.Compact(folders), nil
}

// side builds and vets a tree and runs its tests.
func (m *matrixRun) side(ctx context.Context, dir string, packages []string) (matrix.Side, error) {
	side := matrix.Side{Packages: map[string]matrix.Tests{}}
	side.Build = m.quietly(ctx, dir, "go", "build", "./...")
	side.Vet = m.quietly(ctx, dir, "go", "vet", "./...")
	for _, pkg := range packages {
		tests, err := m.tries(ctx, dir, pkg)
		if err != nil {
			return side, err
		}
		side.Packages[pkg] = tests
	}
	return side, ctx.Err()
}

func (m *matrixRun) name(dir string) string {
	name, err := filepath.Rel(m.work, dir)
	if err != nil {
		return dir
	}
	return name
}

// quietly reports whether a command succeeds. What it says is shown if it fails.
func (m *matrixRun) quietly(ctx context.Context, dir string, args ...string) string {
	m.say("%s: %s", m.name(dir), args[1])
	var said bytes.Buffer
	_, err := proc.Command{Dir: dir, Args: args, Stdout: &said, Stderr: &said}.Run(ctx)
	if err == nil {
		return "ok"
	}
	fmt.Fprintf(m.stderr, "%v\n%s", err, &said)
	return "failed"
}

// tries runs the tests of a package, a second time if any fail.
func (m *matrixRun) tries(ctx context.Context, dir, pkg string) (matrix.Tests, error) {
	tests := matrix.Tests{}
	for try := 1; try <= 2; try++ {
		m.say("%s: %s, try %d", m.name(dir), pkg, try)
		passed, err := m.try(ctx, dir, pkg, func(r *gotest.Report, specs []byte) error {
			return tests.Add(try, r, specs)
		})
		if err != nil || passed {
			return tests, err
		}
	}
	return tests, nil // the table says what failed
}

// try adds what go test said, and ginkgo's report.
func (m *matrixRun) try(ctx context.Context, dir, pkg string, add func(*gotest.Report, []byte) error) (passed bool, err error) {
	ginkgos := filepath.Join(m.work, "ginkgo.json")
	if err := os.RemoveAll(ginkgos); err != nil {
		return false, err
	}
	env := m.found.env(pkg == "pkg/client/apiutil" && !ownServer(dir))
	args := []string{"-count=1", "-timeout", "20m", "./" + pkg}
	if ginkgo, err := usesGinkgo(filepath.Join(dir, pkg)); err != nil {
		return false, err
	} else if ginkgo {
		args = append(args, "-args", "-ginkgo.json-report="+ginkgos)
	}
	report, failed := gotest.Command{Dir: dir, Env: env, Args: args, Progress: m.stderr}.Run(ctx)
	if ctx.Err() != nil || report == nil {
		return false, errors.Join(failed, ctx.Err())
	}
	specs, err := os.ReadFile(ginkgos)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return failed == nil, add(report, specs)
}

func usesGinkgo(dir string) (bool, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return false, err
		}
		if bytes.Contains(text, []byte("onsi/ginkgo")) {
			return true, nil
		}
	}
	return false, err
}
