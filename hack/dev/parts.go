// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/freshmapper/freshmapper"
	"github.com/freshmapper/freshmapper/hack/dev/gotest"
	"github.com/freshmapper/freshmapper/hack/dev/proc"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// left is something that is not tested, and the flag of hack/test.sh, or the script, that
// tests it.
type left struct{ flag, what string }

func (l left) command() string {
	if strings.HasPrefix(l.flag, "-") {
		return "hack/test.sh " + l.flag
	}
	return l.flag
}

// leftOut lists what the tests of a commit leave out. Each takes long, and proves
// again, elsewhere or in more places, what a commit's tests prove once.
var leftOut = []left{
	{"-nightly", "the race detector on the tools in hack, on the replays, on the forked tree and on the library's longest tests: the rest of the library has it here"},
	{"-nightly", "our own tests of the mapper in the forked tree, which have run in the root module; upstream's of the cache there"},
	{"-nightly", "upstream's tests in the fork of the oldest line: the newest has them here"},
	{"-nightly", "short runs of chaos, soak, hostile and the herd: what they are made of is tested here"},
	{"-nightly", "the replay of a CRD that becomes namespaced under an operator of two namespaces: here it becomes cluster-wide, and then namespaced again; 10,000 Gets of absent objects: here 1,000"},
	{".github/workflows/nightly.yml", "both ways in with the lines between the oldest and the newest, and with the oldest Go, which also vets the root module"},
	{"-nightly", "each patch of the series for upstream by itself, kubebuilder's make targets, the release as a consumer's module"},
	{"hack/proof.sh", "fuzzing, other people's operators; the campaigns at length"},
	{"hack/bench.sh", "the benchmarks"},
	{"-nightly", "the linter on nested modules, vet on forked trees"},
	{"-matrix", "all of upstream's tests on stock and fork of every line; its examples linked, which are only vetted here"},
}

// never are tests that other commands run. Here they would only be skipped.
var never = []string{"^TestUpstream$"}

// nightTests are left to the night whole.
var nightTests = []string{"TestEachPatchPasses", "TestKubebuilderProject", "TestConsumed"}

// skipped are tests of the root module that are not run.
func (t *tester) skipped() string {
	skipped := slices.Clone(never)
	if !t.nightly {
		skipped = append(skipped, "^("+strings.Join(nightTests, "|")+")$")
	}
	return strings.Join(skipped, "|")
}

// all runs all parts. The replays wait most of the time, and measure how long
// something takes. So what runs beside them and upstream's tests, and needs the
// processor, has lower priority.
func (t *tester) all(ctx context.Context) error {
	if !t.quick {
		t.part(ctx, "API servers", func(*row) error { return t.findServers(ctx) })
	}
	switch {
	case t.quick:
		t.untimed(ctx)
	case t.nightly:
		t.untimed(ctx)
		t.replays(ctx)
		t.forks(ctx)
	default:
		return t.beside(ctx)
	}
	return nil
}

// beside runs what is timed and all else at the same time, and then shows what the
// other parts have said.
func (t *tester) beside(ctx context.Context) error {
	said, err := os.Create(filepath.Join(t.work, "said"))
	if err != nil {
		return fmt.Errorf("keep what parts say: %w", err)
	}
	defer said.Close() //nolint:errcheck // it has been read
	other := &tester{checkout: &checkout{root: t.root, stdout: said, stderr: said}, plan: t.plan, work: t.work, found: t.found}
	done := make(chan struct{})
	go func() {
		defer close(done)
		other.untimed(proc.Nice(ctx))
	}()
	t.say("beside what follows, and shown when all is done: the library, the tools, verify")
	t.replays(ctx)
	t.forks(ctx) // upstream's tests expect answers in time, too
	<-done
	t.rows = append(t.rows, other.rows...)
	if _, err := said.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err = io.Copy(t.stderr, said)
	return err
}

// longest are the tests of the library that take much longer with the race
// detector, minutes together. They run without it. Most have one goroutine in
// virtual time.
const longest = "^(TestCapturedDocuments|TestResetsBesideOlderReads|TestLookupsBesideOlderReads|TestHerd|TestFleetChurn|" +
	"TestNoDocumentCostsMinutes|TestNegativeTTLOfManyNames|TestOracle|TestLargeServersAreRead|TestTooMuchIsNotDecoded)$"

// Tests in hack/proof: shortRun is the name of those that run a campaign, which is short
// unless flags make it longer. onlyProof are those that do nothing without flags: hack/proof.sh
// runs them.
const (
	shortRun  = "^(TestChaos|TestSoak|TestHostile|TestHerd|TestHistories)$"
	onlyProof = "^(TestFuzz|TestAdopters)$"
)

// goTest is a part that is one run of go test in a folder of the checkout.
func (t *tester) goTest(ctx context.Context, name, dir string, args ...string) {
	t.part(ctx, name, func(r *row) error { return t.gotest(ctx, r, t.path(dir), t.found.Store, args...) })
}

// untimed are parts without a limit for their time.
func (t *tester) untimed(ctx context.Context) {
	library := []string{"-timeout", "60m", ".", "./apiutil/...", "./internal/..."}
	notProven, lint := onlyProof+"|"+shortRun, "root"
	if t.nightly {
		t.goTest(ctx, "library, -race", ".", append(library, "-race")...)
		notProven, lint = onlyProof, "all"
	} else {
		t.goTest(ctx, "library, -race", ".", append(library, "-race", "-skip", longest)...)
		t.goTest(ctx, "library, its longest tests", ".", append(library, "-run", longest)...)
	}
	t.goTest(ctx, "random histories", "hack/lincheck", "-count=1", ".", "-seed", "1")
	t.goTest(ctx, "tools in hack"+t.raced(), ".", t.race("-timeout", "60m", "-skip", t.skipped(), "./hack/ways", "./hack/...")...) // the longest first
	t.goTest(ctx, "proofs", "hack/proof", "-count=1", "-skip", notProven, "./...")
	t.goTest(ctx, "the benchmarks' own tests", "hack/bench", "-run", "^Test(Figures|SameAnswers)$", ".")
	t.part(ctx, "the examples' own tests", func(r *row) error { return t.examples(ctx, r) })
	t.goTest(ctx, "verify", ".", "-count=1", "-timeout", "60m", "-run", "^TestCheckout$", "./hack/dev/verify", "-args", "-modules", "-lint="+lint)
}

func (t *tester) raced() string {
	if t.nightly {
		return ", -race"
	}
	return ""
}

// race are arguments of go test, with the race detector by night.
func (t *tester) race(args ...string) []string {
	if t.nightly {
		return append([]string{"-race"}, args...)
	}
	return args
}

// examples runs the examples' own unit tests. Unforked, they take the way for stock.
func (t *tester) examples(ctx context.Context, r *row) error {
	folders, err := filepath.Glob(t.path("testdata/consumers/*"))
	for _, folder := range folders {
		err = errors.Join(err, t.gotest(ctx, r, folder, nil, "-tags", "stock", "./..."))
	}
	return failed(err)
}

// nightReplays are S2-namespaces the other way round, and NotFound at length.
const nightReplays = "^TestPlain$/^S2-cluster-namespaces$|^TestUnmanaged$/^NotFound-minute$"

// replays shows after the tests how stock and fork fared, side by side.
func (t *tester) replays(ctx context.Context) {
	t.part(ctx, "replays on an API server"+t.raced(), func(r *row) error {
		results := filepath.Join(t.work, "results")
		args := t.race("-count=1", "-timeout", "30m", "-parallel", "4")
		if !t.nightly {
			args = append(args, "-skip", nightReplays)
		}
		err := t.gotest(ctx, r, t.path("hack/e2e"), []string{"FRESHMAPPER_E2E_RESULTS=" + results}, append(args, "./...")...)
		if table, none := os.ReadFile(results + ".table"); none == nil {
			fmt.Fprintf(t.stdout, "%s", table)
		}
		return err
	})
}

// forks tests the forked tree of the newest line, by night also that of the oldest.
func (t *tester) forks(ctx context.Context) {
	versions := []string{tree.Newest()}
	if t.nightly {
		versions = append(versions, tree.Lines[0].Newest)
	}
	for _, version := range versions {
		forked := filepath.Join(t.work, version)
		t.part(ctx, "the forked "+version+", built", func(r *row) error { return t.build(ctx, r, version, forked) })
		t.part(ctx, "upstream's tests in the forked "+version, func(r *row) error { return t.upstreams(ctx, r, version, forked) })
	}
}

// build writes the forked tree of a release, and compiles it.
func (t *tester) build(ctx context.Context, r *row, version, forked string) error {
	if err := tree.Create(ctx, tree.Request{Dir: forked, Version: version, Ours: freshmapper.Source, Full: true, Out: t.stderr}); err != nil {
		return err
	}
	stock, err := tree.Folder(ctx, version, nil)
	if err != nil {
		return err
	}
	const test = "pkg/client/apiutil/restmapper_test.go"
	upstreams, err := os.ReadFile(filepath.Join(stock, test))
	if err != nil {
		return err
	}
	if text, err := os.ReadFile(filepath.Join(forked, test)); err != nil || !bytes.Equal(text, upstreams) {
		return errors.Join(fmt.Errorf("%s of the forked tree is not upstream's", test), err)
	}
	vetted := []string{"go", "vet", "./examples/..."} // they are not linked: that takes longer than all else
	if t.nightly {
		vetted = append(vetted, "./pkg/client/...", "./pkg/cache/...", "./pkg/handler", "./pkg/internal/follow", "./pkg/metrics/...")
	}
	for _, args := range [][]string{{"go", "build", ".", "./pkg/..."}, vetted} {
		took, err := proc.Command{Dir: forked, Args: args, Stdout: t.stderr, Stderr: t.stderr}.Run(ctx)
		r.report.CPU += took
		if err != nil {
			return err
		}
	}
	return nil
}

// upstreamTests are upstream's in the mapper's package.
var upstreamTests = []string{"TestApiMachinery", "TestSource", "TestLazyRestMapperProvider"}

// upstreams runs upstream's own tests of the mapper and the client, unmodified, in a
// forked tree, by night with ours beside them. The cache's suite, TestSource, takes
// minutes: the night and the matrix have it. A test of the client fails on a new
// server where the mapper's needs an old one, too.
func (t *tester) upstreams(ctx context.Context, r *row, version, forked string) error {
	env, args := t.found.ForMapper(forked), []string{"-count=1", "-timeout", "15m"}
	if t.nightly && version == tree.Newest() {
		args = append(args, "-race")
	}
	run := func(more ...string) error {
		return t.gotest(ctx, r, forked, env, append(slices.Clone(args), more...)...)
	}
	if t.nightly {
		return run("./pkg/client", "./pkg/client/apiutil/...", "./pkg/cache/...", "./pkg/handler", "./pkg/internal/follow")
	}
	return errors.Join(
		run("./pkg/client", "./pkg/cache/internal", "./pkg/handler", "./pkg/internal/follow"),
		run("-skip", "^TestSource$", "./pkg/cache"),
		run("-run", "^("+strings.Join(upstreamTests, "|")+")$", "./pkg/client/apiutil"),
		r.ran(upstreamTests))
}

// ran checks that tests were run: go test passes if no test has the name.
func (r *row) ran(names []string) error {
	for _, name := range names {
		if !slices.ContainsFunc(r.report.Tests, func(test *gotest.Test) bool { return test.Name == name }) {
			return fmt.Errorf("there is no test %s any more", name)
		}
	}
	return nil
}
