// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/freshmapper/freshmapper/hack/dev/gotest"
	"github.com/freshmapper/freshmapper/hack/dev/proc"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// leftOut is what a commit is not tested with. Each is long, and proves again,
// elsewhere or in more places, what a commit's tests prove once.
var leftOut = []struct{ flag, what string }{
	{"-nightly", "the race detector on the tools in hack, on the replays, on the forked tree and on the library's longest tests: the rest of the library has it here"},
	{"-nightly", "our own tests of the mapper in the forked tree, which have run in the root module; upstream's of the cache there"},
	{"-nightly", "upstream's tests in the fork of the oldest line: the newest has them here"},
	{"-nightly", "short runs of chaos, soak, hostile and the herd: what they are made of is tested here"},
	{"-nightly", "the replay of a CRD that becomes namespaced under an operator of two namespaces: here it becomes cluster-wide, and then namespaced again"},
	{"-nightly", "the fork as a way in with the lines between the oldest and the newest: the provider has them here"},
	{"-nightly", "each patch of the small series by itself, kubebuilder's make targets, the release as a consumer's module"},
	{"-series", "the full series for upstream, slice by slice"},
	{"-nightly", "the linter on nested modules"},
	{"-matrix", "all of upstream's tests on stock and fork of every line"},
	{"-compatibility", "the oldest Go"},
}

// nightTests are left to the night whole.
var nightTests = []string{"TestEachPatchPasses", "TestKubebuilderProject", "TestConsumed", "TestEachSlicePasses"}

// longTests are those of the root module that a commit is not tested with.
func longTests() string {
	long := []string{"^(" + strings.Join(nightTests, "|") + ")$"}
	for _, line := range tree.Lines[1 : len(tree.Lines)-1] {
		long = append(long, "^TestFork$/^"+strings.ReplaceAll(line.Newest, ".", `\.`)+"$")
	}
	return strings.Join(long, "|")
}

// sliceTest is what -series runs. Elsewhere it would only be a skip.
const sliceTest = "^TestEachSlicePasses$"

// all runs all parts. The replays wait most of the time, and are about how long
// something takes: what runs beside them needs the processor, has lower priority, and
// asks for no answer in time.
func (t *tester) all(ctx context.Context) {
	if !t.quick {
		t.part(ctx, "API servers", func(*row) error { return t.findServers(ctx) })
	}
	switch {
	case t.quick:
		t.untimed(ctx)
	case t.nightly:
		t.untimed(ctx)
		t.timed(ctx)
	default:
		wait := t.beside(ctx, (*tester).untimed)
		t.timed(ctx)
		wait()
	}
}

// beside runs parts at the same time as what comes before the call of wait, which
// also prints what they say.
func (t *tester) beside(ctx context.Context, parts func(*tester, context.Context)) (wait func()) {
	var said buffer
	other := &tester{checkout: &checkout{root: t.root, stdout: &said, stderr: &said}, plan: t.plan, work: t.work, found: t.found}
	done := make(chan struct{})
	go func() {
		defer close(done)
		parts(other, proc.Nice(ctx))
	}()
	t.say("beside the replays, and shown when they are done: the library, the tools, verify")
	return func() {
		<-done
		fmt.Fprint(t.stderr, said.String())
		t.rows = append(t.rows, other.rows...)
	}
}

// longest are the library's tests that the race detector makes longest, by minutes
// together. They run without it. Most are of one goroutine in virtual time.
const longest = "^(TestCapturedDocuments|TestServedThroughout|TestHealthAfterOneFailure|TestFailedVersionIsNeverNoMatch|" +
	"TestGroupThatTheDocumentBringsBack|TestResetsBesideOlderReads|TestHealthBesideOneDeadAPIService|TestSubscriberEndsWhereServerIs|" +
	"TestHerd|TestLookupsBesideOlderReads|TestNegativeTTLOfManyNames|TestFleetChurn|TestLogOfFailures|TestOracle|TestLargeServersAreRead)$"

// shortRun is the name of the tests in hack/proof that run a campaign, which is short
// unless flags make it longer.
const shortRun = "^TestCampaign$"

// untimed are parts that may take as long as they do.
func (t *tester) untimed(ctx context.Context) {
	library := func(args ...string) func(*row) error {
		return func(r *row) error {
			return t.gotest(ctx, r, t.root, t.found.store, append(args, "-timeout", "60m", ".", "./apiutil/...", "./internal/...")...)
		}
	}
	if t.nightly {
		t.part(ctx, "library, -race", library("-race"))
	} else {
		t.part(ctx, "library, -race", library("-race", "-skip", longest))
		t.part(ctx, "library, its longest tests", library("-run", longest))
	}
	t.part(ctx, "random histories", func(r *row) error {
		return t.gotest(ctx, r, t.path("hack/lincheck"), nil, "-count=1", ".", "-seed", "1")
	})
	t.part(ctx, "tools in hack"+t.raced(), func(r *row) error {
		return t.gotest(ctx, r, t.root, t.found.store, t.race("-timeout", "60m", "-skip", t.skipped(), "./hack/...")...)
	})
	t.part(ctx, "proofs", func(r *row) error {
		args := []string{"-count=1", "./..."}
		if !t.nightly {
			args = append(args, "-skip", shortRun)
		}
		return t.gotest(ctx, r, t.path("hack/proof"), nil, args...)
	})
	t.part(ctx, "the examples' own tests", func(r *row) error { return t.examples(ctx, r) })
	if t.nightly {
		t.part(ctx, "verify", func(*row) error { return verify(ctx, t.checkout, nil) })
		t.part(ctx, "vet with the oldest Go", func(*row) error { return t.vetOldest(ctx) })
	} else {
		t.part(ctx, "verify", func(*row) error { return verify(ctx, t.checkout, []string{"-root"}) })
	}
}

// vetOldest vets the root module, tests included, with the Go that its go.mod asks
// for.
func (t *tester) vetOldest(ctx context.Context) error {
	asked, err := proc.Output(ctx, t.root, nil, "go", "list", "-m", "-f", "{{.GoVersion}}")
	if err != nil {
		return err
	}
	oldest, err := t.newestGo(ctx, minor(asked))
	if err != nil {
		return err
	}
	_, err = proc.Command{Dir: t.root, Env: []string{"GOTOOLCHAIN=go" + oldest}, Args: []string{"go", "vet", "./..."}, Stdout: t.stderr, Stderr: t.stderr}.Run(ctx)
	return err
}

// versions are those of which there is a forked tree to test: by night also the oldest.
func (t *tester) versions() []string {
	if t.nightly {
		return []string{tree.Newest(), tree.Lines[0].Newest}
	}
	return []string{tree.Newest()}
}

// timed are parts that expect answers in time.
func (t *tester) timed(ctx context.Context) {
	for _, version := range t.versions() {
		t.part(ctx, "the forked "+version+", built", func(r *row) error { return t.build(ctx, r, version) })
	}
	t.part(ctx, "replays on an API server"+t.raced(), func(r *row) error { return t.replays(ctx, r) })
	for _, version := range t.versions() {
		t.part(ctx, "upstream's tests in the forked "+version, func(r *row) error { return t.forked(ctx, r, version) })
	}
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

func (t *tester) skipped() string {
	if t.nightly {
		return sliceTest
	}
	return longTests()
}

// examples runs the examples' own unit tests. Unforked, they take the way for stock.
func (t *tester) examples(ctx context.Context, r *row) error {
	folders, err := filepath.Glob(t.path("testdata/consumers/*"))
	for _, folder := range folders {
		err = errors.Join(err, t.gotest(ctx, r, folder, nil, "-tags", "stock", "./..."))
	}
	return failed(err)
}

// build writes the forked tree of a release, and compiles it.
func (t *tester) build(ctx context.Context, r *row, version string) error {
	forked := filepath.Join(t.work, version)
	if err := fork(ctx, forked, version, t.checkout); err != nil {
		return err
	}
	stock, err := tree.Folder(ctx, version, nil)
	if err != nil {
		return err
	}
	if err := sameFile(stock, forked, mapperTest); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"go", "build", "./..."},
		{"go", "vet", "./pkg/client/...", "./pkg/cache/...", "./pkg/handler", "./pkg/internal/follow", "./pkg/metrics/..."},
	} {
		took, err := proc.Command{Dir: forked, Args: args, Stdout: t.stderr, Stderr: t.stderr}.Run(ctx)
		r.report.CPU += took
		if err != nil {
			return err
		}
	}
	return nil
}

// forked runs upstream's own tests of the mapper and the client, unmodified, in a
// forked tree, by night with ours beside them.
func (t *tester) forked(ctx context.Context, r *row, version string) error {
	forked := filepath.Join(t.work, version)
	// Where both parts of the mapper's test take the same server it has to be the
	// old one, as it has to for a test of the client that a new server fails.
	env := t.found.env(!ownServer(forked))
	args := []string{"-count=1", "-timeout", "15m"}
	if t.nightly && version == tree.Newest() {
		args = append(args, "-race")
	}
	if t.nightly {
		return t.gotest(ctx, r, forked, env, append(args, "./pkg/client", "./pkg/client/apiutil/...", "./pkg/cache/...", "./pkg/handler", "./pkg/internal/follow")...)
	}
	return errors.Join(
		t.gotest(ctx, r, forked, env, append(args, "./pkg/client", "./pkg/cache/internal", "./pkg/handler", "./pkg/internal/follow")...),
		t.gotest(ctx, r, forked, env, append(args, "-skip", "^"+cacheSuite+"$", "./pkg/cache")...),
		t.gotest(ctx, r, forked, env, append(args, "-run", "^("+strings.Join(upstreamTests, "|")+")$", "./pkg/client/apiutil")...),
		r.ran(upstreamTests))
}

// ran checks that tests were run: go test is content if there are none of a name.
func (r *row) ran(names []string) error {
	for _, name := range names {
		if !slices.ContainsFunc(r.report.Tests, func(t *gotest.Test) bool { return t.Name == name }) {
			return fmt.Errorf("there is no test %s any more", name)
		}
	}
	return nil
}

// cacheSuite is upstream's test of the cache, which takes minutes: the night and the
// matrix have it.
const cacheSuite = "TestSource"

// upstreamTests are upstream's in the mapper's package.
var upstreamTests = []string{"TestApiMachinery", "TestSource", "TestLazyRestMapperProvider"}

// nightReplays is S2-namespaces the other way round.
const nightReplays = "^TestPlain$/^S2-cluster-namespaces$"

// replays shows after the tests how stock and fork fared, side by side.
func (t *tester) replays(ctx context.Context, r *row) error {
	results := filepath.Join(t.work, "results")
	env := []string{"FRESHMAPPER_E2E_RESULTS=" + results}
	args := t.race("-count=1", "-timeout", "30m", "-parallel", "4")
	if !t.nightly {
		args = append(args, "-skip", nightReplays)
	}
	err := t.gotest(ctx, r, t.path("hack/e2e"), env, append(args, "./...")...)
	if _, none := os.Stat(results); none == nil {
		_, shown := proc.Command{Dir: t.path("hack/e2e"), Args: []string{"go", "run", "./table", results}, Stdout: t.stdout, Stderr: t.stderr}.Run(ctx)
		err = errors.Join(err, shown)
	}
	return err
}

// series builds and tests the full series for upstream.
func series(ctx context.Context, c *checkout) error {
	_, err := proc.Command{
		Dir: c.root, Env: []string{"FRESHMAPPER_SLICES=1"}, Stdout: c.stdout, Stderr: c.stderr,
		Args: []string{"go", "test", "-count=1", "-timeout", "120m", "-v", "-run", sliceTest, "./hack/stage"},
	}.Run(ctx)
	return failed(err)
}
