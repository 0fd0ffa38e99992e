// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/freshmapper/freshmapper"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

var (
	file     = flag.String("page", "", "the file to write the page to; without it TestUpstream is skipped")
	releases = flag.String("lines", "", "releases, v0.20.4,v0.25.2 say; default: the newest tested one of each line")
	packages = flag.String("packages", "pkg/client/...,pkg/cache/...,pkg/cluster/...,pkg/manager/...,pkg/controller/...,pkg/builder/...,pkg/handler", "folders")
)

// upstream runs upstream's tests on both sides of lines.
type upstream struct {
	*testing.T
	ctx            context.Context
	latest, legacy string // folders of API servers
	gotestsum      string
}

// TestUpstream fails if a test of upstream's is worse on the fork than on stock.
func TestUpstream(t *testing.T) {
	if *file == "" {
		t.Skip("takes hours: hack/test.sh -matrix")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) // what it runs ends with it
	defer stop()
	gotestsum, err := filepath.Abs("../../../.cache/gotestsum")
	u := &upstream{T: t, ctx: ctx, latest: os.Getenv("KUBEBUILDER_ASSETS"), legacy: os.Getenv("LEGACY_ASSETS"), gotestsum: gotestsum}
	u.must(err)
	server := func(assets string) string { return u.output("", filepath.Join(assets, "kube-apiserver"), "--version") }
	described := fmt.Sprintf("API servers: %s; and %s where upstream tests the mapper without\n"+
		"aggregated discovery. On v0.20 both parts of that test use the latter, because they share a server. %s.",
		server(u.latest), server(u.legacy), u.output("", "go", "env", "GOVERSION"))
	var versions []string
	for _, line := range tree.Lines {
		versions = append(versions, line.Newest)
	}
	if *releases != "" {
		versions = strings.Split(*releases, ",")
	}
	var lines []line
	for _, version := range versions {
		lines = append(lines, u.line(version))
	}
	text, good := write(described, lines)
	if !good {
		t.Error("the fork is not as good as stock")
	}
	u.must(os.WriteFile(*file, []byte(text), 0o600))
}

func (u *upstream) must(err error) {
	u.Helper()
	if err != nil {
		u.Fatal(err)
	}
}

// output is what a command prints.
func (u *upstream) output(dir string, args ...string) string {
	u.Helper()
	cmd := exec.CommandContext(u.ctx, args[0], args[1:]...)
	cmd.Dir = dir
	said, err := cmd.Output()
	u.must(err)
	return strings.TrimSpace(string(said))
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
	list := []string{"go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}"}
	for _, folder := range strings.Split(*packages, ",") {
		list = append(list, "./"+folder)
	}
	tested := slices.Compact(slices.Sorted(slices.Values(strings.Fields(u.output(stock, list...)))))
	return line{version: version, stock: u.side(stock, version+" stock", tested), fork: u.side(forked, version+" fork", tested)}
}

// side builds and vets a tree and runs its tests, those of a package a second time
// if any fail.
func (u *upstream) side(dir, name string, tested []string) side {
	s := side{packages: map[string]results{}, retried: map[string]bool{}}
	does := func(command string) string {
		fmt.Fprintf(os.Stderr, "==> %s: %s\n", name, command)
		if u.run(dir, nil, "go", command, "./...") != nil {
			return "failed"
		}
		return "ok"
	}
	s.build, s.vet = does("build"), does("vet")
	for _, path := range tested {
		pkg := strings.TrimPrefix(path, tree.Module+"/")
		for n, passed := 1, false; n <= 2 && !passed; n++ {
			fmt.Fprintf(os.Stderr, "==> %s: %s, try %d\n", name, pkg, n)
			var tried results
			tried, passed = u.test(dir, pkg)
			s.try(n, pkg, tried)
		}
	}
	return s
}

// run runs a command, which may fail, and shows what it says.
func (u *upstream) run(dir string, env []string, args ...string) error {
	cmd := exec.CommandContext(u.ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(os.Environ(), env...), os.Stderr, os.Stderr
	err := cmd.Run()
	u.must(u.ctx.Err())
	return err
}

// test runs the tests of a package, and reports whether all pass. In v0.20 both parts of the
// mapper's test take the same server, which has to be the old one. In later lines the part
// without aggregated discovery finds its server in setup-envtest's store.
func (u *upstream) test(dir, pkg string) (tried results, passed bool) {
	server, temp := u.latest, u.TempDir()
	events, specs := filepath.Join(temp, "go.json"), filepath.Join(temp, "ginkgo.json")
	args := []string{u.gotestsum, "--format", "standard-quiet", "--jsonfile", events, "--", "-count=1", "-timeout", "20m", "./" + pkg}
	mentions := func(files, text string) bool {
		return u.run(dir, nil, "sh", "-c", "grep -q "+text+" "+pkg+"/"+files) == nil
	}
	if pkg == "pkg/client/apiutil" && !mentions("restmapper_test.go", "DownloadBinaryAssets") {
		server = u.legacy
	}
	if mentions("*_test.go", "onsi/ginkgo") {
		args = append(args, "-args", "-ginkgo.json-report="+specs)
	}
	failed := u.run(dir, []string{"KUBEBUILDER_ASSETS=" + server}, args...)
	tried = results{}
	said, err := os.ReadFile(events)
	u.must(err)
	tried.addTests(said)
	if said, err = os.ReadFile(specs); !errors.Is(err, fs.ErrNotExist) {
		u.must(err)
		u.must(tried.addSpecs(said))
	}
	return tried, failed == nil
}
