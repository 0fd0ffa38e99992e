// SPDX-License-Identifier: Apache-2.0

package adopters

import (
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
	"github.com/freshmapper/freshmapper/hack/fork/tree"
	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

var (
	releases = flag.String("lines", "", "releases, v0.20.4,v0.25.2 say; default: the newest tested one of each line")
	folders  = flag.String("folders", "pkg/client/...,pkg/cache/...,pkg/cluster/...,pkg/manager/...,pkg/controller/...,pkg/builder/...,pkg/handler", "of upstream's packages")
)

const matrixHead = `<!-- SPDX-License-Identifier: Apache-2.0 -->

# Upstream's tests on stock and on the fork

Written by ` + "`hack/test.sh -matrix`" + `. For each release: upstream's own tests, unmodified, on the stock tree and on the
tree that hack/fork makes of it, on real API servers. Each is compared by name, ginkgo's specs included. Both sides leave
out ` + "`pkg/client/apiutil/restmapper_wb_test.go`" + `: it tests internals of the mapper that is replaced. "Ours" are tests that
the fork brings along. A package with a test that differs is run three times more on both sides. A test's best result on
each side counts.

API servers: %s; and %s where upstream tests the mapper without
aggregated discovery. On v0.20 both parts of that test use the latter, because they share a server. %s.
`

// upstream runs upstream's own tests on both sides of releases.
type upstream struct {
	commands
	latest, legacy string // folders of API servers
	builds         [][]string
	all            results
}

// TestUpstream fails if a test of upstream's is worse on the fork than on stock.
func TestUpstream(t *testing.T) {
	if *page == "" {
		t.Skip("takes hours: hack/test.sh -matrix")
	}
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	u := &upstream{
		commands: commands{ctx}, latest: os.Getenv("KUBEBUILDER_ASSETS"), legacy: os.Getenv("LEGACY_ASSETS"),
		all: results{lists: map[string][]string{}},
	}
	server := func(assets string) string {
		return u.output(t, "", filepath.Join(assets, "kube-apiserver"), "--version")
	}
	head := fmt.Sprintf(matrixHead, server(u.latest), server(u.legacy), u.output(t, "", "go", "env", "GOVERSION"))
	versions := strings.Split(*releases, ",")
	if *releases == "" {
		versions = nil
		for _, line := range tree.Lines {
			versions = append(versions, line.Newest)
		}
	}
	for _, version := range versions {
		u.release(t, version)
	}
	var p report.Page
	p.Table([]string{"controller-runtime", "build, stock", "build, fork", "vet, stock", "vet, fork"}, u.builds...)
	u.all.page(&p, "controller-runtime", "package", "stock", "fork", "ours", "verdict")
	must(t, p.Write(*page, head))
}

// release makes the trees of a release, both without the white-box test, and runs the tests on
// them.
func (u *upstream) release(t *testing.T, version string) {
	source, err := tree.Folder(u.ctx, version, nil)
	must(t, err)
	work := t.TempDir()
	stock, forked := filepath.Join(work, "stock"), filepath.Join(work, "fork")
	clone(t, stock, source)
	if err := os.Remove(filepath.Join(stock, "pkg/client/apiutil/restmapper_wb_test.go")); !errors.Is(err, fs.ErrNotExist) {
		must(t, err)
	}
	must(t, tree.Create(u.ctx, tree.Request{Dir: forked, Version: version, Ours: freshmapper.Source, Full: true, Out: os.Stderr}))
	row := []string{version}
	for _, command := range []string{"build", "vet"} {
		ok := [2]string{"ok", "ok"}
		for i, dir := range []string{stock, forked} {
			if said, err := u.try(t, dir, nil, "go", command, "./..."); err != nil {
				t.Log(said)
				ok[i] = "failed"
			}
		}
		if ok[0] == "ok" && ok[1] != "ok" {
			t.Errorf("%s: go %s fails on the fork alone", version, command)
		}
		row = append(row, ok[:]...)
	}
	u.builds = append(u.builds, row)
	list := []string{"go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}"}
	for _, folder := range strings.Split(*folders, ",") {
		list = append(list, "./"+folder)
	}
	for _, path := range slices.Compact(slices.Sorted(slices.Values(strings.Fields(u.output(t, stock, list...))))) {
		u.compare(t, version, stock, forked, strings.TrimPrefix(path, tree.Module+"/"))
	}
}

// compare compares the tests of a package. In v0.20 both parts of the mapper's test take the
// same server, which has to be the old one. In later lines the part without aggregated
// discovery finds its server in setup-envtest's store.
func (u *upstream) compare(t *testing.T, version, stock, forked, pkg string) {
	server := u.latest
	mentions := func(dir, files, text string) bool {
		_, err := u.try(t, dir, nil, "sh", "-c", "grep -q "+text+" "+pkg+"/"+files)
		return err == nil
	}
	if pkg == "pkg/client/apiutil" && !mentions(stock, "restmapper_test.go", "DownloadBinaryAssets") {
		server = u.legacy
	}
	run := func(fork bool) states {
		dir := map[bool]string{false: stock, true: forked}[fork]
		return u.test(t, dir, "./"+pkg, mentions(dir, "*_test.go", "onsi/ginkgo"), []string{"KUBEBUILDER_ASSETS=" + server}, "-timeout=20m")
	}
	found := &comparison{results: &u.all, subject: version}
	found.compare(pkg, run(false), run)
	verdict := "same"
	if found.worse > 0 {
		verdict = fmt.Sprintf("**%d worse**", found.worse)
		t.Errorf("%s %s: %d tests are worse on the fork", version, pkg, found.worse)
	} else if found.better > 0 {
		verdict = fmt.Sprintf("%d better", found.better)
	}
	u.all.rows = append(u.all.rows, []string{version, pkg, counted(found.stock), counted(found.fork), counted(found.ours), verdict})
}

// counted is "12 passed, 1 failed"; of nothing "none".
func counted(all []state) string {
	var words []string
	for _, of := range []state{passed, failed, skipped, absent} {
		n := 0
		for _, is := range all {
			if is == of {
				n++
			}
		}
		if n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, of))
		}
	}
	if words == nil {
		return "none"
	}
	return strings.Join(words, ", ")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
