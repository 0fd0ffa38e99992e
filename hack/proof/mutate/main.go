// SPDX-License-Identifier: Apache-2.0

// Mutate changes the engine in many places, one at a time, and shows how many of the
// changes the tests catch.
//
//	go run ./mutate [-n 200] [-seed 1] [-only REGEXP] [-near] [-o results]
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

type options struct {
	places int
	seed   uint64
	only   string
	near   bool
	jobs   int
	out    string

	equivalent map[string]string // why a change can't be caught, by its key
}

func main() {
	var o options
	flag.IntVar(&o.places, "n", 200, "how many changes")
	flag.Uint64Var(&o.seed, "seed", 1, "of the choice of changes")
	flag.StringVar(&o.only, "only", "", "all changes whose key is like this regular expression, instead of -n; writes no page")
	flag.BoolVar(&o.near, "near", false, "neither changes apiutil nor runs its tests, which take longest; writes no page")
	flag.IntVar(&o.jobs, "j", 2, "how many are tried at a time")
	flag.StringVar(&o.out, "o", "results", "folder to write to")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	begin := time.Now()
	root, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	sources, err := find(root, mutated)
	if err != nil {
		return err
	}
	var all []*change
	for _, s := range sources {
		all = append(all, s.changes...)
	}
	if o.equivalent, err = readEquivalents("mutate/equivalent.json", all); err != nil {
		return err
	}
	chosen, err := o.choose(all)
	if err != nil {
		return err
	}
	if o.near {
		chosen = slices.DeleteFunc(chosen, func(c *change) bool { return filepath.Dir(c.file) == farthest })
	}
	fmt.Fprintf(os.Stderr, "%d of %d possible changes\n", len(chosen), len(all))
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	stages, err := o.prepare(ctx, root, dir, sources, chosen)
	if err != nil {
		return err
	}
	results := o.tryAll(ctx, stages, chosen)
	if err := ctx.Err(); err != nil {
		return err
	}
	r := newSummary(results, o.equivalent)
	if o.only != "" || o.near {
		return r.err()
	}
	return r.write(o, len(all), time.Since(begin))
}

func (o options) choose(all []*change) ([]*change, error) {
	if o.only == "" {
		return choose(all, o.places, o.seed), nil
	}
	like, err := regexp.Compile(o.only)
	if err != nil {
		return nil, err
	}
	var chosen []*change
	for _, c := range all {
		if like.MatchString(c.key()) {
			chosen = append(chosen, c)
		}
	}
	return chosen, nil
}

// prepare builds the changes in, and has every stage that they need pass without them.
func (o options) prepare(ctx context.Context, root, dir string, sources []*source, chosen []*change) (map[string]*stage, error) {
	file, err := overlay(root, dir, sources, chosen)
	if err != nil {
		return nil, err
	}
	stages := map[string]*stage{}
	for _, c := range chosen {
		for _, name := range o.stagesOf(c.file) {
			if stages[name] != nil {
				continue
			}
			s := newStage(name)
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

// result is what came of a change: the stage and the tests that have caught it, if any.
type result struct {
	*change
	stage, by string
}

func (o options) tryAll(ctx context.Context, stages map[string]*stage, chosen []*change) []result {
	results := make([]result, len(chosen))
	next := make(chan int)
	var all sync.WaitGroup
	for range o.jobs {
		all.Go(func() {
			for i := range next {
				begin := time.Now()
				results[i] = o.try(ctx, stages, chosen[i], i+1)
				fmt.Fprintf(os.Stderr, "%d/%d %s\n\t%s, %s\n", i+1, len(chosen), results[i].key(), results[i].verdict(), time.Since(begin).Round(time.Second/10))
			}
		})
	}
	for i := range chosen {
		if ctx.Err() == nil {
			next <- i
		}
	}
	close(next)
	all.Wait()
	return results
}

func (o options) try(ctx context.Context, stages map[string]*stage, c *change, id int) result {
	for _, name := range o.stagesOf(c.file) {
		if name == farthest && o.equivalent[c.key()] != "" {
			continue
		}
		if by := stages[name].catches(ctx, id); by != "" {
			return result{c, name, by}
		}
	}
	return result{change: c}
}

func (r result) verdict() string {
	if r.by == "" {
		return "SURVIVED at " + r.pos.String()
	}
	return "caught in " + r.stage + ": " + r.by
}
