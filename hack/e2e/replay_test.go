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
	e := &environment{ctx: ctx, program: consumer}
	e.stock, e.fork = buildBoth(ctx, t, consumer)
	e.server, e.config = startServer(ctx, t)
	return e
}

// side is one of the two builds in a replay.
type side struct {
	*environment
	binary  string
	result  *Result
	process *Process

	name    string   // stock or fork; what is for one side alone has it in its name
	gateway *Gateway // to the server
	address string   // free for the program's own HTTP server
	status  string   // a file for the program's status
}

// replay is one story, told to both builds at the same time.
type replay struct {
	*environment
	t     *testing.T
	group string // for the kinds of this replay
	begun time.Time
	sides [2]*side // stock, fork
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
	for i, build := range []string{"stock", "fork"} {
		r.sides[i] = &side{
			environment: e, binary: []string{e.stock, e.fork}[i], name: build,
			result:  &Result{Program: e.program, Replay: name, Title: title, Fork: i == 1, Build: build + " " + tree.Newest()},
			gateway: newGateway(t, e.server), address: freeAddress(e.ctx, t), status: filepath.Join(t.TempDir(), "status.json"),
		}
	}
	must(t, r.makeNamespaces(e.server))
	t.Cleanup(func() { record(t, r.sides[0].result, r.sides[1].result) })
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
func record(t *testing.T, stock, fork *Result) {
	for _, r := range []*Result{stock, fork} {
		fmt.Fprintf(t.Output(), "%-12s %-14s %s\n", r.Replay, r.Build, r.Verdict())
	}
	pairs.Lock()
	defer pairs.Unlock()
	pairs.all = append(pairs.all, Pair{*stock, *fork})
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
	var errs [len(r.sides)]error
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
	must(r.t, errs[:]...)
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
// apart. The fork gets one try.
const (
	giveUpAfter = 5
	tryEvery    = 250 * time.Millisecond
)

func (s *side) tries() int {
	if s.result.Fork {
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

// within fails the replay if the fork has not healed so soon. It comes before judge.
func (r *replay) within(most time.Duration) {
	r.t.Helper()
	if fork := r.sides[1].result; fork.Healed && fork.Millis > float64(most.Milliseconds()) {
		r.t.Errorf("%s: %s, want %s at most", fork.Build, fork.Verdict(), most)
		fork.Healed = false
	}
}

func millisSince(start time.Time) float64 {
	return float64(time.Since(start).Microseconds()) / 1000
}
