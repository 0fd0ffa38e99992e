// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

const root = "../.."

// environment is what the replays of one program share.
type environment struct {
	ctx         context.Context // ends when the test is interrupted, so that it still cleans up
	program     string          // its name
	stock, fork string          // its paths
	server      *Server
	config      *rest.Config // of the server
}

func newEnvironment(t *testing.T, consumer string) *environment {
	t.Helper()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	t.Cleanup(stop)
	signal.Ignore(syscall.SIGPIPE) // a reader of our output that is interrupted too must not end us half-way
	log.SetLogger(logr.Discard())  // or controller-runtime complains on stderr that nobody did
	e := &environment{ctx: ctx, program: consumer}
	e.stock, e.fork = buildBoth(ctx, t, consumer)
	e.server, e.config = startServer(ctx, t)
	return e
}

// side is one of the two builds in a replay.
type side struct {
	binary  string
	result  *Result
	process *Process
}

// replay is one story, told to both builds at the same time.
type replay struct {
	*environment
	t     *testing.T
	begun time.Time
	sides [2]*side // stock, fork
}

func (e *environment) replay(t *testing.T, name, title string) *replay {
	stock := &side{binary: e.stock, result: &Result{Build: "stock " + tree.Newest()}}
	fork := &side{binary: e.fork, result: &Result{Build: "fork " + tree.Newest(), Fork: true}}
	r := &replay{environment: e, t: t, begun: time.Now(), sides: [2]*side{stock, fork}}
	for _, s := range r.sides {
		s.result.Program, s.result.Replay, s.result.Title = e.program, name, title
	}
	t.Cleanup(func() { record(t, stock.result, fork.result) })
	return r
}

// record prints the results of a replay, and appends them to the file that
// FRESHMAPPER_E2E_RESULTS names, if it names one. Tests that run at the same time
// may do so.
func record(t *testing.T, stock, fork *Result) {
	fmt.Fprintf(t.Output(), "%s\n%s\n", stock, fork)
	name := os.Getenv("FRESHMAPPER_E2E_RESULTS")
	if name == "" {
		return
	}
	line, err := json.Marshal(Pair{*stock, *fork})
	must(t, err)
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	must(t, err)
	_, err = file.Write(append(line, '\n'))
	must(t, err, file.Close())
}

// start starts the program of each side.
func (r *replay) start(args func(*side) []string) {
	r.t.Helper()
	for _, s := range r.sides {
		s.process = start(r.ctx, r.t, s.binary, r.server.Kubeconfig, args(s)...)
	}
}

// refuses makes sure that arguments, or a line of input, end both programs with an
// error status and a clear message.
func (e *environment) refuses(t *testing.T, args []string, input, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(e.ctx, 20*time.Second)
	defer cancel()
	for _, binary := range []string{e.stock, e.fork} {
		p := start(ctx, t, binary, e.server.Kubeconfig, args...)
		_, _ = fmt.Fprintln(p.stdin, input) // it may have ended already
		if err := p.wait(); err == nil || !strings.Contains(p.wrote(), want) {
			t.Errorf("%q, %q: ended with %v and wrote %q, want an error status and %q", args, input, err, p.wrote(), want)
		}
	}
}

// change changes the server and waits until the change is there to be seen.
func (r *replay) change(what string, steps ...func() error) {
	r.t.Helper()
	start := time.Now()
	for _, step := range steps {
		if err := step(); err != nil {
			r.t.Fatalf("%s: %v", what, err)
		}
	}
	done := Step{Seconds: start.Sub(r.begun).Seconds(), What: what, OK: true, Millis: millisSince(start)}
	for _, s := range r.sides {
		s.result.Steps = append(s.result.Steps, done)
	}
}

// both does something with each side at the same time, so that neither sees a
// server that is younger or older than the other's.
func (r *replay) both(what string, do func(*side) (Step, error)) {
	r.t.Helper()
	var group sync.WaitGroup
	var errs [len(r.sides)]error
	for i, s := range r.sides {
		group.Go(func() {
			start := time.Now()
			step, err := do(s)
			step.What, step.Seconds, step.Millis = what, start.Sub(r.begun).Seconds(), millisSince(start)
			s.result.Steps = append(s.result.Steps, step)
			if err != nil {
				errs[i] = fmt.Errorf("%s: %w", s.result.Build, err)
			}
		})
	}
	group.Wait()
	must(r.t, errs[:]...)
}

// judge compares the results of both sides with what the replay has to show.
func (r *replay) judge(stockHeals bool) {
	r.t.Helper()
	stock, fork := r.sides[0].result, r.sides[1].result
	stock.Expected = stock.Healed == stockHeals
	fork.Expected = fork.Healed
	switch {
	case stock.Healed && !stockHeals:
		r.t.Errorf("%s no longer fails %s (%s): it came right in %s. If this is a newer release, say so in the documentation and change what is expected here",
			stock.Build, stock.Replay, stock.Title, stock.Verdict())
	case !stock.Healed && stockHeals:
		r.t.Errorf("%s should come right by itself in %s (%s), but did not: %s", stock.Build, stock.Replay, stock.Title, stock.Verdict())
	}
	if !fork.Healed {
		r.t.Errorf("%s does not heal %s (%s): %s", fork.Build, fork.Replay, fork.Title, fork.Verdict())
	}
}

func millisSince(start time.Time) float64 {
	return float64(time.Since(start).Microseconds()) / 1000
}

// called is a kind with another plural.
func called(kind Kind, plural string) Kind {
	kind.Plural = plural
	return kind
}
