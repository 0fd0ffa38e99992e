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
	r.selfheal("in the outage", func(s *side, now selfhealStatus) error {
		return errors.Join(now.is("Failing"), s.get("/readyz", nil)) // it is tolerated
	})
	revive()
	r.healthy()
	r.selfheal("no repair", func(_ *side, now selfhealStatus) error { return now.want(now.Attempts == 0) })
}

// longOutage kills the program as well. The next process knows what the last one
// knew.
func (r *replay) longOutage() {
	r.startSelfheal("-tolerate", "1s")
	revive := r.outage()
	r.selfheal("in the outage", func(s *side, now selfhealStatus) error {
		notReady := s.get("/readyz", nil)
		return errors.Join(now.is("Unhealthy"),
			now.want(now.Attempts >= 2 && now.Repairing && strings.Contains(now.Reason, "refused")),
			now.want(notReady != nil && strings.Contains(notReady.Error(), "Unhealthy since 20")))
	})
	r.askRepair(http.StatusConflict)
	before := map[*side]selfhealStatus{}
	for _, s := range r.sides {
		before[s] = s.restart(r.t)
	}
	r.selfheal("programs killed, started", func(s *side, now selfhealStatus) error {
		return errors.Join(now.is("Unhealthy"), now.want(now.Attempts > before[s].Attempts && now.Since.Equal(before[s].Since)))
	})
	revive()
	r.healthy()
	r.selfheal("a repair has succeeded", func(s *side, now selfhealStatus) error {
		last := !now.LastSuccess.IsZero() && now.LastSuccess.Equal(now.LastAttempt) && now.LastError == ""
		return now.want(last && !now.Repairing && now.Attempts >= before[s].Attempts+2)
	})
}

func (r *replay) changedMeanwhile() {
	widget := r.kind("Widget", "v1")
	r.settle(widget)
	r.startSelfheal("-tolerate", "1s", "-repair-deadline", "3s", "-kinds", "Widget."+r.group)
	r.knows(r.group + "/v1, namespace")
	revive := r.outage()
	r.selfheal("beyond the deadline", func(s *side, now selfhealStatus) error {
		return errors.Join(now.is("GaveUp"), now.want(!now.Repairing && s.get("/healthz", nil) != nil))
	})
	r.askRepair(http.StatusAccepted)
	revive()
	r.uninstall(widget)
	widget.Cluster = true
	r.settle(widget)
	r.healthy()
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
	r.selfheal("at start", func(_ *side, now selfhealStatus) error { return now.is("Healthy") })
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

func (s selfhealStatus) is(state string) error { return s.want(s.State == state) }

func (s selfhealStatus) want(yes bool) error {
	if yes {
		return nil
	}
	return fmt.Errorf("the status is %+v", s)
}

// selfheal waits until holds returns nil for the status of both programs.
func (r *replay) selfheal(what string, holds func(*side, selfhealStatus) error) {
	r.t.Helper()
	r.both(what, func(s *side) (Step, error) {
		var now selfhealStatus
		err := s.await(what, func() (bool, error) {
			now = selfhealStatus{}
			err := s.get("/status", &now)
			if err == nil {
				err = holds(s, now)
			}
			return err == nil, err
		})
		return Step{Outcome: now.State + ", " + Count(now.Attempts, "attempt", "attempts"), OK: now.State == "Healthy"}, err
	})
}

// healthy waits until the programs are healthy, ready and alive, which is the result.
func (r *replay) healthy() {
	r.t.Helper()
	start, before := time.Now(), map[*side]int{}
	for _, s := range r.sides {
		var now selfhealStatus
		must(r.t, s.get("/status", &now))
		before[s] = now.Requests
		s.result.Healed, s.result.Tries = true, 1 // or the replay ends here
	}
	r.selfheal("after it", func(s *side, now selfhealStatus) error {
		s.result.Millis, s.result.Requests = millisSince(start), now.Requests-before[s]
		return errors.Join(now.is("Healthy"), s.get("/readyz", nil), s.get("/healthz", nil))
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
func (r *replay) askRepair(want int) {
	r.t.Helper()
	for _, s := range r.sides {
		code, body, err := httpDo(s.ctx, http.MethodPost, s.address, "/repair")
		if err != nil || code != want {
			r.t.Errorf("%s: a repair by hand: got status %d, want %d: %s, %v", s.result.Build, code, want, body, err)
		}
	}
}
