// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/freshmapper/freshmapper/hack/control"
	"github.com/freshmapper/freshmapper/hack/e2e/internal/runner"
)

const root = "../.."

// environment is what the replays of one program share.
type environment struct {
	ctx      context.Context // ends when the test is interrupted, so that it still cleans up
	server   *runner.Server
	programs *runner.Programs
}

func newEnvironment(t *testing.T, consumer string) *environment {
	t.Helper()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	t.Cleanup(stop)
	signal.Ignore(syscall.SIGPIPE) // a reader of our output that is interrupted too must not end us half-way
	assets, err := control.Assets()
	if err != nil {
		t.Fatal(err)
	}
	log.SetLogger(logr.Discard()) // or controller-runtime complains on stderr that nobody did
	programs, err := runner.Build(ctx, root, t.TempDir(), consumer)
	if err != nil {
		t.Fatal(err)
	}
	server, err := runner.StartServer(ctx, assets, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return &environment{ctx: ctx, server: server, programs: programs}
}

// side is one of the two builds in a replay.
type side struct {
	binary  string
	result  *runner.Result
	process *runner.Process
}

// replay is one story, told to both builds at the same time.
type replay struct {
	*environment
	t     *testing.T
	begun time.Time
	sides [2]*side // stock, fork
}

func (e *environment) replay(t *testing.T, name, title string) *replay {
	stock := &side{binary: e.programs.Stock, result: &runner.Result{Build: "stock " + e.programs.Version}}
	fork := &side{binary: e.programs.Fork, result: &runner.Result{Build: "fork " + e.programs.Version, Fork: true}}
	r := &replay{environment: e, t: t, begun: time.Now(), sides: [2]*side{stock, fork}}
	for _, s := range r.sides {
		s.result.Program, s.result.Replay, s.result.Title = e.programs.Name, name, title
	}
	t.Cleanup(r.record)
	return r
}

func (r *replay) record() {
	for _, s := range r.sides {
		fmt.Fprintln(r.t.Output(), s.result)
	}
	if err := runner.Record(r.sides[0].result, r.sides[1].result); err != nil {
		r.t.Error(err)
	}
}

// start starts the program of each side. If the test fails, it shows what they
// wrote to stderr.
func (r *replay) start(args func(*side) []string) {
	r.t.Helper()
	for _, s := range r.sides {
		var err error
		if s.process, err = runner.Start(r.ctx, s.binary, r.server.Kubeconfig, args(s)...); err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(func() {
			stderr, err := s.process.Stop()
			if err != nil {
				r.t.Errorf("%s: %v", s.result.Build, err)
			}
			if r.t.Failed() && stderr != "" {
				r.t.Logf("%s wrote\n%s", s.result.Build, stderr)
			}
		})
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
	done := runner.Step{Seconds: start.Sub(r.begun).Seconds(), What: what, OK: true, Millis: millisSince(start)}
	for _, s := range r.sides {
		s.result.Steps = append(s.result.Steps, done)
	}
}

// both does something with each side at the same time, so that neither sees a
// server that is younger or older than the other's.
func (r *replay) both(what string, do func(*side) (runner.Step, error)) {
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
	if err := errors.Join(errs[:]...); err != nil {
		r.t.Fatal(err)
	}
}

// judge compares how both sides fared with what the replay is there to show.
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
func called(kind runner.Kind, plural string) runner.Kind {
	kind.Plural = plural
	return kind
}
