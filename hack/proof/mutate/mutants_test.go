// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"
)

// mutated are the files in which changes are made.
var mutated = []string{
	"internal/snapshot/*.go", "internal/reload/*.go", "internal/refresh/*.go", "internal/share/*.go",
	"apiutil/confirm.go", "apiutil/lookup.go", "apiutil/served.go", "apiutil/waitforkinds.go",
}

var (
	places = flag.Int("n", 0, "how many changes to make")
	seed   = flag.Uint64("seed", 1, "another number chooses other changes")
	only   = flag.String("only", "", "make all changes whose text matches this regular expression, not -n, and write no page")
	out    = flag.String("o", "", "`folder`, seen from hack/proof, to write the page to; empty: none")
)

// The tests catch nearly every change that matters.
func TestMutants(t *testing.T) {
	if *places == 0 && *only == "" {
		t.Skip("-n says how many changes to make")
	}
	begin := time.Now()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	all := find(t, root, mutated...)
	equivalent, err := readEquivalents("equivalent.json", all)
	if err != nil {
		t.Fatal(err)
	}
	chosen := choose(all, *places, *seed)
	if *only != "" {
		like := regexp.MustCompile(*only)
		chosen = slices.DeleteFunc(slices.Clone(all), func(c *change) bool { return !like.MatchString(c.key()) })
	}
	if len(chosen) == 0 {
		t.Fatalf("no change is like %q", *only)
	}
	stages := prepare(t, root, chosen)
	found := make(results, len(chosen))
	t.Run("changes", func(t *testing.T) {
		for i, c := range chosen {
			t.Run(fmt.Sprintf("%d of %d", i+1, len(chosen)), func(t *testing.T) {
				t.Parallel()
				found[i] = try(t.Context(), stages, c, equivalent[c.key()])
				t.Logf("%s\n%s", c.key(), found[i].verdict())
			})
		}
	})
	if *out != "" && *only == "" {
		dir := *out
		if !filepath.IsAbs(dir) {
			dir = filepath.Join("..", dir)
		}
		page := found.page(fmt.Sprintf("go test ./mutate -v -timeout 0 -args -n %d -seed %d", *places, *seed), len(all), time.Since(begin))
		if err := page.Write(dir, "mutate.md"); err != nil {
			t.Fatal(err)
		}
	}
	if err := found.err(); err != nil {
		t.Error(err)
	}
}

// prepare builds the changes in, and makes sure that every stage which they need
// passes without them.
func prepare(t *testing.T, root string, chosen []*change) map[string]*stage {
	t.Helper()
	dir := t.TempDir()
	file := overlay(t, root, dir, chosen)
	stages := map[string]*stage{}
	for _, c := range chosen {
		for _, name := range stagesOf(c.file) {
			if stages[name] == nil {
				s := stageOf(name)
				stages[name] = s
				s.build(t, root, dir, file)
				s.try(t)
				t.Logf("%s passes without a change; its limit is %s", name, s.limit.Round(time.Second))
			}
		}
	}
	return stages
}

// try puts a change through its stages. A change that nothing can catch skips the
// last stage, which takes longest.
func try(ctx context.Context, stages map[string]*stage, c *change, why string) result {
	for _, name := range stagesOf(c.file) {
		if name == apiutil && why != "" {
			break
		}
		if by := stages[name].catches(ctx, c.id); by != "" {
			return result{c, why, name, by}
		}
	}
	return result{change: c, why: why}
}
