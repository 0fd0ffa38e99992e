// SPDX-License-Identifier: Apache-2.0

// Package e2e replays, on a real API server, the failures that controllers on
// stock controller-runtime have, and shows the same programs healed on the fork.
//
// It reads files of other modules, which the go command's test cache does not
// know of: run it with -count=1.
package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// color is what hack/demo.sh passes on if it writes to a terminal.
var color = flag.Bool("color", false, "use the terminal's colours in the table of the replays")

// results are those of the replays that have ended, of all sides each. Some run at the same time.
var results struct {
	sync.Mutex
	all [][]*side
}

// TestMain writes the table of the replays to FILE.table, if FRESHMAPPER_E2E_RESULTS
// names FILE.
func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // or controller-runtime complains on stderr that nobody did
	code := m.Run()
	if file := os.Getenv("FRESHMAPPER_E2E_RESULTS"); file != "" && len(results.all) > 0 {
		if err := os.WriteFile(file+".table", []byte(table(results.all)), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "the replays' results:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// table has a line for each replay. Replays of several programs may have run at the same time:
// those of one program are together again.
func table(replays [][]*side) string {
	slices.SortStableFunc(replays, func(a, b []*side) int { return strings.Compare(a[0].program, b[0].program) })
	var text strings.Builder
	program := ""
	for _, sides := range replays {
		line, head, expected := "", "", true
		for _, s := range sides {
			head += fmt.Sprintf("%-38s ", s.called)
			line += colored(s.healed, fmt.Sprintf("%-38s", s.verdict())) + " "
			expected = expected && s.healed == s.heals
		}
		if sides[0].program != program {
			program = sides[0].program
			fmt.Fprintf(&text, "\n%-21s %sas expected\n", "time to heal", head)
		}
		fmt.Fprintf(&text, "%-21s %s%s   %s\n", sides[0].story.name, line,
			colored(expected, map[bool]string{true: "yes", false: "NO "}[expected]), sides[0].story.title)
	}
	return text.String()
}

// colored is text in green or red.
func colored(good bool, text string) string {
	if !*color {
		return text
	}
	return map[bool]string{true: "\x1b[32m", false: "\x1b[31m"}[good] + text + "\x1b[0m"
}

// environment is what the replays of one program share.
type environment struct {
	ctx     context.Context // ends when the test is interrupted, so that it still cleans up
	program string          // its name
	builds  []built         // stock first, the fork last
	server  *Server
}

// built is a program that was built in one way.
type built struct {
	name   string // stock, fresh or fork; what is for one side alone has it in its name
	called string // in the table
	binary string
}

func newEnvironment(t *testing.T, consumer string) *environment {
	t.Helper()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	t.Cleanup(stop)
	signal.Ignore(syscall.SIGPIPE) // a reader of our output that is interrupted too must not end us half-way
	e := &environment{ctx: ctx, program: consumer}
	for _, way := range []string{"stock", "fork"} {
		e.builds = append(e.builds, built{way, way + " " + tree.Newest(), build(ctx, t, consumer, way, nil)})
	}
	e.server, _ = startServer(ctx, t)
	return e
}

// story is what a replay plays.
type story struct {
	name, title string
	stockHeals  bool
	play        func(*replay)
}

// side is one of the builds in a replay, and how it fared.
type side struct {
	*environment
	built
	story   story
	ours    bool
	heals   bool // it has to; stock may not
	process *Process
	gateway *Gateway // to the server

	healed   bool
	counted  bool          // there was a step that counts
	requests int           // discovery requests meanwhile
	took     time.Duration // from the change to the right answer, or until given up
}

// discoveries counts what was asked of the server since then about what it serves.
func (s *side) discoveries(since time.Time) int { return len(s.gateway.Calls(since, Call.isDiscovery)) }

// verdict is "never", or when the side healed, and at what price.
func (s *side) verdict() string {
	price := fmt.Sprintf("%.1f s, %d requests", s.took.Seconds(), s.requests)
	if !s.healed {
		return "never: " + price
	}
	return price
}

// replay is one story, told to all builds at the same time.
type replay struct {
	*environment
	t     *testing.T
	begun time.Time
	sides []*side // stock, and ours, which have to heal
}

// tell plays stories, each as a test of its name.
func (e *environment) tell(t *testing.T, stories ...story) {
	for _, story := range stories {
		t.Run(story.name, func(t *testing.T) {
			r := &replay{environment: e, t: t, begun: time.Now()}
			for _, b := range e.builds {
				ours := b.name != "stock"
				r.sides = append(r.sides, &side{environment: e, built: b, story: story, ours: ours, heals: ours || story.stockHeals, gateway: newGateway(t, e.server)})
			}
			t.Cleanup(func() {
				results.Lock()
				defer results.Unlock()
				results.all = append(results.all, r.sides)
			})
			story.play(r)
			r.judge()
		})
	}
}

// judge compares what all sides did with what the replay has to show.
func (r *replay) judge() {
	r.t.Helper()
	for _, s := range r.sides {
		r.t.Logf("%-12s %-16s %s", s.story.name, s.called, s.verdict())
		switch {
		case s.healed == s.heals:
		case s.ours:
			r.t.Errorf("%s does not heal %s (%s): %s", s.called, s.story.name, s.story.title, s.verdict())
		case s.heals:
			r.t.Errorf("%s should come right by itself in %s (%s), but did not: %s", s.called, s.story.name, s.story.title, s.verdict())
		default:
			r.t.Errorf("%s no longer fails %s (%s): it came right in %s. If this is a newer release, say so in the documentation and change what is expected here",
				s.called, s.story.name, s.story.title, s.verdict())
		}
	}
}

// start starts the program of each side on a gateway of its own, which counts its requests.
func (r *replay) start(args func(*side) []string) {
	r.t.Helper()
	for _, s := range r.sides {
		file := filepath.Join(r.t.TempDir(), "kubeconfig")
		must(r.t, os.WriteFile(file, s.gateway.kubeconfig(), 0o600))
		s.process = start(r.ctx, r.t, s.binary, file, args(s)...)
	}
}

const giveUpAfter = 15 * time.Second // a side that need not heal

// await waits for what the side's program is to do.
func (s *side) await(what string, yes func() (bool, error)) error {
	return await(s.ctx, s.called+": "+what, yes)
}

// awaitHeal waits until yes holds: as long as it takes if it has to, and else until it is plain that it does not. It
// returns how long that took.
func (s *side) awaitHeal(must bool, what string, yes func() (bool, error)) (healed bool, took time.Duration, err error) {
	begun := time.Now()
	err = s.await(what, func() (bool, error) {
		var err error
		healed, err = yes()
		return healed || !must && time.Since(begun) > giveUpAfter, err
	})
	return healed, time.Since(begun), err
}

// install brings a kind, or changes its versions, and waits until its own path shows it.
func (r *replay) install(kind Kind) {
	r.t.Helper()
	must(r.t, r.server.Install(r.ctx, kind))
}

func (r *replay) uninstall(kind Kind) {
	r.t.Helper()
	must(r.t, r.server.Uninstall(r.ctx, kind))
}

// both does something with each side at the same time, so that none sees a
// server that is younger or older than the other's.
func (r *replay) both(what string, do func(*side) error) {
	r.t.Helper()
	var group sync.WaitGroup
	errs := make([]error, len(r.sides))
	for i, s := range r.sides {
		group.Go(func() {
			if err := do(s); err != nil {
				errs[i] = fmt.Errorf("%s, %s: %w", s.called, what, err)
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		r.t.Fatalf("%s (%s): %v", r.sides[0].story.name, r.sides[0].story.title, err)
	}
}
