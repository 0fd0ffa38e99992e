// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSelfheal kills and starts the API server under the programs.
func TestSelfheal(t *testing.T) {
	h := newSelfheal(t)
	t.Run("S1", h.shortOutage)
	t.Run("S2", h.longOutage)
	t.Run("S3", h.givesUp)
	t.Run("S4", h.changedMeanwhile)
	t.Run("bad input", h.badInput)
}

func (h *selfheal) shortOutage(t *testing.T) {
	r := h.replay(t, "S1", "the API server dies and is back before it matters")
	h.startOn(r, "-tolerate", "2m")
	revive := h.outage(r)
	r.both("in the outage", func(s *side) (Step, error) {
		now, err := h.awaitState(s, "Failing")
		if _, notReady := h.get(s, "/readyz"); notReady != nil {
			err = errors.Join(err, fmt.Errorf("a short failure should be tolerated: %w", notReady))
		}
		return now.step(), err
	})
	r.change("API server is back", revive)
	r.both("after it", func(s *side) (Step, error) {
		step, now, err := h.healed(s)
		if now.Attempts != 0 {
			err = errors.Join(err, fmt.Errorf("a short failure should not be repaired: %+v", now))
		}
		return step, err
	})
	r.judge(true)
}

// longOutage kills the program as well. The next process knows what the last one
// knew.
func (h *selfheal) longOutage(t *testing.T) {
	r := h.replay(t, "S2", "an outage in which the program is killed too")
	h.startOn(r, "-tolerate", "1s")
	revive := h.outage(r)
	before := map[*side]selfhealStatus{}
	r.both("in the outage", func(s *side) (Step, error) { return h.repairs(s) })
	for _, s := range r.sides {
		before[s] = h.restart(r, s)
	}
	r.both("programs killed, started", func(s *side) (Step, error) {
		was := before[s]
		now, err := h.await(s, "an attempt after its restart", func(now selfhealStatus) bool { return now.Attempts > was.Attempts })
		if err == nil && (now.State != "Unhealthy" || !now.Since.Equal(was.Since)) {
			err = fmt.Errorf("the status should have survived the restart: %+v before, %+v now", was, now)
		}
		return now.step(), err
	})
	r.change("API server is back", revive)
	r.both("after it", func(s *side) (Step, error) {
		step, _, err := h.healed(s)
		if err != nil {
			return step, err
		}
		now, err := h.await(s, "a successful repair", func(now selfhealStatus) bool { return !now.LastSuccess.IsZero() && !now.Repairing })
		if err == nil && (now.Attempts < before[s].Attempts+2 || !now.LastSuccess.Equal(now.LastAttempt) || now.LastError != "") {
			err = fmt.Errorf("the last attempt should be the one that succeeded: %+v", now)
		}
		return now.step(), err
	})
	r.judge(true)
}

// repairs waits until the program repairs, and looks at how it says so.
func (h *selfheal) repairs(s *side) (Step, error) {
	now, err := h.await(s, "two attempts", func(now selfhealStatus) bool { return now.State == "Unhealthy" && now.Attempts >= 2 })
	if err != nil {
		return Step{}, err
	}
	if now.Since.IsZero() || !strings.Contains(now.Reason, "refused") || !now.Repairing {
		err = fmt.Errorf("want since, reason, and a repair under way: %+v", now)
	}
	if _, notReady := h.get(s, "/readyz"); notReady == nil || !strings.Contains(notReady.Error(), "Unhealthy since 20") {
		err = errors.Join(err, fmt.Errorf("readiness should say since when, not %w", notReady))
	}
	if code, refused := h.askRepair(s); refused != nil || code != http.StatusConflict {
		err = errors.Join(err, refused, fmt.Errorf("a second repair: got status %d, want %d", code, http.StatusConflict))
	}
	step := now.step()
	step.Outcome += ", 2nd refused"
	return step, err
}

func (h *selfheal) givesUp(t *testing.T) {
	r := h.replay(t, "S3", "an outage beyond the deadline of a repair")
	h.startOn(r, "-tolerate", "1s", "-repair-deadline", "3s")
	revive := h.outage(r)
	r.both("beyond the deadline", func(s *side) (Step, error) {
		now, err := h.await(s, "giving up", func(now selfhealStatus) bool { return now.State == "GaveUp" && !now.Repairing })
		if _, dead := h.get(s, "/healthz"); dead == nil {
			err = errors.Join(err, errors.New("liveness should fail"))
		}
		if code, asked := h.askRepair(s); asked != nil || code != http.StatusAccepted {
			err = errors.Join(err, asked, fmt.Errorf("a repair by hand: got status %d, want %d", code, http.StatusAccepted))
		}
		return now.step(), err
	})
	r.change("API server is back", revive)
	r.both("after it", func(s *side) (Step, error) {
		step, _, err := h.healed(s)
		if _, dead := h.get(s, "/healthz"); dead != nil {
			err = errors.Join(err, dead)
		}
		return step, err
	})
	r.judge(true)
}

// changedMeanwhile shows a case in which a ping does not help: the server is well,
// but what the program knows of it is wrong.
func (h *selfheal) changedMeanwhile(t *testing.T) {
	widget := Kind{Group: "s4.example.com", Kind: "Widget", Versions: []string{"v1"}}
	r := h.replay(t, "S4", "a kind has changed by the time the outage is over")
	r.given(widget)
	h.startOn(r, "-tolerate", "1s", "-kinds", "Widget.s4.example.com")
	r.both("Widget", func(s *side) (Step, error) {
		return h.awaitKind(s, "s4.example.com/v1, namespace", selfhealGiveUp)
	})
	revive := h.outage(r)
	r.both("in the outage", func(s *side) (Step, error) {
		now, err := h.awaitState(s, "Unhealthy")
		return now.step(), err
	})
	r.change("API server is back", revive)
	again := widget
	again.Cluster = true
	steps := append([]func() error{func() error { return h.server.Uninstall(h.ctx, widget) }}, r.settled(again, "v1")...)
	r.change("CRD Widget comes back cluster-wide", steps...)
	r.both("health", func(s *side) (Step, error) {
		step, _, err := h.healed(s)
		return step, err
	})
	r.both("Widget", func(s *side) (Step, error) {
		return h.awaitKind(s, "s4.example.com/v1, root", selfhealGiveUp)
	})
	r.judge(false)
}

// badInput ends the program with a clear message. A file that holds no status does
// not end it.
func (h *selfheal) badInput(t *testing.T) {
	for args, want := range map[string]string{
		"-check-interval 0":   "-check-interval must be positive, not 0s",
		"-tolerate -1s":       "-tolerate must be positive, not -1s",
		"-repair-deadline 0s": "-repair-deadline must be positive, not 0s",
		"-kinds widgets":      `"widgets" is no kind, want KIND.GROUP such as ConfigMap or Deployment.apps`,
		"-kubeconfig absent":  "absent",
	} {
		t.Run(args, func(t *testing.T) { h.refuses(t, strings.Fields(args), "", want) })
	}
	t.Run("no status", h.corruptStatus)
}

func (h *selfheal) corruptStatus(t *testing.T) {
	r := h.replay(t, "S5", "the status file is none, and a kind does not exist")
	h.corrupt(r)
	h.startOn(r, "-kinds", "Nope.example.com")
	r.both("at start", func(s *side) (Step, error) {
		step, _, err := h.healed(s)
		if err != nil {
			return step, err
		}
		return h.awaitKind(s, "not served", time.Second)
	})
	r.judge(true)
}

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
	code, _, err = httpDo(h.ctx, http.MethodPost, h.running[s].address, "/repair")
	return code, err
}
