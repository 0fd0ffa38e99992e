// SPDX-License-Identifier: Apache-2.0

package adopters

import (
	"context"
	_ "embed"
	"flag"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/freshmapper/freshmapper/hack/dev/proc"
)

const root = "../.." // from hack/proof, where the tests go

var (
	out      = flag.String("o", "", "`folder`, seen from hack/proof, that keeps what is known of each operator; empty: no operator is run")
	page     = flag.String("page", filepath.Join(root, "docs/adopters.md"), "the page to write, seen from hack/proof")
	packages = flag.Int("packages", 12, "how many packages of each operator are tested at most")
	servers  = flag.Bool("servers", false, "run tests that start an API server, too, and those first: it is the one in $KUBEBUILDER_ASSETS")
)

// operator is a published module.
type operator struct {
	Name, Module, Version, Home string
}

// entry is what operators.yaml says of an operator.
type entry struct {
	operator
	Live *scenario
}

//go:embed operators.yaml
var table []byte

func operators(t *testing.T) []entry {
	t.Helper()
	var all struct{ Operators []entry }
	if err := yaml.Unmarshal(table, &all); err != nil {
		t.Fatal("read operators.yaml:", err)
	}
	return all.Operators
}

// No test of the operator's own is worse on the fork.
func TestOwnTests(t *testing.T) {
	prove(t, func(ctx context.Context, t *testing.T, op entry) func(*result) {
		found := op.copied(ctx, t).compare(ctx, t)
		return func(r *result) { found.Live, *r = r.Live, *found }
	})
}

// The fork acts on what comes late or changes.
func TestLive(t *testing.T) {
	prove(t, func(ctx context.Context, t *testing.T, op entry) func(*result) {
		if op.Live == nil {
			t.Skip("no scenario in operators.yaml")
		}
		found := op.copied(ctx, t).live(ctx, t)
		return func(r *result) { r.Live = found }
	})
}

// prove proves something of each operator, and adds it to what is known.
func prove(t *testing.T, of func(ctx context.Context, t *testing.T, op entry) func(*result)) {
	if *out == "" {
		t.Skip("without -o no operator is run")
	}
	t.Chdir("..")
	ctx, stop := signal.NotifyContext(proc.Nice(t.Context()), os.Interrupt, syscall.SIGTERM)
	defer stop()
	for _, op := range operators(t) {
		t.Run(op.Name, func(t *testing.T) {
			put := of(ctx, t, op)
			if ctx.Err() != nil {
				t.Fatal(ctx.Err())
			}
			known := readResults(t, filepath.Join(*out, "adopters.json")) // not before: another run may have written it meanwhile
			r := known.of(op.operator)
			put(r)
			known.write(t, *page)
			if err := r.verdict(); err != nil {
				t.Error(err)
			}
		})
	}
}

func today() string { return time.Now().UTC().Format(time.DateOnly) }
