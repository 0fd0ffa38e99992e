// SPDX-License-Identifier: Apache-2.0

// Package e2e replays, on a real API server, the failures that controllers on
// stock controller-runtime have, and shows the same programs healed on the fork.
//
// It reads files of other modules, which the go command's test cache does not
// know of: run it with -count=1.
package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// environment is what the replays of one program share.
type environment struct {
	ctx     context.Context // ends when the test is interrupted, so that it still cleans up
	program string          // its name
	builds  []build         // stock first, the fork last
	server  *Server
	config  *rest.Config // of the server
}

// build is a way to build a program.
type build struct {
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
	stock, fork := buildBoth(ctx, t, consumer)
	e.builds = []build{{"stock", "stock " + tree.Newest(), stock}, {"fork", "fork " + tree.Newest(), fork}}
	e.server, e.config = startServer(ctx, t)
	return e
}

// side is one of the builds in a replay.
type side struct {
	*environment
	build
	result  *Result
	process *Process

	gateway *Gateway // to the server
	address string   // free for the program's own HTTP server
	status  string   // a file for the program's status
}

// replay is one story, told to all builds at the same time.
type replay struct {
	*environment
	t     *testing.T
	group string // for the kinds of this replay
	begun time.Time
	sides []*side // stock, and ours, which have to heal
}

// story is what a replay plays.
type story struct {
	name, title string
	stockHeals  bool
	play        func(*replay)
}

// tell plays stories, each as a test of its name.
func (e *environment) tell(t *testing.T, stories ...story) {
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			r := e.replay(t, s.name, s.title)
			s.play(r)
			r.judge(s.stockHeals)
		})
	}
}

// replay begins a replay. Its group is named after it, and so is a namespace of each side.
func (e *environment) replay(t *testing.T, name, title string) *replay {
	t.Helper()
	r := &replay{environment: e, t: t, begun: time.Now(), group: strings.ToLower(name) + ".example.com"}
	for _, build := range e.builds {
		r.sides = append(r.sides, &side{
			environment: e, build: build,
			result:  &Result{Program: e.program, Replay: name, Title: title, Ours: build.name != "stock", Build: build.called},
			gateway: newGateway(t, e.server), address: freeAddress(e.ctx, t), status: filepath.Join(t.TempDir(), "status.json"),
		})
	}
	must(t, r.makeNamespaces(e.server))
	t.Cleanup(r.record)
	return r
}

func (s *side) namespace() string { return strings.ToLower(s.result.Replay) + "-" + s.name }

func (r *replay) makeNamespaces(servers ...*Server) error {
	for _, server := range servers {
		for _, s := range r.sides {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace()}}
			if err := server.Client.Create(r.ctx, ns); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *replay) kind(kind string, versions ...string) Kind {
	return Kind{Group: r.group, Kind: kind, Versions: versions}
}

// record prints the results of a replay, and keeps them for the table.
func (r *replay) record() {
	var all Row
	for _, s := range r.sides {
		fmt.Fprintf(r.t.Output(), "%-12s %-16s %s\n", s.result.Replay, s.result.Build, s.result.Verdict())
		all = append(all, *s.result)
	}
	rows.Lock()
	defer rows.Unlock()
	rows.all = append(rows.all, all)
}

// start starts the program of each side on the server itself.
func (r *replay) start(args func(*side) []string) {
	r.t.Helper()
	for _, s := range r.sides {
		s.process = start(r.ctx, r.t, s.binary, r.server.Kubeconfig, args(s)...)
	}
}

// startOnGateways starts the program of each side on a gateway of its own, which counts
// its requests.
func (r *replay) startOnGateways(args func(*side) []string) {
	r.t.Helper()
	for _, s := range r.sides {
		file := filepath.Join(r.t.TempDir(), "kubeconfig")
		must(r.t, os.WriteFile(file, s.gateway.kubeconfig(), 0o600))
		s.process = start(r.ctx, r.t, s.binary, file, args(s)...)
	}
}

// get asks the program's own HTTP server, and decodes the answer if into is not nil.
func (s *side) get(path string, into any) error {
	code, body, err := httpDo(s.ctx, http.MethodGet, s.address, path)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("%s: status %d: %s", path, code, body)
	}
	if err == nil && into != nil {
		err = json.Unmarshal([]byte(body), into)
	}
	return err
}

// await waits for what the side's program is to do.
func (s *side) await(what string, yes func() (bool, error)) error {
	return await(s.ctx, pollFor, s.result.Build+": "+what, yes)
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
	for _, s := range r.sides {
		s.result.Steps = append(s.result.Steps, Step{Seconds: start.Sub(r.begun).Seconds(), What: what, OK: true})
	}
}

// install brings a kind, or changes its versions, and waits until its own path shows it.
func (r *replay) install(kind Kind) {
	r.t.Helper()
	r.brings(kind, r.server.Install)
}

// settle waits until all documents show it, too.
func (r *replay) settle(kind Kind) {
	r.t.Helper()
	r.brings(kind, r.server.Settle)
}

func (r *replay) brings(kind Kind, bring func(context.Context, Kind) error) {
	r.t.Helper()
	what := fmt.Sprintf("CRD %s: %s, %s", kind.resource(), strings.Join(kind.Versions, " and "), kind.scope())
	r.change(what, func() error { return bring(r.ctx, kind) })
}

func (r *replay) uninstall(kind Kind) {
	r.t.Helper()
	r.change("CRD "+kind.resource()+" is deleted", func() error { return r.server.Uninstall(r.ctx, kind) })
}

// outage kills the API server, and returns the function that starts it again. If
// the replay ends before that, the server is started for the next replay.
func (r *replay) outage() (revive func()) {
	r.t.Helper()
	var start func(context.Context) error
	r.change("API server is killed", func() error {
		start = r.server.Kill()
		return nil
	})
	once := sync.OnceValue(func() error { return start(r.ctx) })
	r.t.Cleanup(func() { must(r.t, once()) })
	return func() { r.change("API server is back", once) }
}

// both does something with each side at the same time, so that neither sees a
// server that is younger or older than the other's.
func (r *replay) both(what string, do func(*side) (Step, error)) {
	r.t.Helper()
	var group sync.WaitGroup
	errs := make([]error, len(r.sides))
	for i, s := range r.sides {
		group.Go(func() {
			start := time.Now()
			step, err := do(s)
			step.What, step.Seconds = what, start.Sub(r.begun).Seconds()
			s.result.Steps = append(s.result.Steps, step)
			if err != nil {
				errs[i] = fmt.Errorf("%s, %s: %w", s.result.Build, what, err)
			}
		})
	}
	group.Wait()
	must(r.t, errs...)
}

// holds waits until yes holds on both sides, and shows outcome.
func (r *replay) holds(what, outcome string, yes func(*side) (bool, error)) {
	r.t.Helper()
	r.both(what, func(s *side) (Step, error) {
		err := s.await(what, func() (bool, error) { return yes(s) })
		return Step{Outcome: outcome, OK: err == nil}, err
	})
}

// A replay gives a lookup up if it is still wrong after this many tries, this far
// apart. Ours get one try.
const (
	giveUpAfter = 5
	tryEvery    = 250 * time.Millisecond
)

func (s *side) tries() int {
	if s.result.Ours {
		return 1
	}
	return giveUpAfter
}

// try asks until the answer is right, most times at most, and makes that the result.
func (s *side) try(most int, ask func() (outcome string, right bool, requests int, err error)) (Step, error) {
	start := time.Now()
	s.result.Healed, s.result.Tries, s.result.Requests = false, 0, 0
	outcome, err := "", error(nil)
	for s.result.Tries < most && !s.result.Healed && err == nil {
		if s.result.Tries > 0 {
			time.Sleep(tryEvery)
		}
		var requests int
		outcome, s.result.Healed, requests, err = ask()
		s.result.Tries++
		s.result.Requests += requests
	}
	s.result.Millis = millisSince(start)
	return Step{Outcome: times(outcome, s.result.Tries), OK: s.result.Healed, Requests: s.result.Requests}, err
}

// times returns the text of an outcome that came n times.
func times(outcome string, n int) string {
	if n == 1 {
		return outcome
	}
	return fmt.Sprintf("%s, %d×", outcome, n)
}

// judge compares the results of all sides with what the replay has to show.
func (r *replay) judge(stockHeals bool) {
	r.t.Helper()
	for _, s := range r.sides {
		result := s.result
		result.Expected = result.Healed == (result.Ours || stockHeals)
		switch {
		case result.Expected:
		case result.Ours:
			r.t.Errorf("%s does not heal %s (%s): %s", result.Build, result.Replay, result.Title, result.Verdict())
		case stockHeals:
			r.t.Errorf("%s should come right by itself in %s (%s), but did not: %s", result.Build, result.Replay, result.Title, result.Verdict())
		default:
			r.t.Errorf("%s no longer fails %s (%s): it came right in %s. If this is a newer release, say so in the documentation and change what is expected here",
				result.Build, result.Replay, result.Title, result.Verdict())
		}
	}
}

// within fails the replay if ours have not healed so soon. It comes before judge.
func (r *replay) within(most time.Duration) {
	r.t.Helper()
	for _, s := range r.sides {
		if result := s.result; result.Ours && result.Healed && result.Millis > float64(most.Milliseconds()) {
			r.t.Errorf("%s: %s, want %s at most", result.Build, result.Verdict(), most)
			result.Healed = false
		}
	}
}

func millisSince(start time.Time) float64 {
	return float64(time.Since(start).Microseconds()) / 1000
}
