// SPDX-License-Identifier: Apache-2.0

// Package adopters compares fork and stock by other people's tests, by name: upstream's own
// (hack/test.sh -matrix runs TestUpstream), and those of operators, unmodified and from the Go
// module proxy. Two operators are also at work on a real API server, while CRDs come late and
// change. operators.yaml lists the operators. In hack/proof:
//
//	go test ./adopters -v -timeout 0 -run TestAdopters/JobSet/tests -args -page /tmp/page.md [-packages 12] [-servers]
//	go test ./adopters -v -timeout 0 -run TestAdopters/kro/live -args -page /tmp/page.md
//
// A run of all operators writes docs/adopters.md. What a run of a few writes takes the
// place of their rows and parts there.
package adopters

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

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
	servers  = flag.Bool("servers", false, "run tests that start an API server, too, and those first: it is the one in $KUBEBUILDER_ASSETS")
)

// operator is a published module. operators.yaml explains Live.
type operator struct {
	Name, Module, Version, Home string
	Live                        *scenario
}

//go:embed operators.yaml
var table []byte

// No test of an operator's own is worse on the fork, and on a real API server the fork
// acts on what comes late or changes.
func TestAdopters(t *testing.T) {
	c := begin(t)
	var known struct{ Operators []operator }
	must(t, yaml.Unmarshal(table, &known))
	head, err := os.ReadFile(root + "/docs/adopters.md") // what it says before the first table
	must(t, err)
	var own, live report.Page
	all := results{lists: map[string][]string{}}
	for _, op := range known.Operators {
		t.Run(op.Name, func(t *testing.T) {
			tr := &trees{operator: op, commands: c, dir: t.TempDir()}
			tr.copy(t)
			t.Run("tests", func(t *testing.T) { tr.compare(t, &all) })
			if op.Live != nil {
				t.Run("live", func(t *testing.T) { tr.live(t, &live) })
			}
			must(t, c.ctx.Err())
		})
	}
	all.page(&own, "operator", "packages")
	own.Text("## On a real API server\n")
	own.Text("Each side has an API server of its own. Times depend on what else the machine does; what counts is whether the operator acts at all, within %v.\n", giveUp)
	own.Text("%s\n", live.String())
	own.Text("Machine: %s.", report.Machine())
	must(t, own.Write(*page, string(head[:bytes.Index(head, []byte("\n| "))])))
}

// begin skips a test that does not say where to write. What it starts ends when somebody
// interrupts it.
func begin(t *testing.T) commands {
	if *page == "" {
		t.Skip("-page does not say where to write; this takes hours")
	}
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	t.Cleanup(stop)
	return commands{ctx}
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
	commands
	dir         string
	stock, fork string
	mod         struct {
		Require []struct{ Path, Version string }
		Replace []struct {
			Old, New struct{ Path, Version string }
		}
	}
}

// copy makes the copies.
func (tr *trees) copy(t *testing.T) {
	tr.stock, tr.fork = filepath.Join(tr.dir, "stock"), filepath.Join(tr.dir, "fork")
	clone(t, tr.stock, tr.download(t, tr.Module, tr.Version))
	// Modules that a repository keeps in folders of its own, and replaces with these, are
	// not in the module's zip.
	tr.json(t, tr.stock, &tr.mod, "go", "mod", "edit", "-json")
	for _, r := range tr.mod.Replace {
		to := filepath.Join(tr.stock, filepath.FromSlash(r.New.Path))
		if _, err := os.Stat(to); err != nil && r.New.Version == "" {
			clone(t, to, tr.download(t, r.Old.Path, tr.requires(t, r.Old.Path)))
		}
	}
	clone(t, tr.fork, tr.stock)
	if said, err := tr.try(t, root, nil, "go", "run", "./hack/fork", "-into", tr.fork); err != nil {
		t.Fatalf("it can't be forked: %v\n%s", err, said)
	}
}

func clone(t *testing.T, to, from string) {
	t.Helper()
	must(t, os.CopyFS(to, os.DirFS(from)))
}

// download returns the folder of a module in the module cache: do not write there.
func (tr *trees) download(t *testing.T, module, version string) string {
	t.Helper()
	var got struct{ Dir string }
	tr.json(t, tr.dir, &got, "go", "mod", "download", "-json", module+"@"+version)
	return got.Dir
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

// json reads what a command says.
func (tr *trees) json(t *testing.T, dir string, to any, args ...string) {
	t.Helper()
	must(t, json.Unmarshal([]byte(tr.output(t, dir, args...)), to))
}

// build builds packages of a tree, which fails the test if it fails.
func (tr *trees) build(t *testing.T, dir, binary, packages string) {
	t.Helper()
	if said, err := tr.try(t, dir, nil, "go", "build", "-o", binary, packages); err != nil {
		t.Fatalf("%s does not build: %v\n%s", filepath.Base(dir), err, said)
	}
}

// commands end with all that they have started when somebody interrupts the test.
type commands struct{ ctx context.Context }

func (c commands) command(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOTOOLCHAIN=auto", // an operator may need a newer Go than ours
		"KUBEBUILDER_CONTROLPLANE_START_TIMEOUT=5m", "KUBEBUILDER_CONTROLPLANE_STOP_TIMEOUT=2m") // for a busy machine
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	return cmd
}

// output runs a command that must work.
func (c commands) output(t *testing.T, dir string, args ...string) string {
	t.Helper()
	said, err := c.command(c.ctx, dir, args...).Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, said)
	}
	return strings.TrimSpace(string(said))
}

// try runs a command, and returns also what it said.
func (c commands) try(t *testing.T, dir string, env []string, args ...string) (string, error) {
	t.Helper()
	t.Logf("in %s: %s", dir, strings.Join(args, " "))
	cmd := c.command(c.ctx, dir, args...)
	cmd.Env = append(cmd.Env, env...)
	said, err := cmd.CombinedOutput()
	if c.ctx.Err() != nil {
		t.Fatal(c.ctx.Err())
	}
	return string(said), err
}
