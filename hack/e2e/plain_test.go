// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	plainWithin = 5 * time.Second  // the operator must have reconciled a new object
	plainGiveUp = 15 * time.Second // it never will
	plainErrors = 3                // the same one may be logged so often
)

// widget is what the operators are for, in its scopes and under another plural.
var (
	widget        = Kind{Group: "plain.example.com", Kind: "Widget", Versions: []string{"v1"}}
	clusterWidget = Kind{Group: widget.Group, Kind: widget.Kind, Versions: widget.Versions, Cluster: true}
	gizmo         = Kind{Group: widget.Group, Kind: widget.Kind, Versions: widget.Versions, Plural: "gizmos"}
)

// operators are a replay of programs that write a line "Reconciled" for each new object.
type operators struct {
	*replay
	within  time.Duration // ours must have reconciled a new object so soon
	objects int           // made so far
	away    time.Time     // when the CRD was deleted, or the server ended, last
	waited  time.Duration // how long our informers have waited for CRDs
}

// TestPlain shows what happens to an operator as kubebuilder scaffolds it, with no
// option set, when its CRD changes: as it is, with fresh.NewManager in one line, and on the
// fork without a line of code of ours in it.
func TestPlain(t *testing.T) {
	t.Parallel() // most of the time it waits for stock to come right
	in := []string{"-namespaces", "default,kube-system"}
	e := newEnvironment(t, "plain")
	fresh := buildProvider(e.ctx, t, "plain", "main.go", "ctrl.NewManager(", "fresh.NewManager(",
		"\n\texamplev1 ", "\n\t\""+ours+"/fresh\"\n\n\texamplev1 ")
	e.builds = slices.Insert(e.builds, 1, build{"fresh", "fresh.NewManager", fresh})
	e.tell(t,
		story{"S1", "a CRD is deleted and comes back as it was", true, operate(sameShape)},
		story{"S2-cluster", "a CRD comes back cluster-wide, and then as it was", false, otherScope(widget, clusterWidget)},
		story{"S2-namespace", "a CRD comes back namespaced, and then as it was", false, otherScope(clusterWidget, widget)},
		story{"S2-namespaces", "a CRD comes back cluster-wide, of an operator that watches two namespaces", false, otherScope(widget, clusterWidget, in...)},
		story{"S2-cluster-namespaces", "the same, the other way round", false, otherScope(clusterWidget, widget, in...)},
		story{"S3", "a CRD comes back with another plural", false, operate(otherPlural)},
		story{"S4", "v2 takes over while v1 is served, v1 is dropped, and comes back", true, operate(otherVersion)},
		story{"S5", "a CRD comes after the operator was started", true, operate(late)},
		story{"S6", "the cluster is restored with a CRD of the other scope", false, operate(restored)},
	)
}

func operate(play func(*operators)) func(*replay) {
	return func(r *replay) {
		r.t.Cleanup(func() { _ = r.server.Uninstall(r.ctx, widget) }) // unless the replay has done so
		play(&operators{replay: r, within: plainWithin})
	}
}

func sameShape(o *operators) {
	o.begin(widget)
	o.comesBack(widget, widget)
}

func otherScope(was, becomes Kind, args ...string) func(*replay) {
	return operate(func(o *operators) {
		o.begin(was, args...)
		o.comesBack(was, becomes)
		o.comesBack(becomes, was)
	})
}

func otherPlural(o *operators) {
	o.begin(widget)
	o.comesBack(widget, gizmo)
	o.gone(gizmo)
}

func otherVersion(o *operators) {
	o.begin(widget)
	both := widget
	both.Versions = []string{"v2", "v1"}
	o.install(both) // v2 is stored, and preferred
	o.reconciled(both, true)
	served := func(yes bool) func() error {
		return func() error {
			return o.server.change(o.ctx, widget, func(spec *apiextensionsv1.CustomResourceDefinitionSpec) { spec.Versions[1].Served = yes })
		}
	}
	o.change("v1 is dropped", served(false))
	time.Sleep(2 * time.Second)
	o.change("v1 is served again", served(true))
	o.reconciled(both, true)
}

func late(o *operators) {
	o.start()
	time.Sleep(3 * time.Second)
	o.install(widget)
	o.within = 10*time.Second + plainWithin // controller-runtime looks for a kind that was not there every 10 seconds
	o.reconciled(widget, true)
}

func restored(o *operators) {
	o.begin(widget)
	o.away = time.Now()
	o.change("API server and etcd are killed, and start empty", func() error { return o.server.Empty(o.ctx) })
	o.install(clusterWidget)
	o.reconciled(clusterWidget, true)
}

// begin starts operators on a server that serves what they are for.
func (o *operators) begin(kind Kind, args ...string) {
	o.t.Helper()
	o.install(kind)
	o.start(args...)
	o.reconciled(kind, false)
}

// start starts the operator of each side.
func (o *operators) start(args ...string) {
	o.t.Helper()
	o.startOnGateways(func(s *side) []string { return append([]string{"-class", s.name}, args...) })
}

// comesBack deletes a CRD, and brings the same or another one.
func (o *operators) comesBack(was, becomes Kind) {
	o.t.Helper()
	o.gone(was)
	o.install(becomes)
	o.reconciled(becomes, true)
}

func (o *operators) gone(kind Kind) {
	o.t.Helper()
	o.away = time.Now()
	o.uninstall(kind)
}

// reconciled makes a new object for each side and waits for it to be reconciled.
// The result of a replay is that of the slowest such step that counts.
func (o *operators) reconciled(kind Kind, counts bool) {
	o.t.Helper()
	o.objects++
	before := map[*side]int{}
	for _, s := range o.sides {
		before[s] = len(s.process.lines())
		must(o.t, o.server.Make(o.ctx, kind, s.object(o.objects), func(object *unstructured.Unstructured) {
			object.Object["spec"] = map[string]any{"size": 1, "class": s.name}
		}))
	}
	made := time.Now()
	within := o.patience(made)
	giveUp := within + plainGiveUp - plainWithin
	if !counts {
		giveUp = time.Minute // the operators start
	}
	o.both("a new object", func(s *side) (Step, error) {
		step := Step{Outcome: "not reconciled"}
		for time.Since(made) < giveUp && !step.OK {
			if slices.ContainsFunc(s.process.lines()[before[s]:], func(l Line) bool { return l.Msg == "Reconciled" && l.Name == s.object(o.objects) }) {
				step.OK, step.Outcome = true, fmt.Sprintf("reconciled after %.1f s", time.Since(made).Seconds())
			}
			time.Sleep(20 * time.Millisecond)
		}
		step.Requests = s.discoveries(made)
		if !counts {
			if !step.OK {
				return step, errors.New("the operator does not work to begin with")
			}
			return step, nil
		}
		took := time.Since(made)
		if s.result.Ours {
			o.waited += took
			o.checkErrors(s, before[s], within)
		}
		s.count(step, took, took <= within)
		return step, nil
	})
}

func (s *side) object(n int) string { return fmt.Sprintf("%s-%d", s.name, n) }

// patience returns how soon ours must have reconciled an object that was made now.
func (o *operators) patience(made time.Time) time.Duration {
	if o.away.IsZero() { // until now: a server that says that it serves a kind may not yet take an object
		return o.within
	}
	// The reflector's backoff doubles each wait, from 0.8 s, and makes it longer by up
	// to as much again: it is at most twice what it has waited before, and 1.6 s. It
	// begins anew only after two minutes (client-go, tools/cache/reflector.go).
	o.waited += made.Sub(o.away)
	o.away = time.Time{}
	return max(o.within, 2*o.waited+1600*time.Millisecond)
}

// count adds a step to the result of a replay. For stock it records whether it
// heals at all; ours have to heal in time.
func (s *side) count(step Step, took time.Duration, inTime bool) {
	first := s.result.Tries == 0
	s.result.Healed = (first || s.result.Healed) && step.OK && (inTime || !s.result.Ours)
	s.result.Millis = max(s.result.Millis, float64(took.Milliseconds()))
	s.result.Requests += step.Requests
	s.result.Tries = 1
}

// checkErrors looks for an error that one of ours has logged again and again since the
// object was there. Until it heals, a program may log one a second.
func (o *operators) checkErrors(s *side, before int, within time.Duration) {
	most := plainErrors + int((within - plainWithin).Seconds())
	seen := map[string]int{}
	for _, line := range s.process.lines()[before:] {
		if line.Level != "error" {
			continue
		}
		text := line.Msg + ": " + line.Error
		if seen[text]++; seen[text] == most+1 {
			o.t.Errorf("%s logs the same error more than %d times: %s", s.result.Build, most, text)
		}
	}
}

const (
	maxAge     = 30 * time.Second // of a mapper without options
	missGroups = 4
)

// TestUnmanaged is about programs with a mapper of their own, in which nobody is
// told of a 404 and nobody starts anything.
func TestUnmanaged(t *testing.T) {
	t.Parallel() // most of the time it waits for MaxAge to pass
	newEnvironment(t, "unmanaged").tell(t,
		story{"S7", "a kind comes back cluster-wide under a mapper and a dynamic client", false, unmanaged},
		story{"NotFound", "1,000 Gets of objects that do not exist, of 4 groups, in 6 s", true, misses(1000, 6*time.Second)},
		story{"NotFound-minute", "10,000 Gets of objects that do not exist, of 4 groups, in a minute", true, misses(10000, time.Minute)}, // by night
	)
}

func unmanaged(r *replay) {
	gadget := r.kind("Gadget", "v1")
	o := &operators{replay: r, within: maxAge + plainWithin}
	o.install(gadget)
	o.startOnGateways(func(s *side) []string { return []string{"serve", "-kind", "Gadget.v1." + r.group, "-class", s.name} })
	o.reconciled(gadget, false)
	o.uninstall(gadget) // no informer waits for it
	gadget.Cluster = true
	o.install(gadget)
	o.reconciled(gadget, true)
}

// misses counts the requests for objects that do not exist. Beyond themselves they may cost one
// read of each group, and the two requests of each MaxAge that a mapper in use makes in any case.
func misses(gets int, over time.Duration) func(*replay) {
	return func(r *replay) {
		r.startOnGateways(func(*side) []string { return []string{"miss", "-gets", fmt.Sprint(gets), "-over", over.String()} })
		r.both("gets of what is absent", func(s *side) (Step, error) { return s.misses(gets) })
	}
}

func (s *side) misses(gets int) (Step, error) {
	if ready, err := s.process.stdout.ReadString('\n'); ready != "ready\n" {
		return Step{}, fmt.Errorf("printed %q and not that it is ready: %w", ready, err)
	}
	begun := time.Now()
	if _, err := s.process.ask(""); err != nil { // it answers when it is done
		return Step{}, err
	}
	all := s.gateway.Calls(begun, func(Call) bool { return true })
	beyond := s.discoveries(begun)
	most := 2*missGroups + 2*(1+int(time.Since(begun)/maxAge)) // a slow machine takes longer than it was asked to
	s.result.Healed = len(all)-beyond == gets && beyond <= most
	s.result.Tries, s.result.Requests, s.result.Millis = 1, beyond, millisSince(begun)
	return Step{Outcome: fmt.Sprintf("%d requests", len(all)), OK: s.result.Healed, Requests: beyond}, nil
}
