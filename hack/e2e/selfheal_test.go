// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// TestSelfheal kills and starts the API server under the programs.
func TestSelfheal(t *testing.T) {
	newEnvironment(t, "selfheal").tell(t,
		story{"S1", "the API server dies and is back before it matters; the status file was none", true, (*replay).shortOutage},
		story{"S2", "an outage in which the program is killed too", true, (*replay).longOutage},
		// A ping does not help here: the server is well, but what the program knows of it is wrong.
		story{"S3", "an outage beyond the deadline of a repair, in which a kind changes", false, (*replay).changedMeanwhile},
	)
}

func (r *replay) shortOutage() {
	for _, s := range r.sides {
		must(r.t, os.WriteFile(s.status, []byte("no status"), 0o600))
	}
	r.startSelfheal("-tolerate", "2m", "-kinds", "Nope.example.com")
	r.knows("not served")
	revive := r.outage()
	r.state("in the outage", "Failing", func(s *side, _ selfhealStatus) error { return s.get("/readyz", nil) }) // tolerated
	revive()
	r.healthy(func(s *side, now selfhealStatus) error {
		if now.Attempts != 0 {
			return fmt.Errorf("a short failure should not be repaired: %+v", now)
		}
		return nil
	})
}

// longOutage kills the program as well. The next process knows what the last one
// knew.
func (r *replay) longOutage() {
	r.startSelfheal("-tolerate", "1s")
	revive := r.outage()
	r.selfheal("in the outage", "two attempts, and a repair", repairs, checkRepairs)
	before := map[*side]selfhealStatus{}
	for _, s := range r.sides {
		before[s] = s.restart(r.t)
	}
	r.selfheal("programs killed, started", "an attempt",
		func(s *side, now selfhealStatus) bool { return now.Attempts > before[s].Attempts },
		func(s *side, now selfhealStatus) error {
			if now.State != "Unhealthy" || !now.Since.Equal(before[s].Since) {
				return fmt.Errorf("the status should have survived the restart: %+v before, %+v now", before[s], now)
			}
			return nil
		})
	revive()
	r.healthy(nil)
	r.selfheal("after it", "a successful repair",
		func(_ *side, now selfhealStatus) bool { return !now.LastSuccess.IsZero() && !now.Repairing },
		func(s *side, now selfhealStatus) error {
			if now.Attempts < before[s].Attempts+2 || !now.LastSuccess.Equal(now.LastAttempt) || now.LastError != "" {
				return fmt.Errorf("the last attempt should be the one that succeeded: %+v", now)
			}
			return nil
		})
}

func repairs(_ *side, now selfhealStatus) bool { return now.State == "Unhealthy" && now.Attempts >= 2 }

// checkRepairs looks at how a program says that it repairs, and that it does not do so twice.
func checkRepairs(s *side, now selfhealStatus) (err error) {
	if now.Since.IsZero() || !strings.Contains(now.Reason, "refused") || !now.Repairing {
		err = fmt.Errorf("want since, reason, and a repair under way: %+v", now)
	}
	if notReady := s.get("/readyz", nil); notReady == nil || !strings.Contains(notReady.Error(), "Unhealthy since 20") {
		err = errors.Join(err, fmt.Errorf("readiness should say since when, not %w", notReady))
	}
	return errors.Join(err, s.askRepair(http.StatusConflict))
}

func (r *replay) changedMeanwhile() {
	widget := r.kind("Widget", "v1")
	r.settle(widget)
	r.startSelfheal("-tolerate", "1s", "-repair-deadline", "3s", "-kinds", "Widget."+r.group)
	r.knows(r.group + "/v1, namespace")
	revive := r.outage()
	r.selfheal("beyond the deadline", "giving up",
		func(_ *side, now selfhealStatus) bool { return now.State == "GaveUp" && !now.Repairing },
		func(s *side, _ selfhealStatus) error {
			if dead := s.get("/healthz", nil); dead == nil {
				return errors.New("liveness should fail")
			}
			return s.askRepair(http.StatusAccepted) // by hand
		})
	revive()
	r.uninstall(widget)
	widget.Cluster = true
	r.settle(widget)
	r.healthy(func(s *side, _ selfhealStatus) error { return s.get("/healthz", nil) })
	r.knows(r.group + "/v1, root")
}

// startSelfheal starts the programs, and waits until they are healthy.
func (r *replay) startSelfheal(args ...string) {
	r.t.Helper()
	r.start(func(s *side) []string {
		return append([]string{
			"-bind-address", s.address, "-status", s.status, "-check-interval", "500ms", "-backoff", "500ms", "-backoff-max", "1s",
		}, args...)
	})
	r.state("at start", "Healthy", nil)
}

// restart kills a program, starts it again, and returns the status from in between.
func (s *side) restart(t *testing.T) (between selfhealStatus) {
	t.Helper()
	must(t, s.process.end(os.Kill))
	written, err := os.ReadFile(s.status)
	must(t, err)
	must(t, json.Unmarshal(written, &between))
	s.start(t, s.server.Kubeconfig, s.args...)
	return between
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

// selfheal waits until enough of the status of both programs is there, and then checks them.
func (r *replay) selfheal(what, want string, enough func(*side, selfhealStatus) bool, check func(*side, selfhealStatus) error) {
	r.t.Helper()
	r.both(what, func(s *side) (Step, error) {
		var now selfhealStatus
		err := s.await(want, func() (bool, error) {
			now = selfhealStatus{}
			err := s.get("/status", &now)
			return enough(s, now), err
		})
		if err != nil {
			return Step{}, fmt.Errorf("%w (last: %+v)", err, now)
		}
		if check != nil {
			err = check(s, now)
		}
		return Step{Outcome: now.State + ", " + Count(now.Attempts, "attempt", "attempts"), OK: now.State == "Healthy"}, err
	})
}

func (r *replay) state(what, state string, check func(*side, selfhealStatus) error) {
	r.t.Helper()
	r.selfheal(what, state, func(_ *side, now selfhealStatus) bool { return now.State == state }, check)
}

// healthy waits until the programs are healthy and ready, which is the result.
func (r *replay) healthy(check func(*side, selfhealStatus) error) {
	r.t.Helper()
	start := time.Now()
	before := map[*side]selfhealStatus{}
	for _, s := range r.sides {
		var now selfhealStatus
		must(r.t, s.get("/status", &now))
		before[s] = now
	}
	r.state("after it", "Healthy", func(s *side, now selfhealStatus) error {
		err := s.get("/readyz", nil)
		s.result.Healed, s.result.Tries, s.result.Millis = err == nil, 1, millisSince(start)
		s.result.Requests = now.Requests - before[s].Requests
		if err == nil && check != nil {
			err = check(s, now)
		}
		return err
	})
}

// knows waits for what the programs say of the kind that they were told to look at, which is
// the result.
func (r *replay) knows(want string) {
	r.t.Helper()
	r.both("the kind", func(s *side) (Step, error) {
		return s.try(40, func() (outcome string, right bool, requests int, err error) {
			var kinds map[string]string
			err = s.get("/kinds", &kinds)
			for _, outcome = range kinds { // there is one
				right = outcome == want
			}
			return outcome, right, 0, err
		})
	})
}

// askRepair asks for a repair by hand.
func (s *side) askRepair(want int) error {
	code, _, err := httpDo(s.ctx, http.MethodPost, s.address, "/repair")
	if err == nil && code != want {
		err = fmt.Errorf("a repair by hand: got status %d, want %d", code, want)
	}
	return err
}
