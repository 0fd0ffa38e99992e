// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/freshmapper/freshmapper"
	"github.com/freshmapper/freshmapper/hack/dev/gotest"
	"github.com/freshmapper/freshmapper/hack/dev/proc"
	"github.com/freshmapper/freshmapper/hack/dev/servers"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

var (
	page     = flag.String("page", "", "the file to write the page to; without it TestUpstream is skipped")
	lines    = flag.String("lines", "", "releases, v0.20.4,v0.25.2 say; default: the newest tested one of each line")
	packages = flag.String("packages", "pkg/client/...,pkg/cache/...,pkg/cluster/...,pkg/manager/...,pkg/controller/...,pkg/builder/...,pkg/handler", "folders")
)

// upstream runs upstream's tests on both sides of lines.
type upstream struct {
	*testing.T
	ctx   context.Context
	found servers.Pair
}

// TestUpstream fails if a test of upstream's is worse on the fork than on stock.
func TestUpstream(t *testing.T) {
	if *page == "" {
		t.Skip("takes hours: hack/test.sh -matrix")
	}
	var versions []string
	for _, line := range tree.Lines {
		versions = append(versions, line.Newest)
	}
	if *lines != "" {
		versions = strings.Split(*lines, ",")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) // what it runs ends with it
	defer stop()
	u := &upstream{T: t, ctx: ctx}
	described := u.servers()
	var all []line
	for _, version := range versions {
		all = append(all, u.line(version))
	}
	var text bytes.Buffer
	if !write(&text, described, all) {
		t.Error("the fork is not as good as stock")
	}
	u.must(os.WriteFile(*page, text.Bytes(), 0o600))
}

func (u *upstream) must(err error) {
	u.Helper()
	if err != nil {
		u.Fatal(err)
	}
}

func (u *upstream) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "==> "+format+"\n", args...)
}

// output is what a command prints.
func (u *upstream) output(dir string, args ...string) string {
	u.Helper()
	said, err := proc.Output(u.ctx, dir, nil, args...)
	u.must(err)
	return said
}

// servers finds the API servers, and describes them and Go for the page.
func (u *upstream) servers() string {
	var err error
	u.found, err = servers.FindPair(u.ctx, filepath.Join("..", "..", ".."), u.TempDir(), u.say)
	u.must(err)
	version := func(assets string) string { return u.output("", filepath.Join(assets, "kube-apiserver"), "--version") }
	return fmt.Sprintf("API servers: %s; and %s where upstream tests the mapper without\n"+
		"aggregated discovery. On v0.20 both parts of that test use the latter, because they share a server. %s.",
		version(u.found.Latest), version(u.found.Legacy), u.output("", "go", "env", "GOVERSION"))
}

// line makes the trees of a release, both without the white-box test, and runs
// the tests on them.
func (u *upstream) line(version string) line {
	source, err := tree.Folder(u.ctx, version, nil)
	u.must(err)
	work := u.TempDir()
	stock, forked := filepath.Join(work, "stock"), filepath.Join(work, "fork")
	u.must(os.CopyFS(stock, os.DirFS(source)))
	if err := os.Remove(filepath.Join(stock, "pkg/client/apiutil/restmapper_wb_test.go")); !errors.Is(err, fs.ErrNotExist) {
		u.must(err)
	}
	u.must(tree.Create(u.ctx, tree.Request{Dir: forked, Version: version, Ours: freshmapper.Source, Full: true, Out: os.Stderr}))
	// Those of stock's packages that have tests.
	listed := u.output(stock, append([]string{"go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}"}, patterns()...)...)
	tested := slices.Compact(slices.Sorted(slices.Values(strings.Fields(listed))))
	return line{version: version, stock: u.side(stock, version+" stock", tested), fork: u.side(forked, version+" fork", tested)}
}

func patterns() []string {
	var all []string
	for _, folder := range strings.Split(*packages, ",") {
		all = append(all, "./"+folder)
	}
	return all
}

// side builds and vets a tree and runs its tests, those of a package a second time
// if any fail.
func (u *upstream) side(dir, name string, tested []string) side {
	s := side{packages: map[string]outcomes{}}
	s.build, s.vet = u.quietly(dir, name, "build"), u.quietly(dir, name, "vet")
	for _, path := range tested {
		pkg := strings.TrimPrefix(path, tree.Module+"/")
		s.packages[pkg] = outcomes{}
		for try := 1; try <= 2; try++ {
			u.say("%s: %s, try %d", name, pkg, try)
			if u.try(dir, pkg, try, s.packages[pkg]) {
				break
			}
		}
	}
	return s
}

// quietly runs a go command on a tree. What it says is shown if it fails.
func (u *upstream) quietly(dir, name, command string) string {
	u.say("%s: %s", name, command)
	var said bytes.Buffer
	if err := (proc.Command{Dir: dir, Args: []string{"go", command, "./..."}, Stdout: &said, Stderr: &said}).Run(u.ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, &said)
		return "failed"
	}
	return "ok"
}

// try adds what the tests of a package come to, and reports whether all pass.
func (u *upstream) try(dir, pkg string, try int, to outcomes) (passed bool) {
	env := u.found.Env(u.found.Latest)
	if pkg == "pkg/client/apiutil" {
		env = u.found.ForMapper(dir)
	}
	args := []string{"-count=1", "-timeout", "20m", "./" + pkg}
	ginkgo := filepath.Join(u.TempDir(), "ginkgo.json")
	if u.usesGinkgo(filepath.Join(dir, pkg)) {
		args = append(args, "-args", "-ginkgo.json-report="+ginkgo)
	}
	report, failed := gotest.Command{Dir: dir, Env: env, Args: args, Progress: os.Stderr}.Run(u.ctx)
	u.must(u.ctx.Err())
	specs, err := os.ReadFile(ginkgo)
	if !errors.Is(err, fs.ErrNotExist) {
		u.must(err)
	}
	u.must(to.add(try, report, specs))
	return failed == nil // the page says what failed
}

func (u *upstream) usesGinkgo(dir string) bool {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	u.must(err)
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		u.must(err)
		return bytes.Contains(text, []byte("onsi/ginkgo"))
	})
}
