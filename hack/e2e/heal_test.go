// SPDX-License-Identifier: Apache-2.0

// Package e2e replays, on a real API server, the failures that controllers on
// stock controller-runtime have, and shows the same programs healed on the fork.
//
// It reads files of other modules, which the go command's test cache does not
// know of: run it with -count=1.
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
	e := newEnvironment(t, "heal")
	t.Run("R1", e.newVersion)
	t.Run("R2", e.reconciler)
	t.Run("R2-reset", e.resetIsReal)
	t.Run("R2-version", e.versionGiven)
	t.Run("R3", e.deletedKind)
	t.Run("R4", e.otherScope)
	t.Run("R5-miss", e.preferredVersionAfterMiss)
	t.Run("R5-reset", e.preferredVersionAfterReset)
	t.Run("bad input", e.badInput)
}

// installed returns the steps that bring a kind and wait until the live
// endpoints show it.
func (r *replay) installed(kind Kind) []func() error {
	return []func() error{
		func() error { return r.server.Install(r.ctx, kind) },
		func() error { return r.server.AwaitServed(r.ctx, kind) },
	}
}

// settled returns the steps that bring a kind and wait until the bulk document
// shows it too. A reset mapper reads nothing else, and a server may be some
// milliseconds late with it.
func (r *replay) settled(kind Kind, preferred string) []func() error {
	return []func() error{
		func() error { return r.server.Install(r.ctx, kind) },
		func() error { return r.server.AwaitSettled(r.ctx, kind, preferred) },
	}
}

// given brings a kind before the replay begins.
func (r *replay) given(kind Kind) {
	r.t.Helper()
	r.change(kind.Kind+" is served at "+strings.Join(kind.Versions, ", "), r.settled(kind, kind.Versions[0])...)
}

func (e *environment) newVersion(t *testing.T) {
	r := e.replay(t, "R1", "a version appears after its group was read")
	r.given(Kind{Group: "r1.example.com", Kind: "Anchor", Versions: []string{"v1"}})
	r.startReports()
	r.ask("look up Anchor", "lookup Anchor.r1.example.com", mapped("r1.example.com/v1", "namespace"))
	r.change("CRD Widget comes, at v2 only", r.installed(Kind{Group: "r1.example.com", Kind: "Widget", Versions: []string{"v2"}})...)
	r.heal("look up Widget", mapped("r1.example.com/v2", "namespace"), "lookup Widget.r1.example.com")
	r.judge(false)
}

func (e *environment) resetIsReal(t *testing.T) {
	r := e.replay(t, "R2-reset", "the same, with MaybeResetRESTMapper before each lookup")
	r.given(Kind{Group: "r2-reset.example.com", Kind: "Anchor", Versions: []string{"v1"}})
	r.startReports()
	r.ask("look up Widget", "lookup Widget.r2-reset.example.com", noMatch)
	r.change("CRD Widget comes, at v2", r.settled(Kind{Group: "r2-reset.example.com", Kind: "Widget", Versions: []string{"v2"}}, "v2")...)
	r.heal("reset, look up Widget", mapped("r2-reset.example.com/v2", "namespace"), "reset", "lookup Widget.r2-reset.example.com")
	r.judge(false)

	// Both know Anchor: only a mapper that was really reset reads again.
	r.both("reset, look up Anchor", func(s *side) (Step, error) {
		reset, err := s.ask("reset")
		if err != nil {
			return Step{}, err
		}
		anchor, err := s.ask("lookup Anchor.r2-reset.example.com")
		step := Step{Outcome: "no reset", OK: reset.OK, Requests: anchor.DiscoveryRequests}
		if reset.OK {
			step.Outcome = "reset"
		}
		if really := anchor.DiscoveryRequests > 0; really != s.result.Fork || reset.OK != s.result.Fork {
			err = fmt.Errorf("reset answered %+v, and the lookup after it %+v: want a reset on the fork, none on stock", reset, anchor)
		}
		return step, err
	})
}

// versionGiven is the case that stock gets right: if a lookup names a version that
// stock does not know, stock asks the server.
func (e *environment) versionGiven(t *testing.T) {
	r := e.replay(t, "R2-version", "a wholly new group, looked up with its version (stock recovers)")
	r.given(Kind{Group: "r2-anchor.example.com", Kind: "Anchor", Versions: []string{"v1"}})
	r.startReports()
	r.ask("look up Anchor", "lookup Anchor.r2-anchor.example.com", done)
	r.ask("look up Widget in v1", "lookup Widget.r2-version.example.com v1", noMatch)
	r.ask("again", "lookup Widget.r2-version.example.com v1", noMatch)
	r.change("CRD Widget comes, at v1", r.installed(Kind{Group: "r2-version.example.com", Kind: "Widget", Versions: []string{"v1"}})...)
	r.heal("look up Widget in v1", mapped("r2-version.example.com/v1", "namespace"), "lookup Widget.r2-version.example.com v1")
	r.judge(true)
	for _, s := range r.sides {
		if s.result.Tries != 1 || s.result.Requests != 1 {
			t.Errorf("%s: %s, want one request and one try", s.result.Build, s.result.Verdict())
		}
	}
}

func (e *environment) deletedKind(t *testing.T) {
	widget := Kind{Group: "r3.example.com", Kind: "Widget", Versions: []string{"v1"}}
	r := e.replay(t, "R3", "a kind is deleted, the mapper is reset")
	r.given(widget)
	r.startReports()
	r.ask("look up Widget", "lookup Widget.r3.example.com", mapped("r3.example.com/v1", "namespace"))
	r.change("CRD Widget is deleted",
		func() error { return e.server.Uninstall(e.ctx, widget) },
		func() error { return e.server.AwaitGone(e.ctx, widget) })
	r.heal("reset, look up Widget", noMatch, "reset", "lookup Widget.r3.example.com")
	r.judge(false)
}

func (e *environment) otherScope(t *testing.T) {
	widget := Kind{Group: "r4.example.com", Kind: "Widget", Versions: []string{"v1"}}
	r := e.replay(t, "R4", "a kind comes back with another scope, the mapper is reset")
	r.given(widget)
	r.startReports()
	r.ask("look up Widget", "lookup Widget.r4.example.com", mapped("r4.example.com/v1", "namespace"))
	again := widget
	again.Cluster = true
	steps := append([]func() error{func() error { return e.server.Uninstall(e.ctx, widget) }}, r.settled(again, "v1")...)
	r.change("CRD Widget is deleted, comes back cluster-wide", steps...)
	r.heal("reset, look up Widget", mapped("r4.example.com/v1", "root"), "reset", "lookup Widget.r4.example.com")
	r.judge(false)
}

func (e *environment) preferredVersionAfterMiss(t *testing.T) {
	e.preferredVersion(t, "R5-miss", "the preferred version changes, then a lookup in that group misses",
		"r5-miss.example.com", "miss, look up Widget", "lookup Absent.r5-miss.example.com")
}

func (e *environment) preferredVersionAfterReset(t *testing.T) {
	e.preferredVersion(t, "R5-reset", "the preferred version changes, then the mapper is reset",
		"r5-reset.example.com", "reset, look up Widget", "reset")
}

func (e *environment) preferredVersion(t *testing.T, name, title, group, what, before string) {
	widget := Kind{Group: group, Kind: "Widget", Versions: []string{"v1beta1"}}
	r := e.replay(t, name, title)
	r.given(widget)
	r.startReports()
	r.ask("look up Widget", "lookup Widget."+group, mapped(group+"/v1beta1", "namespace"))
	widget.Versions = []string{"v1beta1", "v1"}
	r.change("CRD Widget gains v1, which is preferred", r.settled(widget, "v1")...)
	// Neither stock nor the fork rechecks a hit.
	r.ask("look up Widget", "lookup Widget."+group, mapped(group+"/v1beta1", "namespace"))
	r.heal(what, mapped(group+"/v1", "namespace"), before, "lookup Widget."+group)
	r.judge(false)
}

// reconciler runs `heal manager`: one namespace and ConfigMap a side, since both
// managers run at the same time.
func (e *environment) reconciler(t *testing.T) {
	r := e.replay(t, "R2", "a CRD comes after the first reconcile, nobody resets anything")
	r.given(Kind{Group: "r2.example.com", Kind: "Anchor", Versions: []string{"v1"}})
	for _, s := range r.sides {
		must(t, e.request(s.namespace(), "Widget.r2.example.com"))
	}
	r.start(func(s *side) []string {
		return []string{"manager", "-namespace", s.namespace(), "-retry", tryEvery.String()}
	})
	before := map[*side]status{}
	r.both("reconcile", func(s *side) (Step, error) {
		now, err := e.await(s, func(now status) bool { return now.attempts >= 2 })
		return Step{Outcome: now.state, OK: now.state == "NotServed", Requests: now.requests}, err
	})
	r.change("CRD Widget comes, at v2", r.installed(Kind{Group: "r2.example.com", Kind: "Widget", Versions: []string{"v2"}})...)
	for _, s := range r.sides {
		now, err := e.status(s)
		must(t, err)
		before[s] = now
	}
	r.both("later reconciles", func(s *side) (Step, error) { return e.reconciled(s, before[s]) })
	r.judge(false)

	// The attempt after the one last recorded may have begun before the server
	// served the kind. The next has not.
	if fork := r.sides[1].result; fork.Healed && fork.Tries > 2 {
		fork.Expected = false
		t.Errorf("%s: the reconcile after the CRD came did not find it: %s", fork.Build, fork.Verdict())
	}
}

// reconciled waits until the side's reconciler finds its kind, or has failed as
// often as other replays try a lookup.
func (e *environment) reconciled(s *side, before status) (Step, error) {
	start := time.Now()
	now, err := e.await(s, func(now status) bool {
		return now.state == "Ready" || now.attempts >= before.attempts+giveUpAfter
	})
	s.result.Healed = now.state == "Ready"
	s.result.Millis = millisSince(start)
	s.result.Tries = now.attempts - before.attempts
	s.result.Requests = now.requests - before.requests
	return Step{Outcome: times(now.state, s.result.Tries), OK: s.result.Healed, Requests: s.result.Requests}, err
}

func (s *side) namespace() string {
	if s.result.Fork {
		return "r2-fork"
	}
	return "r2-stock"
}

const configMap = "ask"

// request makes a namespace with a ConfigMap that asks for a kind.
func (e *environment) request(namespace, kind string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := e.server.Client.Create(e.ctx, ns); err != nil {
		return err
	}
	return e.server.Client.Create(e.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: configMap, Annotations: map[string]string{"heal.example.com/kind": kind},
	}})
}

// status is what the reconciler wrote into the ConfigMap.
type status struct {
	state              string
	attempts, requests int
}

func (e *environment) status(s *side) (status, error) {
	var cm corev1.ConfigMap
	if err := e.server.Client.Get(e.ctx, client.ObjectKey{Namespace: s.namespace(), Name: configMap}, &cm); err != nil {
		return status{}, err
	}
	attempts, _ := strconv.Atoi(cm.Data["attempts"]) // none written yet
	requests, _ := strconv.Atoi(cm.Data["discoveryRequests"])
	return status{state: cm.Data["state"], attempts: attempts, requests: requests}, nil
}

func (e *environment) await(s *side, enough func(status) bool) (now status, err error) {
	err = e.server.Await(e.ctx, "the reconciler of "+s.result.Build, func() (bool, error) {
		now, err = e.status(s)
		return enough(now), err
	})
	return now, err
}

// badInput ends the program.
func (e *environment) badInput(t *testing.T) {
	tests := map[string]struct {
		args  []string
		input string
		want  string
	}{
		"no command":      {nil, "", "usage"},
		"unknown command": {[]string{"mend"}, "", `unknown command "mend"`},
		"negative retry":  {[]string{"manager", "-retry", "-1s"}, "", "-retry must be positive"},
		"unknown line":    {[]string{"report"}, "look Widget", `line 1: do not understand "look Widget"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { e.refuses(t, test.args, test.input, test.want) })
	}
}

// A replay gives a lookup up if it is still wrong after this many tries, this far
// apart. The fork gets one try.
const (
	giveUpAfter = 5
	tryEvery    = 250 * time.Millisecond
)

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
	_, version, _ := strings.Cut(a.GroupVersion, "/")
	switch {
	case a.OK && version == "":
		return "done"
	case a.OK && a.Scope == "root":
		return version + ", cluster-wide"
	case a.OK:
		return version + ", " + a.Scope + "d"
	case a.NoMatch:
		return "no match"
	default:
		return a.Error
	}
}

// wanted reports whether an answer is the right one.
type wanted func(answer) bool

func noMatch(a answer) bool { return a.NoMatch }

func done(a answer) bool { return a.OK }

func mapped(groupVersion, scope string) wanted {
	return func(a answer) bool { return a.OK && a.GroupVersion == groupVersion && a.Scope == scope }
}

// startReports starts `heal report` on both sides.
func (r *replay) startReports() {
	r.t.Helper()
	r.start(func(*side) []string { return []string{"report"} })
}

func (s *side) ask(command string) (answer, error) {
	line, err := s.process.ask(command)
	if err != nil {
		return answer{}, err
	}
	var a answer
	return a, json.Unmarshal(line, &a)
}

// ask asks both sides, whose answers must be right: the replay builds on them.
func (r *replay) ask(what, command string, right wanted) {
	r.t.Helper()
	r.both(what, func(s *side) (Step, error) {
		a, err := s.ask(command)
		if err == nil && !right(a) {
			err = fmt.Errorf("%q: unexpected answer %+v", command, a)
		}
		return Step{Outcome: a.String(), OK: err == nil, Requests: a.DiscoveryRequests}, err
	})
}

// heal asks both sides, right after the server changed, until the answer to the
// last command is right, or gives up. All commands are sent at every try.
func (r *replay) heal(what string, right wanted, commands ...string) {
	r.t.Helper()
	r.both(what, func(s *side) (Step, error) {
		start := time.Now()
		last, err := s.try(right, commands)
		s.result.Millis = millisSince(start)
		return Step{Outcome: times(last.String(), s.result.Tries), OK: s.result.Healed, Requests: s.result.Requests}, err
	})
}

func (s *side) try(right wanted, commands []string) (last answer, err error) {
	for s.result.Tries < giveUpAfter {
		if s.result.Tries > 0 {
			time.Sleep(tryEvery)
		}
		s.result.Tries++
		for _, command := range commands {
			if last, err = s.ask(command); err != nil {
				return last, err
			}
			s.result.Requests += last.DiscoveryRequests
		}
		if right(last) {
			s.result.Healed = true
			return last, nil
		}
		if s.result.Fork {
			return last, nil // the first lookup after the change is the one that must be right
		}
	}
	return last, nil
}

// times returns the text of an outcome that came n times.
func times(outcome string, n int) string {
	if n == 1 {
		return outcome
	}
	return fmt.Sprintf("%s, %d×", outcome, n)
}
