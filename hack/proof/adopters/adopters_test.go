// SPDX-License-Identifier: Apache-2.0

// Package adopters compares fork and stock by other people's tests, by name: upstream's own
// (hack/test.sh -matrix runs TestUpstream), and those of operators, unmodified and from the Go
// module proxy or their repository. Five operators are also at work on a real API server, while
// CRDs come late, change and go. operators.yaml lists the operators. In hack/proof:
//
//	go test ./adopters -v -timeout 0 -run TestAdopters/JobSet/tests -args -page /tmp/page.md [-packages 12]
//	go test ./adopters -v -timeout 0 -run TestAdopters/kro/live -args -page /tmp/page.md
//
// A run of all operators writes docs/adopters.md.
package adopters

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
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
	"time"

	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

const (
	root              = "../../.."
	controllerRuntime = "sigs.k8s.io/controller-runtime"
)

var (
	page     = flag.String("page", "", "the page to write; empty: no operator is run")
	packages = flag.Int("packages", 12, "how many packages of each operator are tested at most")
)

// operator is a published module, or without one a repository at the tag. operators.yaml
// explains Live.
type operator struct {
	Name, Module, Version, Home string
	Live                        *scenario
}

// ctx ends when somebody interrupts the test, and with it what the test has started. No page
// is written then.
var ctx, _ = signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)

//go:embed operators.yaml
var table []byte

// No test of an operator's own is worse on the fork, and on a real API server the fork
// acts on what comes late or changes.
func TestAdopters(t *testing.T) {
	needsPage(t)
	var known struct{ Operators []operator }
	must(t, yaml.Unmarshal(table, &known))
	head, err := os.ReadFile(root + "/docs/adopters.md") // what it says before the first table
	must(t, err)
	var own, live report.Page
	all := results{lists: map[string][]string{}}
	for _, op := range known.Operators {
		t.Run(op.Name, func(t *testing.T) {
			tr := newTrees(t, op)
			t.Run("tests", func(t *testing.T) { tr.compare(t, &all) })
			if op.Live != nil {
				t.Run("live", func(t *testing.T) { tr.live(t, &live) })
			}
		})
	}
	must(t, ctx.Err())
	all.page(&own, "operator", "packages")
	own.Text("## On a real API server\n")
	own.Text("Each side has an API server of its own. Times depend on what else the machine does; what counts is whether the operator acts at all, within %v.\n", giveUp)
	own.Text("%s\n", live.String())
	own.Text("Machine: %s.", report.Machine())
	must(t, own.Write(*page, string(head[:bytes.Index(head, []byte("\n| "))])))
}

// needsPage skips a test that does not say where to write.
func needsPage(t *testing.T) {
	if *page == "" {
		t.Skip("-page does not say where to write; this takes hours")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// trees are two copies of an operator: as it is, and forked.
type trees struct {
	operator
	stock, fork string
	mod         struct {
		Module  struct{ Path string }
		Require []struct{ Path, Version string }
		Replace []struct {
			Old, New struct{ Path, Version string }
		}
	}
}

func newTrees(t *testing.T, op operator) *trees {
	dir := t.TempDir()
	tr := &trees{operator: op, stock: filepath.Join(dir, "stock"), fork: filepath.Join(dir, "fork")}
	if tr.Module == "" {
		output(t, "", "git", "clone", "--quiet", "--depth=1", "--branch="+tr.Version, tr.Home, tr.stock)
	} else {
		must(t, os.CopyFS(tr.stock, download(t, tr.Module, tr.Version)))
	}
	// Modules that a repository keeps in folders of its own, and replaces with these, are
	// not in the module's zip.
	must(t, json.Unmarshal(output(t, tr.stock, "go", "mod", "edit", "-json"), &tr.mod))
	for _, r := range tr.mod.Replace {
		to := filepath.Join(tr.stock, filepath.FromSlash(r.New.Path))
		if _, err := os.Stat(to); err != nil && r.New.Version == "" {
			must(t, os.CopyFS(to, download(t, r.Old.Path, tr.requires(t, r.Old.Path))))
		}
	}
	must(t, os.CopyFS(tr.fork, os.DirFS(tr.stock)))
	output(t, root, "go", "run", "./hack/fork", "-into", tr.fork)
	return tr
}

// requires returns the version of a module in the operator's go.mod.
func (tr *trees) requires(t *testing.T, path string) string {
	t.Helper()
	for _, r := range tr.mod.Require {
		if r.Path == path {
			return r.Version
		}
	}
	t.Fatalf("%s is not in its go.mod", path)
	return ""
}

// compare builds the operator, and runs its tests on stock and fork: of those packages whose
// tests have the mapper in them, and start no API server.
func (tr *trees) compare(t *testing.T, all *results) {
	output(t, tr.stock, "go", "build", "./...")
	output(t, tr.fork, "go", "build", "./...")
	found := all.of(tr.Name)
	candidates := slices.DeleteFunc(listed(t, tr.stock, "./..."), func(p tested) bool { return !p.has(controllerRuntime + "/pkg/client/apiutil") })
	ran, servers, more := 0, 0, 0
	for _, p := range candidates {
		short := strings.TrimPrefix(strings.TrimPrefix(p.path, tr.mod.Module.Path), "/")
		switch {
		case p.has(controllerRuntime + "/pkg/envtest"):
			servers++
		case ran == *packages:
			more++
		case found.compare(short, func(fork bool) states {
			return p.test(t, map[bool]string{false: tr.stock, true: tr.fork}[fork], nil, "-short", "-vet=off", "-timeout=10m")
		}):
			ran++
		}
	}
	if servers > 0 {
		found.list(notRun, "packages whose tests start an API server: %d", servers)
	}
	if more > 0 {
		found.list(notRun, "packages beyond the limit of that run: %d", more)
	}
	found.row(t, "["+tr.Name+"]("+tr.Home+") "+tr.Version+", controller-runtime "+tr.requires(t, controllerRuntime), fmt.Sprintf("%d of %d", ran, len(candidates)))
}

// download returns a module in the module cache.
func download(t *testing.T, module, version string) fs.FS {
	t.Helper()
	var got struct{ Dir string }
	must(t, json.Unmarshal(output(t, "", "go", "mod", "download", "-json", module+"@"+version), &got))
	return os.DirFS(got.Dir)
}

func command(t *testing.T, dir string, env []string, args ...string) *exec.Cmd {
	t.Helper()
	must(t, ctx.Err())
	t.Logf("in %s: %s", dir, strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.WaitDelay = dir, 10*time.Second
	cmd.Env = append(append(os.Environ(), "GOWORK=off", "GOTOOLCHAIN=auto", // an operator may need a newer Go than ours
		"KUBEBUILDER_CONTROLPLANE_START_TIMEOUT=5m", "KUBEBUILDER_CONTROLPLANE_STOP_TIMEOUT=2m"), env...) // for a busy machine
	return cmd
}

// output runs a command that must work, and returns what it writes to stdout.
func output(t *testing.T, dir string, args ...string) []byte {
	t.Helper()
	said, err := command(t, dir, nil, args...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Fatalf("%s: %v\n%s%s", strings.Join(args, " "), err, said, exit.Stderr)
	}
	must(t, err)
	return bytes.TrimSpace(said)
}
