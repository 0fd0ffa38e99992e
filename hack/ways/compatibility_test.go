// SPDX-License-Identifier: Apache-2.0

package ways

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper/hack/fork/forktest"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

var (
	page  = flag.String("page", "", "the file to write the page to; without it TestCompatibility is skipped")
	lines = flag.String("lines", "", "releases, v0.20.4,v0.25.2 say; default: the newest tested one of each line")
)

const (
	pageHead = `<!-- SPDX-License-Identifier: Apache-2.0 -->

# Compatibility

Written by ` + "`hack/test.sh -compatibility`" + `. For each row a program with a manager was built and run, once with this mapper through
` + "`MapperProvider`" + ` and once with the fork, with the k8s.io modules that this controller-runtime requires: the oldest Go that it
takes, and the newest. The results of upstream's own tests on each fork are in [MATRIX.md](../hack/fork/MATRIX.md).

| controller-runtime | k8s.io | Go | provider | fork |
|---|---|---|---|---|
`
	pageTail = `
Any patch release of these lines may be forked; the newest of each is what is tested. API servers: discovery as Kubernetes 1.37
and 1.28 serve it, the latter with and without aggregated discovery, in ` + "`hack/test.sh`" + `.

With the provider, go.mod gains one requirement. Only one module moves: with v0.21 to v0.23 the indirect
` + "`github.com/davecgh/go-spew`" + ` goes from v1.1.1 to the commit after it, which k8s.io v0.32 requires.
`
)

// TestCompatibility tries both ways in with every line, with the oldest Go that it
// takes and with the one that is installed.
func TestCompatibility(t *testing.T) {
	if *page == "" {
		t.Skip("takes an hour: hack/test.sh -compatibility")
	}
	versions := strings.Split(*lines, ",")
	if *lines == "" {
		versions = nil
		for _, line := range tree.Lines {
			versions = append(versions, line.Newest)
		}
	}
	text := bytes.NewBufferString(pageHead)
	installed := strings.TrimPrefix(strings.TrimSpace(forktest.Stdout(t, ".", "go", "env", "GOVERSION")), "go")
	for _, version := range versions {
		kubernetes, oldest := required(t, version)
		goVersions := []string{installed}
		if minor(oldest) != minor(installed) {
			goVersions = []string{newestGo(t, minor(oldest)), installed}
		}
		for _, goVersion := range goVersions {
			verdict := func(way string, test func(*testing.T, string)) string {
				ok := t.Run(strings.Join([]string{way, version, goVersion}, "/"), func(t *testing.T) {
					t.Setenv("GOTOOLCHAIN", "go"+goVersion)
					test(t, version)
				})
				return map[bool]string{true: "ok", false: "FAILED"}[ok]
			}
			fmt.Fprintf(text, "| %s | %s | %s | %s | %s |\n", version, kubernetes, goVersion, verdict("provider", provider), verdict("fork", fork))
		}
	}
	text.WriteString(pageTail)
	if err := os.WriteFile(*page, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestOldestGo vets the root module, tests included, with the Go that its go.mod asks for.
func TestOldestGo(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the module with another Go")
	}
	asked := forktest.Stdout(t, "../..", "go", "list", "-m", "-f", "{{.GoVersion}}")
	t.Setenv("GOTOOLCHAIN", "go"+newestGo(t, minor(asked)))
	forktest.Run(t, "../..", "go", "vet", "./...")
}

// minor is "1.23" of "1.23.4".
func minor(version string) string {
	words := strings.SplitN(strings.TrimSpace(version), ".", 3)
	return strings.Join(words[:min(2, len(words))], ".")
}

func TestMinor(t *testing.T) {
	for version, want := range map[string]string{"1.23.4": "1.23", "1.26": "1.26", "1": "1"} {
		if got := minor(version); got != want {
			t.Errorf("%s: %s", version, got)
		}
	}
}

// newestGo is the newest patch release of a minor version of Go for this machine.
func newestGo(t *testing.T, minor string) string {
	t.Helper()
	listed := forktest.Stdout(t, "../..", "go", "list", "-m", "-versions", "golang.org/toolchain")
	released := regexp.MustCompile(`-go` + regexp.QuoteMeta(minor) + `\.([0-9]+)\.` + runtime.GOOS + "-" + runtime.GOARCH + `(?:\s|$)`)
	patch := -1
	for _, found := range released.FindAllStringSubmatch(listed, -1) {
		n, err := strconv.Atoi(found[1])
		if err != nil {
			t.Fatal(err)
		}
		patch = max(patch, n)
	}
	if patch < 0 {
		t.Fatalf("the Go module proxy has no Go %s for %s/%s", minor, runtime.GOOS, runtime.GOARCH)
	}
	return fmt.Sprintf("%s.%d", minor, patch)
}
