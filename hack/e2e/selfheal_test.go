// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"
)

// TestSelfheal kills and starts the API server under the programs.
func TestSelfheal(t *testing.T) {
	newEnvironment(t, "selfheal").tell(t,
		// A ping does not help here: the server is well, but what the program knows of it is wrong.
		story{"Outage", "an outage beyond the deadline of a repair, in which a kind changes", false, (*replay).changedMeanwhile},
	)
}

func (r *replay) changedMeanwhile() {
	widget := r.kind("Widget", "v1")
	r.settle(widget)
	r.start(func(s *side) []string {
		return []string{
			"-bind-address", s.address, "-status", s.status, "-check-interval", "500ms", "-backoff", "500ms", "-backoff-max", "1s",
			"-tolerate", "1s", "-repair-deadline", "3s", "-kinds", "Widget." + r.group,
		}
	})
	r.selfheal("at start", func(_ *side, now selfhealStatus) error { return now.is("Healthy") })
	r.knows(r.group + "/v1, namespace")
	revive := r.outage()
	r.selfheal("beyond the deadline", func(s *side, now selfhealStatus) error {
		if now.Repairing || s.get("/healthz", nil) == nil {
			return errors.New("it repairs, or /healthz is fine")
		}
		return now.is("GaveUp")
	})
	for _, s := range r.sides {
		code, body, err := httpDo(s.ctx, http.MethodPost, s.address, "/repair")
		if err != nil || code != http.StatusAccepted {
			r.t.Errorf("%s: a repair by hand: status %d: %s, %v", s.result.Build, code, body, err)
		}
	}
	revive()
	r.uninstall(widget)
	widget.Cluster = true
	r.settle(widget)
	r.healthy()
	r.knows(r.group + "/v1, root")
}

// selfhealStatus is what /status answers.
type selfhealStatus struct {
	State     string `json:"state"`
	Attempts  int    `json:"attempts"`
	Repairing bool   `json:"repairing"`
	Requests  int    `json:"requests"`
}

func (s selfhealStatus) is(state string) error {
	if s.State != state {
		return fmt.Errorf("the status is %+v", s)
	}
	return nil
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
