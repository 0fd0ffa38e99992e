// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"net/http"
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
