// SPDX-License-Identifier: Apache-2.0

package lincheck

import (
	"flag"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"
)

var (
	histories = flag.Int("histories", 200, "random histories for each mode")
	firstSeed = flag.Uint64("seed", 1, "seed of the first history; 0: a random one, as each night")
	// More find more in a mapper whose steps race within one instant.
	processors = flag.Int("processors", 1, "processors to run on; with one a seed nearly always gives the same history")
)

// record makes one history in a bubble of its own.
func record(t *testing.T, seed uint64, legacy bool, newCaller func() caller) *History {
	t.Helper()
	var h *History
	synctest.Test(t, func(t *testing.T) {
		h = Run(t, seed, legacy, newCaller())
		time.Sleep(10 * time.Minute) // requests that nobody waits for end by their timeouts
	})
	return h
}

// TestMain has goroutines take turns, without which one seed in five gives another history when it is run again. It
// also silences client-go, which logs what the faults do to it.
func TestMain(m *testing.M) {
	flag.Parse()
	runtime.GOMAXPROCS(*processors)
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

func TestHistories(t *testing.T) {
	first := *firstSeed
	if first == 0 {
		first = uint64(rand.Uint32())
	}
	for _, legacy := range []bool{false, true} {
		t.Run((&History{Legacy: legacy}).mode(), func(t *testing.T) {
			t.Logf("seeds %d to %d", first, first+uint64(*histories)-1)
			rules, bad, faulty, requests, outcomes := map[Rule]int{}, 0, 0, 0, map[string]int{}
			for seed := first; seed < first+uint64(*histories); seed++ {
				h := record(t, seed, legacy, simply(perform))
				faulty += min(len(h.Faults), 1)
				requests += len(h.Requests)
				for _, o := range h.Ops {
					outcomes[o.outcome()]++
				}
				violations := Check(h)
				for _, v := range violations {
					rules[v.Rule]++
					t.Errorf("%s: %s", h, v)
				}
				bad += min(len(violations), 1)
				if len(violations) > 0 && bad <= 3 { // the others are often the same
					t.Logf("%s\n%s", h, strings.Join(h.timeline, "\n"))
					t.Logf("to see it again: cd hack/lincheck && go test -run TestHistories/%s . -seed %d -histories 1", h.mode(), seed)
				}
			}
			// hack/proof reads these two lines.
			t.Logf("%d histories, %d with faults: %d lookups found something, %d ended in NoMatch and %d in an error; %d resets, %d requests",
				*histories, faulty, outcomes["found"], outcomes["NoMatch"], outcomes["error"], outcomes["reset"], requests)
			if bad > 0 {
				t.Errorf("%d of %d histories break a rule: %v", bad, *histories, rules)
			}
		})
	}
}

// A mutant is the mapper, wrongly used, or with wrong answers. It makes a caller for each history, in its bubble.
type mutant struct {
	name  string
	rules []Rule // each has to be found broken
	make  func() caller
}

var mutants = []mutant{
	{"answers from 50 ms ago", []Rule{RuleVersion, RuleGroup}, func() caller {
		type answer struct {
			at time.Time
			Op
		}
		var answers sync.Map
		return func(r *run, o *Op) {
			last, _ := answers.Load(o.String())
			old, known := last.(answer)
			if !known || time.Since(old.at) > 50*time.Millisecond {
				perform(r, o)
				old = answer{time.Now(), *o}
				answers.Store(o.String(), old)
			}
			o.Found, o.NoMatch, o.Err = old.Found, old.NoMatch, old.Err
		}
	}},
	{"a reset does nothing", []Rule{RuleReset}, simply(func(r *run, o *Op) {
		if o.lookup() {
			perform(r, o)
		}
	})},
	{"an error is no match", []Rule{RuleVersion, RuleGroup}, simply(func(r *run, o *Op) {
		if perform(r, o); o.Err != nil {
			o.NoMatch, o.Err = true, nil
		}
	})},
	{"a failure brings back what was found before", []Rule{RuleOutdated}, func() caller {
		var found sync.Map
		return func(r *run, o *Op) {
			if perform(r, o); len(o.Found) > 0 {
				found.Store(o.String(), o.Found)
			} else if before, ok := found.Load(o.String()); ok && o.Err != nil {
				o.Found, o.Err = before.([]Found), nil
			}
		}
	}},
	{"an old document replaces what was read live", []Rule{RuleOutdated}, simply(func(r *run, o *Op) {
		if o.Kind == OpKindFor {
			r.mapper.Reset()
		}
		perform(r, o)
	})},
	{"the document alone says no match", []Rule{RuleGroup}, simply(func(r *run, o *Op) {
		o.ask(r.server.newMapper(r.t)) // as the first lookup of all
	})},
	{"what is known is read again", []Rule{RuleHit}, simply(func(r *run, o *Op) {
		if o.lookup() {
			r.mapper.Reset()
		}
		perform(r, o)
	})},
	{"the last version is taken for the first", []Rule{RuleOrder}, simply(func(r *run, o *Op) {
		kind := o.Kind
		if kind == OpMapping {
			o.Kind = OpMappings
		}
		if perform(r, o); kind == OpMapping && len(o.Found) > 0 {
			o.Found = o.Found[len(o.Found)-1:]
		}
		o.Kind = kind
	})},
	{"any group is taken for the first", []Rule{RuleOrder}, simply(func(r *run, o *Op) {
		group := o.Group
		for _, g := range rand.Perm(len(groupNames)) {
			if len(o.groups()) > 1 && slices.Contains(o.groups(), g) && o.Found == nil {
				o.Group = groupNames[g]
				perform(r, o)
				o.Group, o.Found = group, filter(o.Found, func(f Found) bool { return f.Group == g })
			}
		}
		if o.Found == nil {
			perform(r, o)
		}
		o.NoMatch, o.Err = o.NoMatch && o.Found == nil, nil
	})},
	{"one lookup at a time", []Rule{RuleWait}, func() caller {
		turn := make(chan struct{}, 1) // not a mutex, which would stop virtual time
		return func(r *run, o *Op) {
			turn <- struct{}{}
			defer func() { <-turn }()
			perform(r, o)
		}
	}},
}

func simply(c caller) func() caller { return func() caller { return c } }

// The checker has to catch the mutants, in a number of histories of both modes together.
func TestMutants(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			broken, missed := map[Rule]int{}, m.rules
			for seed := uint64(0); seed < 1200 && len(missed) > 0; seed++ {
				for _, v := range Check(record(t, seed, seed%2 == 0, m.make)) {
					broken[v.Rule]++
				}
				missed = filter(m.rules, func(rule Rule) bool { return broken[rule] == 0 })
			}
			if len(missed) > 0 {
				t.Errorf("not found broken in 1,200 histories: %q; found broken: %v", missed, broken)
			}
		})
	}
}

// The rules that no mutant breaks.
func TestOtherRules(t *testing.T) {
	o := &Op{Kind: OpMapping, Group: "apps", Versions: []string{"v1"}, Call: Stamp{2, 0}, Return: Stamp{9, 1}}
	h := &History{Ops: []*Op{o}}
	tests := map[Rule]func(){
		RuleNeverServed: func() { o.Found = []Found{{Group: 3}} },
		RuleWrong:       func() { o.Found = []Found{{Group: 0}} },
		RuleError:       func() { o.Err = io.EOF },
		RulePanic:       func() { o.Err, o.Panicked = io.EOF, true },
	}
	for rule, breakIt := range tests {
		o.Found, o.Err, o.Panicked = nil, nil, false
		breakIt()
		if !slices.ContainsFunc(Check(h), func(v Violation) bool { return v.Rule == rule }) {
			t.Errorf("not found broken: %s", rule)
		}
	}
}
