// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

const (
	selfhealCheck  = 500 * time.Millisecond
	selfhealGiveUp = 10 * time.Second
)

// selfheal is an environment whose API server dies.
type selfheal struct {
	*environment
	running map[*side]*selfhealProgram
}

// selfhealProgram is a running program.
type selfhealProgram struct {
	args          []string
	address, file string // of its HTTP server and its status
}

func newSelfheal(t *testing.T) *selfheal {
	t.Helper()
	return &selfheal{environment: newEnvironment(t, "selfheal"), running: map[*side]*selfhealProgram{}}
}

// prepare chooses where a program listens, and where it keeps its status.
func (h *selfheal) prepare(r *replay) {
	r.t.Helper()
	for _, s := range r.sides {
		address, err := freeAddress(h.ctx)
		must(r.t, err)
		h.running[s] = &selfhealProgram{address: address, file: filepath.Join(r.t.TempDir(), "status.json")}
	}
}

func (h *selfheal) corrupt(r *replay) {
	r.t.Helper()
	h.prepare(r)
	for _, s := range r.sides {
		must(r.t, os.WriteFile(h.running[s].file, []byte("no status"), 0o600))
	}
}

// startOn starts the programs, and waits until they are healthy.
func (h *selfheal) startOn(r *replay, args ...string) {
	r.t.Helper()
	if h.running[r.sides[0]] == nil {
		h.prepare(r)
	}
	r.start(func(s *side) []string {
		p := h.running[s]
		p.args = append([]string{
			"-bind-address", p.address, "-status", p.file, "-check-interval", selfhealCheck.String(), "-backoff", "500ms", "-backoff-max", "1s",
		}, args...)
		return p.args
	})
	r.both("at start", func(s *side) (Step, error) {
		now, err := h.awaitState(s, "Healthy")
		return now.step(), err
	})
}

// outage kills the API server, and returns the function that starts it again. If
// the replay ends before that, the server is started for the next replay.
func (h *selfheal) outage(r *replay) (revive func() error) {
	r.t.Helper()
	var start func(context.Context) error
	revived := false
	r.change("API server is killed", func() error {
		start = h.server.Kill()
		return nil
	})
	revive = func() error {
		revived = true
		return start(h.ctx)
	}
	r.t.Cleanup(func() {
		if revived {
			return
		}
		if err := revive(); err != nil {
			r.t.Error(err)
		}
	})
	return revive
}

// restart kills a program, starts it again, and returns the status from in between.
func (h *selfheal) restart(r *replay, s *side) (between selfhealStatus) {
	r.t.Helper()
	p := h.running[s]
	must(r.t, s.process.end(os.Kill))
	written, err := os.ReadFile(p.file)
	must(r.t, err)
	must(r.t, json.Unmarshal(written, &between))
	s.process = start(h.ctx, r.t, s.binary, h.server.Kubeconfig, p.args...)
	return between
}

// healed waits until the program is healthy and ready.
func (h *selfheal) healed(s *side) (Step, selfhealStatus, error) {
	start := time.Now()
	before, err := h.status(s)
	if err != nil {
		return Step{}, before, err
	}
	now, err := h.awaitState(s, "Healthy")
	if err == nil {
		_, err = h.get(s, "/readyz")
	}
	s.result.Healed, s.result.Tries, s.result.Millis = err == nil, 1, millisSince(start)
	s.result.Requests = now.Requests - before.Requests
	return now.step(), now, err
}

// awaitKind waits until the program reports a kind as want, and returns how that went.
func (h *selfheal) awaitKind(s *side, want string, giveUp time.Duration) (Step, error) {
	s.result.Healed, s.result.Tries = false, 0
	before, err := h.status(s)
	if err != nil {
		return Step{}, err
	}
	outcome := ""
	start := time.Now()
	for first := true; first || !s.result.Healed && time.Since(start) < giveUp; first = false {
		if !first {
			time.Sleep(tryEvery)
		}
		body, err := h.get(s, "/kinds")
		var kinds map[string]string
		if err == nil {
			err = json.Unmarshal(body, &kinds)
		}
		if err != nil {
			return Step{}, err
		}
		for _, outcome = range kinds { // there is one
			s.result.Healed = outcome == want
		}
		s.result.Tries++
	}
	s.result.Millis = millisSince(start)
	now, err := h.status(s)
	s.result.Requests = now.Requests - before.Requests
	return Step{Outcome: outcome, OK: s.result.Healed, Requests: s.result.Requests}, err
}

// selfhealStatus is what /status answers.
type selfhealStatus struct {
	State       string    `json:"state"`
	Since       time.Time `json:"since"`
	Reason      string    `json:"reason"`
	Attempts    int       `json:"attempts"`
	LastAttempt time.Time `json:"lastAttempt"`
	LastSuccess time.Time `json:"lastSuccess"`
	LastError   string    `json:"lastError"`
	Repairing   bool      `json:"repairing"`
	Requests    int       `json:"requests"`
}

func (s selfhealStatus) step() Step {
	outcome := s.State
	if s.Attempts > 0 {
		outcome += ", " + Count(s.Attempts, "attempt", "attempts")
	}
	return Step{Outcome: outcome, OK: s.State == "Healthy"}
}

func (h *selfheal) awaitState(s *side, state string) (selfhealStatus, error) {
	return h.await(s, state, func(now selfhealStatus) bool { return now.State == state })
}

func (h *selfheal) await(s *side, what string, enough func(selfhealStatus) bool) (now selfhealStatus, err error) {
	err = h.server.Await(h.ctx, fmt.Sprintf("%s: %s", s.result.Build, what), func() (bool, error) {
		now, err = h.status(s)
		return enough(now), err
	})
	if err != nil {
		err = fmt.Errorf("%w (last: %+v)", err, now)
	}
	return now, err
}

func (h *selfheal) status(s *side) (now selfhealStatus, err error) {
	body, err := h.get(s, "/status")
	if err == nil {
		err = json.Unmarshal(body, &now)
	}
	return now, err
}

func (h *selfheal) get(s *side, path string) ([]byte, error) {
	return httpGet(h.ctx, h.running[s].address, path)
}

// askRepair asks for a repair by hand, and returns the HTTP status.
func (h *selfheal) askRepair(s *side) (code int, err error) {
	req, err := http.NewRequestWithContext(h.ctx, http.MethodPost, "http://"+h.running[s].address+"/repair", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}
