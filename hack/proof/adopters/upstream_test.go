// SPDX-License-Identifier: Apache-2.0

package adopters

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

var (
	releases = flag.String("lines", "", "releases, v0.20.4,v0.25.2 say; default: the newest tested one of each line")
	folders  = flag.String("folders", "./pkg/client/...,./pkg/cache/...,./pkg/cluster/...,./pkg/manager/...,./pkg/controller/...,./pkg/builder/...,./pkg/handler", "of upstream's packages")
)

const matrixHead = `<!-- SPDX-License-Identifier: Apache-2.0 -->

# Upstream's tests on stock and on the fork

Written by ` + "`hack/test.sh -matrix`" + `. For each release: upstream's own tests, unmodified, on the stock tree and on the
tree that hack/fork makes of it, on real API servers. Each is compared by name, ginkgo's specs included. Both sides leave
out ` + "`pkg/client/apiutil/restmapper_wb_test.go`" + `: it tests internals of the mapper that is replaced. "Ours" are tests that
the fork brings along. A package with a test that differs is run three times more on both sides. A test's best result on
each side counts.

API servers: %s; and %s where upstream tests the mapper without
aggregated discovery. On v0.20 both parts of that test use the latter, because they share a server.

Machine: %s.
`

// upstream runs upstream's own tests on both sides of releases.
type upstream struct {
	latest, legacy string // folders of API servers
	results
}

// TestUpstream fails if a test of upstream's is worse on the fork than on stock.
func TestUpstream(t *testing.T) {
	needsPage(t)
	u := &upstream{os.Getenv("KUBEBUILDER_ASSETS"), os.Getenv("LEGACY_ASSETS"), results{lists: map[string][]string{}}}
	version := func(assets string) []byte { return output(t, "", filepath.Join(assets, "kube-apiserver"), "--version") }
	head := fmt.Sprintf(matrixHead, version(u.latest), version(u.legacy), report.Machine())
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
	must(t, ctx.Err())
	var p report.Page
	u.page(&p, "controller-runtime", "package")
	must(t, p.Write(*page, head))
}

// release makes the trees of a release, both without the white-box test, and runs the tests on
// them.
func (u *upstream) release(t *testing.T, version string) {
	source, err := tree.Folder(ctx, version, nil)
	must(t, err)
	work := t.TempDir()
	dirs := map[bool]string{false: filepath.Join(work, "stock"), true: filepath.Join(work, "fork")}
	must(t, os.CopyFS(dirs[false], os.DirFS(source)))
	if err := os.Remove(filepath.Join(dirs[false], "pkg/client/apiutil/restmapper_wb_test.go")); !errors.Is(err, fs.ErrNotExist) {
		must(t, err)
	}
	must(t, tree.Create(ctx, tree.Request{Dir: dirs[true], Version: version, Ours: freshmapper.Source, Full: true, Out: os.Stderr}))
	u.compare(t, version, "build and vet", func(fork bool) states {
		got := states{"go build": passed, "go vet": passed}
		for name := range got {
			if said, err := command(t, dirs[fork], nil, append(strings.Fields(name), "./...")...).CombinedOutput(); err != nil {
				t.Logf("%s", said)
				got[name] = failed
			}
		}
		return got
	})
	mapper, err := os.ReadFile(filepath.Join(dirs[false], "pkg/client/apiutil/restmapper_test.go"))
	must(t, err)
	for _, p := range listed(t, dirs[false], strings.Split("./"+strings.NewReplacer("./", "", ",", ",./").Replace(*folders), ",")...) {
		// In v0.20 both parts of the mapper's test take the same server, which has to be the old one.
		// In later lines the part without aggregated discovery finds its server in setup-envtest's store.
		pkg, server := strings.TrimPrefix(p.path, tree.Module+"/"), u.latest
		if pkg == "pkg/client/apiutil" && !bytes.Contains(mapper, []byte("DownloadBinaryAssets")) {
			server = u.legacy
		}
		u.compare(t, version, pkg, func(fork bool) states {
			return p.test(t, dirs[fork], []string{"KUBEBUILDER_ASSETS=" + server}, "-timeout=20m")
		})
	}
}

// compare adds the row of a package.
func (u *upstream) compare(t *testing.T, version, pkg string, run func(fork bool) states) {
	found := u.of(version)
	found.compare(pkg, run)
	found.row(t, version, pkg)
}
