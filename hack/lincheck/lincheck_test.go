// SPDX-License-Identifier: Apache-2.0

package lincheck

import (
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"
)

var (
	histories = flag.Int("histories", 200, "random histories for each mode")
	firstSeed = flag.Uint64("seed", 1, "seed of the first history; 0: a random one, as each night")
	onlyRule  = flag.String("rule", "", "look for violations of this rule alone, by the beginning of its name in a report")
	// More find more in a mapper whose steps race within one instant.
	processors = flag.Int("processors", 1, "processors to run on; with one a seed nearly always gives the same history")
	most       = flag.Int("most", 3, "violations that are shown with their timeline, for each mode")
)

// record makes one history in a bubble of its own.
func record(t *testing.T, seed uint64, legacy bool, newCaller func() caller) *History {
	t.Helper()
	var h *History
	synctest.Test(t, func(t *testing.T) {
		var err error
		if h, err = Run(seed, legacy, newCaller()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute) // requests that nobody waits for end by their timeouts
	})
	return h
}

// TestMain has goroutines take turns, without which one seed in five gives another
// history when it is run again. It also silences client-go, which logs what the
// faults do to it.
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
			checkMany(t, first, legacy)
		})
	}
}

func checkMany(t *testing.T, first uint64, legacy bool) {
	rules, bad, sum := map[Rule]int{}, 0, tally{}
	for n := range *histories {
		h := record(t, first+uint64(n), legacy, simply(perform))
		sum.add(h)
		violations := filter(Check(h), func(v Violation) bool { return strings.HasPrefix(string(v.Rule), *onlyRule) })
		if len(violations) == 0 {
			continue
		}
		bad++
		for _, v := range violations {
			rules[v.Rule]++
			t.Errorf("%s: %s", h, v)
		}
		if bad <= *most {
			t.Logf("%s\n%s", h, h.Timeline(violations[0].Op))
			t.Logf("to see it again: cd hack/lincheck && go test -run TestHistories/%s . -seed %d -histories 1", h.mode(), h.Seed)
		}
	}
	t.Log(sum)
	if bad > 0 {
		t.Errorf("%d of %d histories break a rule: %v", bad, *histories, rules)
	}
}

// tally counts what histories are made of.
type tally struct{ histories, faulty, found, absent, failed, resets, requests int }

func (s *tally) add(h *History) {
	s.histories++
	s.requests += len(h.Requests)
	if len(h.Faults) > 0 {
		s.faulty++
	}
	for _, o := range h.Ops {
		switch {
		case !o.lookup():
			s.resets++
		case o.NoMatch:
			s.absent++
		case o.Err != nil:
			s.failed++
		default:
			s.found++
		}
	}
}

// String is what hack/proof reads.
func (s tally) String() string {
	return fmt.Sprintf("%d histories, %d with faults: %d lookups found something, %d ended in NoMatch and %d in an error; %d resets, %d requests",
		s.histories, s.faulty, s.found, s.absent, s.failed, s.resets, s.requests)
}
