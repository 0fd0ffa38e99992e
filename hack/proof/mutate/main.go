// SPDX-License-Identifier: Apache-2.0

// Mutate changes the engine in many places, one at a time, and shows how many of the
// changes the tests catch.
//
//	go run ./mutate [-n 200] [-seed 1] [-only REGEXP] [-o results]
//
// All changes are built into one copy of the code (go test -overlay; the files stay as
// they are), each behind a condition that the environment variable MUTANT makes true.
// So a change costs no compiler, and the tests are the same with and without it.
//
// What no test can catch is listed in equivalent.json, with the reason.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"
)

// mutated are the files in which changes are made.
var mutated = []string{
	"internal/snapshot/*.go", "internal/reload/*.go", "internal/refresh/*.go", "internal/share/*.go",
	"apiutil/confirm.go", "apiutil/lookup.go", "apiutil/served.go", "apiutil/waitforkinds.go",
}

// jobs is how many changes are tried at a time.
const jobs = 2

func main() {
	places := flag.Int("n", 200, "how many changes to make")
	seed := flag.Uint64("seed", 1, "another number chooses other changes")
	only := flag.String("only", "", "make all changes whose text matches this regular expression, not -n; write no page")
	out := flag.String("o", "results", "folder to write the page to")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *places, *seed, *only, *out); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, places int, seed uint64, only, out string) error {
	begin := time.Now()
	root, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	all, err := find(root, mutated...)
	if err != nil {
		return err
	}
	equivalent, err := readEquivalents("mutate/equivalent.json", all)
	if err != nil {
		return err
	}
	chosen := choose(all, places, seed)
	if only != "" {
		like, err := regexp.Compile(only)
		if err != nil {
			return err
		}
		chosen = slices.DeleteFunc(slices.Clone(all), func(c *change) bool { return !like.MatchString(c.key()) })
	}
	fmt.Fprintf(os.Stderr, "%d of %d possible changes\n", len(chosen), len(all))
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is a temporary folder
	stages, err := prepare(ctx, root, dir, chosen)
	if err != nil {
		return err
	}
	found := tryAll(ctx, stages, chosen, equivalent)
	if err := ctx.Err(); err != nil {
		return err
	}
	if only == "" {
		page := found.page(fmt.Sprintf("go run ./mutate -n %d -seed %d", places, seed), len(all), time.Since(begin))
		if err := page.Write(out, "mutate.md"); err != nil {
			return err
		}
	}
	return found.err()
}

// prepare builds the changes in, and has every stage that they need pass without them.
func prepare(ctx context.Context, root, dir string, chosen []*change) (map[string]*stage, error) {
	file, err := overlay(root, dir, chosen)
	if err != nil {
		return nil, err
	}
	stages := map[string]*stage{}
	for _, c := range chosen {
		for _, name := range stagesOf(c.file) {
			if stages[name] != nil {
				continue
			}
			s := stageOf(name)
			stages[name] = s
			if err := s.build(ctx, root, dir, file); err != nil {
				return nil, err
			}
			if err := s.try(ctx); err != nil {
				return nil, err
			}
			fmt.Fprintf(os.Stderr, "%s passes without a change; its limit is %s\n", name, s.limit.Round(time.Second))
		}
	}
	return stages, nil
}

func tryAll(ctx context.Context, stages map[string]*stage, chosen []*change, equivalent map[string]string) results {
	found := make(results, len(chosen))
	slots := make(chan struct{}, jobs)
	var all sync.WaitGroup
	for i, c := range chosen {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			begin := time.Now()
			found[i] = try(ctx, stages, c, equivalent[c.key()])
			fmt.Fprintf(os.Stderr, "%d/%d %s\n\t%s, %s\n", i+1, len(chosen), c.key(), found[i].verdict(), time.Since(begin).Round(time.Second/10))
		})
	}
	all.Wait()
	return found
}

// try puts a change through its stages. One that nothing can catch is spared the last, which
// takes longest.
func try(ctx context.Context, stages map[string]*stage, c *change, why string) result {
	for _, name := range stagesOf(c.file) {
		if ctx.Err() != nil || name == apiutil && why != "" {
			break
		}
		if by := stages[name].catches(ctx, c.id); by != "" {
			return result{c, why, name, by}
		}
	}
	return result{change: c, why: why}
}
