// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestHeal(t *testing.T) {
	newEnvironment(t, "heal").tell(t,
		story{"R1", "a version appears after its group was read", false, (*replay).newVersion},
		story{"R2", "a CRD comes after the first reconcile, nobody resets anything", false, (*replay).reconciler},
		story{"R2-reset", "the same, with MaybeResetRESTMapper before each lookup", false, (*replay).resetIsReal},
		// Stock gets this right: if a lookup names a version that it does not know, it asks the server.
		story{"R2-version", "a wholly new group, looked up with its version (stock recovers)", true, (*replay).versionGiven},
		story{"R3", "a kind is deleted, the mapper is reset", false, (*replay).deletedKind},
		story{"R4", "a kind comes back with another scope, the mapper is reset", false, (*replay).otherScope},
		story{"R5-miss", "the preferred version changes, then a lookup in that group misses", false, preferredVersionAfter("lookup Absent")},
		story{"R5-reset", "the preferred version changes, then the mapper is reset", false, preferredVersionAfter("reset")},
	)
}

func (r *replay) newVersion() {
	r.settle(r.kind("Anchor", "v1"))
	r.startReports()
	r.ask("lookup Anchor", "v1, namespaced")
	r.install(r.kind("Widget", "v2"))
	r.heal("v2, namespaced", "lookup Widget")
}

func (r *replay) resetIsReal() {
	r.settle(r.kind("Anchor", "v1"))
	r.startReports()
	r.ask("lookup Widget", "no match")
	r.settle(r.kind("Widget", "v2"))
	r.heal("v2, namespaced", "reset", "lookup Widget")
	// Both know Anchor: only a mapper that was really reset reads again.
	r.both("reset, look up Anchor", func(s *side) (Step, error) {
		reset, err := s.ask("reset")
		if err != nil {
			return Step{}, err
		}
		anchor, err := s.ask(r.in("lookup Anchor"))
		if really := anchor.DiscoveryRequests > 0; really != s.result.Ours || reset.OK != s.result.Ours {
			err = fmt.Errorf("reset answered %+v, and the lookup after it %+v: want a reset on the fork, none on stock", reset, anchor)
		}
		return Step{Outcome: fmt.Sprintf("reset: %t", reset.OK), OK: reset.OK, Requests: anchor.DiscoveryRequests}, err
	})
}

func (r *replay) versionGiven() {
	r.startReports()
	r.ask("lookup ConfigMap", "v1, namespaced")
	r.ask("lookup Widget v1", "no match")
	r.ask("lookup Widget v1", "no match")
	r.install(r.kind("Widget", "v1"))
	r.heal("v1, namespaced", "lookup Widget v1")
	for _, s := range r.sides {
		if s.result.Tries != 1 || s.result.Requests != 1 {
			r.t.Errorf("%s: %s, want one request and one try", s.result.Build, s.result.Verdict())
		}
	}
}

func (r *replay) deletedKind() {
	widget := r.kind("Widget", "v1")
	r.settle(widget)
	r.startReports()
	r.ask("lookup Widget", "v1, namespaced")
	r.uninstall(widget)
	r.heal("no match", "reset", "lookup Widget")
}

func (r *replay) otherScope() {
	widget := r.kind("Widget", "v1")
	r.settle(widget)
	r.startReports()
	r.ask("lookup Widget", "v1, namespaced")
	r.uninstall(widget)
	widget.Cluster = true
	r.settle(widget)
	r.heal("v1, cluster-wide", "reset", "lookup Widget")
}

func preferredVersionAfter(command string) func(*replay) {
	return func(r *replay) {
		r.settle(r.kind("Widget", "v1beta1"))
		r.startReports()
		r.ask("lookup Widget", "v1beta1, namespaced")
		r.settle(r.kind("Widget", "v1beta1", "v1"))
		r.ask("lookup Widget", "v1beta1, namespaced") // neither stock nor the fork rechecks a hit
		r.heal("v1, namespaced", command, "lookup Widget")
	}
}

// answer is a line that `heal report` prints.
type answer struct {
	OK                bool   `json:"ok"`
	GroupVersion      string `json:"groupVersion"`
	Scope             string `json:"scope"`
	NoMatch           bool   `json:"noMatch"`
	Error             string `json:"error"`
	DiscoveryRequests int    `json:"discoveryRequests"`
}

func (a answer) String() string {
	scope := map[string]string{"root": ", cluster-wide", "namespace": ", namespaced"}[a.Scope]
	switch {
	case a.OK:
		return a.GroupVersion[strings.Index(a.GroupVersion, "/")+1:] + scope
	case a.NoMatch:
		return "no match"
	default:
		return a.Error
	}
}

// startReports starts `heal report` on both sides.
func (r *replay) startReports() {
	r.t.Helper()
	r.start(func(*side) []string { return []string{"report"} })
}

// in puts the replay's group into a command. ConfigMap has none.
func (r *replay) in(command string) string {
	return strings.NewReplacer("Anchor", "Anchor."+r.group, "Widget", "Widget."+r.group, "Absent", "Absent."+r.group).Replace(command)
}

func (s *side) ask(command string) (a answer, err error) {
	line, err := s.process.ask(command)
	if err == nil {
		err = json.Unmarshal(line, &a)
	}
	return a, err
}

// ask asks both sides, whose answers must be right: the replay builds on them.
func (r *replay) ask(command, want string) {
	r.t.Helper()
	r.both(command, func(s *side) (Step, error) {
		a, err := s.ask(r.in(command))
		if err == nil && a.String() != want {
			err = fmt.Errorf("got %+v, want %s", a, want)
		}
		return Step{Outcome: a.String(), OK: err == nil, Requests: a.DiscoveryRequests}, err
	})
}

// heal asks both sides, right after the server changed, until the last command is answered
// right. All commands are sent at every try. The first lookup of the fork must be right.
func (r *replay) heal(want string, commands ...string) {
	r.t.Helper()
	r.both(strings.Join(commands, ", "), func(s *side) (Step, error) {
		return s.try(s.tries(), func() (outcome string, right bool, requests int, err error) {
			var a answer
			for _, command := range commands {
				if a, err = s.ask(r.in(command)); err != nil {
					return "", false, requests, err
				}
				requests += a.DiscoveryRequests
			}
			return a.String(), a.String() == want, requests, nil
		})
	})
}

// reconciler runs `heal manager`: one namespace and ConfigMap a side, since both
// managers run at the same time.
func (r *replay) reconciler() {
	r.settle(r.kind("Anchor", "v1"))
	for _, s := range r.sides {
		must(r.t, s.request("Widget."+r.group))
	}
	r.start(func(s *side) []string {
		return []string{"manager", "-namespace", s.namespace(), "-retry", tryEvery.String()}
	})
	r.holds("reconcile", "NotServed", func(s *side) (bool, error) {
		now, err := s.reconciles()
		return now.state == "NotServed" && now.attempts >= 2, err
	})
	r.install(r.kind("Widget", "v2"))
	r.both("later reconciles", (*side).reconciled)
	// The attempt after the one last recorded may have begun before the server
	// served the kind. The next has not.
	if fork := r.sides[1].result; fork.Healed && fork.Tries > 2 {
		r.t.Errorf("%s: the reconcile after the CRD came did not find it: %s", fork.Build, fork.Verdict())
		fork.Healed = false
	}
}

// reconciled waits until the side's reconciler finds its kind, or has failed as
// often as other replays try a lookup.
func (s *side) reconciled() (Step, error) {
	start := time.Now()
	before, err := s.reconciles()
	if err != nil {
		return Step{}, err
	}
	var now status
	err = s.await("to reconcile", func() (ok bool, err error) {
		now, err = s.reconciles()
		return now.state == "Ready" || now.attempts >= before.attempts+giveUpAfter, err
	})
	s.result.Healed = now.state == "Ready"
	s.result.Millis = millisSince(start)
	s.result.Tries = now.attempts - before.attempts
	s.result.Requests = now.requests - before.requests
	return Step{Outcome: times(now.state, s.result.Tries), OK: s.result.Healed, Requests: s.result.Requests}, err
}

const configMap = "ask"

// request makes a ConfigMap that asks for a kind.
func (s *side) request(kind string) error {
	return s.server.Client.Create(s.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.namespace(), Name: configMap, Annotations: map[string]string{"heal.example.com/kind": kind},
	}})
}

// status is what the reconciler wrote into the ConfigMap.
type status struct {
	state              string
	attempts, requests int
}

func (s *side) reconciles() (status, error) {
	var cm corev1.ConfigMap
	if err := s.server.Client.Get(s.ctx, client.ObjectKey{Namespace: s.namespace(), Name: configMap}, &cm); err != nil {
		return status{}, err
	}
	attempts, _ := strconv.Atoi(cm.Data["attempts"]) // none written yet
	requests, _ := strconv.Atoi(cm.Data["discoveryRequests"])
	return status{state: cm.Data["state"], attempts: attempts, requests: requests}, nil
}
