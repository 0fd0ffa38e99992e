// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

const (
	plainWithin = 5 * time.Second  // the operator must have reconciled a new object
	plainGiveUp = 15 * time.Second // it never will
	plainErrors = 3                // the same one may be logged so often
)

// plain is an environment of operators that know nothing of this project.
type plain struct {
	*environment
	gateways map[*side]*Gateway
	objects  int       // made so far
	away     time.Time // when the CRD was deleted, or the server ended, last

	waited time.Duration // how long the fork's informers have waited for CRDs in this replay
}

// widget is what the operators are for.
var widget = Kind{Group: "plain.example.com", Kind: "Widget", Versions: []string{"v1"}, Status: true}

var clusterWidget = Kind{Group: widget.Group, Kind: widget.Kind, Versions: widget.Versions, Status: true, Cluster: true}

// TestPlain shows what happens to an operator as kubebuilder scaffolds it, with no
// option set and no line of code of ours in it, when its CRD changes.
func TestPlain(t *testing.T) {
	t.Parallel() // most of the time it waits for stock to come right
	p := &plain{environment: newEnvironment(t, "plain"), gateways: map[*side]*Gateway{}}
	for _, test := range []struct {
		name string
		run  func(*plain, *testing.T)
	}{
		{"S1", (*plain).sameShape},
		{"S2-cluster", (*plain).becomesClusterWide},
		{"S2-namespace", (*plain).becomesNamespaced},
		{"S2-namespaces", (*plain).becomesClusterWideInNamespaces},
		{"S2-cluster-namespaces", (*plain).becomesNamespacedInNamespaces},
		{"S3", (*plain).otherPlural},
		{"S4", (*plain).otherVersion},
		{"S5", (*plain).late},
		{"S6", (*plain).restored},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(p, t) })
	}
}

func (p *plain) sameShape(t *testing.T) {
	r := p.begin(t, "S1", "a CRD is deleted and comes back as it was", widget)
	p.gone(r, widget, "widgets")
	p.served(r, widget, "widgets")
	p.reconciled(r, widget, "widgets", true)
	r.judge(true)
}

func (p *plain) becomesClusterWide(t *testing.T) {
	p.otherScope(t, "S2-cluster", "a CRD comes back cluster-wide, and then as it was", widget, clusterWidget)
}

func (p *plain) becomesNamespaced(t *testing.T) {
	p.otherScope(t, "S2-namespace", "a CRD comes back namespaced, and then as it was", clusterWidget, widget)
}

func (p *plain) becomesClusterWideInNamespaces(t *testing.T) {
	p.otherScope(t, "S2-ns", "the same, of an operator that watches two namespaces", widget, clusterWidget, "-namespaces", "default,kube-system")
}

func (p *plain) becomesNamespacedInNamespaces(t *testing.T) {
	p.otherScope(t, "S2-cl-ns", "the same, the other way round", clusterWidget, widget, "-namespaces", "default,kube-system")
}

func (p *plain) otherScope(t *testing.T, name, title string, was, becomes Kind, args ...string) {
	r := p.begin(t, name, title, was, args...)
	p.gone(r, was, "widgets")
	p.served(r, becomes, "widgets")
	p.reconciled(r, becomes, "widgets", true)
	p.gone(r, becomes, "widgets")
	p.served(r, was, "widgets")
	p.reconciled(r, was, "widgets", true)
	r.judge(false)
}

func (p *plain) otherPlural(t *testing.T) {
	r := p.begin(t, "S3", "a CRD comes back with another plural", widget)
	p.gone(r, widget, "widgets")
	p.served(r, widget, "gizmos")
	p.reconciled(r, widget, "gizmos", true)
	p.gone(r, widget, "gizmos")
	r.judge(false)
}

func (p *plain) otherVersion(t *testing.T) {
	r := p.begin(t, "S4", "v2 takes over while v1 is served, v1 is dropped, and comes back", widget)
	both := widget
	both.Versions = []string{"v2", "v1"}
	p.change(r, "v2 is stored and preferred, v1 is served", func(ctx context.Context) error { return p.server.Install(ctx, both) })
	p.reconciled(r, both, "widgets", true)
	p.change(r, "v1 is dropped", func(ctx context.Context) error { return p.server.SetServed(ctx, widget, "v1", false) })
	time.Sleep(2 * time.Second)
	p.change(r, "v1 is served again", func(ctx context.Context) error { return p.server.SetServed(ctx, widget, "v1", true) })
	p.reconciled(r, both, "widgets", true)
	p.gone(r, widget, "widgets")
	r.judge(true)
}

func (p *plain) late(t *testing.T) {
	r := p.replay(t, "S5", "a CRD comes after the operator was started")
	p.start(r)
	time.Sleep(3 * time.Second)
	p.served(r, widget, "widgets")
	// controller-runtime looks for a kind that was not there every 10 seconds
	p.await(r, widget, "widgets", true, limits{10*time.Second + plainWithin, 10*time.Second + plainGiveUp})
	r.judge(true)
}

func (p *plain) restored(t *testing.T) {
	r := p.begin(t, "S6", "the cluster is restored with a CRD of the other scope", widget)
	p.away = time.Now()
	r.change("API server and etcd are killed, and start empty", func() error { return p.server.Empty(p.ctx) })
	p.served(r, clusterWidget, "widgets")
	p.reconciled(r, clusterWidget, "widgets", true)
	r.judge(false)
}

// begin starts operators on a server that serves what they are for.
func (p *plain) begin(t *testing.T, name, title string, kind Kind, args ...string) *replay {
	r := p.replay(t, name, title)
	p.away, p.waited = time.Time{}, 0
	p.served(r, kind, "widgets")
	p.start(r, args...)
	p.reconciled(r, kind, "widgets", false)
	return r
}

// start starts the operator of each side, on a gateway of its own. At the end of
// the test it deletes the operator's kind.
func (p *plain) start(r *replay, args ...string) {
	r.t.Helper()
	r.t.Cleanup(func() { _ = p.server.Uninstall(p.ctx, widget) }) // unless the replay has done so
	p.startWith(r, func(s *side) []string { return append([]string{"-class", s.class()}, args...) })
}

// startWith starts the program of each side on a gateway of its own.
func (p *plain) startWith(r *replay, args func(*side) []string) {
	r.t.Helper()
	for _, s := range r.sides {
		p.gateways[s] = newGateway(r.t, p.server)
		file := filepath.Join(r.t.TempDir(), "kubeconfig")
		must(r.t, os.WriteFile(file, p.gateways[s].kubeconfig(), 0o600))
		s.process = start(p.ctx, r.t, s.binary, file, args(s)...)
	}
}

func (p *plain) change(r *replay, what string, do func(context.Context) error) {
	r.t.Helper()
	r.change(what, func() error { return do(p.ctx) })
}

func (p *plain) served(r *replay, kind Kind, plural string) {
	r.t.Helper()
	scope := "namespaced"
	if kind.Cluster {
		scope = "cluster-wide"
	}
	p.change(r, fmt.Sprintf("CRD %s comes, %s", plural, scope), func(ctx context.Context) error {
		return errors.Join(p.server.Install(ctx, called(kind, plural)), p.server.AwaitServed(ctx, kind))
	})
}

func (p *plain) gone(r *replay, kind Kind, plural string) {
	r.t.Helper()
	p.away = time.Now()
	p.change(r, fmt.Sprintf("CRD %s is deleted", plural), func(ctx context.Context) error {
		return errors.Join(p.server.Uninstall(ctx, called(kind, plural)), p.server.AwaitGone(ctx, kind))
	})
}

// limits are for how long an object may take.
type limits struct{ within, giveUp time.Duration }

// reconciled makes a new object for each side and waits for it to be reconciled.
// The result of a replay is that of the slowest such step that counts.
func (p *plain) reconciled(r *replay, kind Kind, plural string, counts bool) {
	r.t.Helper()
	p.await(r, kind, plural, counts, limits{plainWithin, plainGiveUp})
}

func (p *plain) await(r *replay, kind Kind, plural string, counts bool, limit limits) {
	r.t.Helper()
	p.objects++
	before, names := map[*side]int{}, map[*side]string{}
	for _, s := range r.sides {
		before[s], names[s] = len(s.process.lines()), fmt.Sprintf("%s-%d", s.class(), p.objects)
		must(r.t, p.server.Make(p.ctx, called(kind, plural), names[s], s.class()))
	}
	made := time.Now()
	if !p.away.IsZero() { // until now: a server that says that it serves a kind may not yet take an object
		// The reflector's backoff doubles each wait, from 0.8 s, and makes it longer by up
		// to as much again: it is at most twice what it has waited before, and 1.6 s. It
		// begins anew only after two minutes (client-go, tools/cache/reflector.go).
		p.waited += made.Sub(p.away)
		limit.within = max(limit.within, 2*p.waited+1600*time.Millisecond)
		limit.giveUp = max(limit.giveUp, limit.within)
		p.away = time.Time{}
	}
	if !counts {
		limit.giveUp = time.Minute // the operators start
	}
	r.both("a new object", func(s *side) (Step, error) {
		step := Step{Outcome: "not reconciled"}
		for time.Since(made) < limit.giveUp && !step.OK {
			if slices.ContainsFunc(s.process.lines()[before[s]:], func(l Line) bool { return l.Msg == "Reconciled" && l.Name == names[s] }) {
				step.OK, step.Outcome = true, fmt.Sprintf("reconciled after %.1f s", time.Since(made).Seconds())
			}
			time.Sleep(20 * time.Millisecond)
		}
		step.Requests = len(p.gateways[s].Calls(made, Call.isDiscovery))
		if !step.OK && !counts {
			return step, errors.New("the operator does not work to begin with")
		}
		if counts {
			took := time.Since(made)
			if s.result.Fork {
				p.waited += took
			}
			s.count(step, took, took <= limit.within)
			p.checkErrors(r, s, before[s], limit)
		}
		return step, nil
	})
}

// count adds a step to the result of a replay. For stock it records whether it
// heals at all; the fork has to heal in time.
func (s *side) count(step Step, took time.Duration, inTime bool) {
	first := s.result.Tries == 0
	s.result.Healed = (first || s.result.Healed) && step.OK && (inTime || !s.result.Fork)
	s.result.Millis = max(s.result.Millis, float64(took.Milliseconds()))
	s.result.Requests += step.Requests
	s.result.Tries = 1
}

// checkErrors looks for an error that the fork has logged again and again since the
// object was there. Until it heals, a program may log one a second.
func (p *plain) checkErrors(r *replay, s *side, before int, limit limits) {
	most := plainErrors + int((limit.within - plainWithin).Seconds())
	seen := map[string]int{}
	for _, line := range s.process.lines()[before:] {
		if line.Level != "error" || !s.result.Fork {
			continue
		}
		text := line.Msg + ": " + line.Error
		if seen[text]++; seen[text] == most+1 {
			r.t.Errorf("%s logs the same error more than %d times: %s", s.result.Build, most, text)
		}
	}
}

func (s *side) class() string {
	if s.result.Fork {
		return "fork"
	}
	return "stock"
}

const (
	maxAge          = 30 * time.Second // of a mapper without options
	unmanagedWithin = maxAge + 5*time.Second
	unmanagedGiveUp = maxAge + 15*time.Second
	missGroups      = 4
)

// missMost bounds what the gets may cost beyond themselves if they took this long:
// one read of each group, and the two requests of each MaxAge that a mapper in use
// makes in any case. A slow machine takes longer than the replay asks for.
func missMost(took time.Duration) int {
	return 2*missGroups + 2*(1+int(took/maxAge))
}

// gadget is what the programs work with.
var gadget = Kind{Group: "unmanaged.example.com", Kind: "Gadget", Versions: []string{"v1"}}

// TestUnmanaged is about programs with a mapper of their own, in which nobody is
// told of a 404 and nobody starts anything.
func TestUnmanaged(t *testing.T) {
	t.Parallel() // most of the time it waits for MaxAge to pass
	p := &plain{environment: newEnvironment(t, "unmanaged"), gateways: map[*side]*Gateway{}}
	t.Run("S7", p.unmanaged)
	t.Run("NotFound", func(t *testing.T) { p.misses(t, "NotFound", 1000, 6*time.Second) })
	t.Run("NotFound-minute", func(t *testing.T) { p.misses(t, "NotFound-minute", 10000, time.Minute) }) // by night
}

func (p *plain) unmanaged(t *testing.T) {
	r := p.replay(t, "S7", "a kind comes back cluster-wide under a mapper and a dynamic client")
	p.served(r, gadget, "gadgets")
	p.startWith(r, func(s *side) []string {
		return []string{"serve", "-kind", "Gadget.v1." + gadget.Group, "-class", s.class()}
	})
	p.marked(r, gadget, false)
	p.gone(r, gadget, "gadgets")
	cluster := gadget
	cluster.Cluster = true
	p.served(r, cluster, "gadgets")
	p.marked(r, cluster, true)
	p.gone(r, cluster, "gadgets")
	r.judge(false)
}

// marked is reconciled with the time that a mapper without options may take.
func (p *plain) marked(r *replay, kind Kind, counts bool) {
	r.t.Helper()
	p.await(r, kind, "gadgets", counts, limits{within: unmanagedWithin, giveUp: unmanagedGiveUp})
}

// misses counts the requests for objects that do not exist.
func (p *plain) misses(t *testing.T, name string, gets int, over time.Duration) {
	r := p.replay(t, name, fmt.Sprintf("%d Gets of objects that do not exist, of %d groups, in %v", gets, missGroups, over))
	p.startWith(r, func(*side) []string {
		return []string{"miss", "-gets", fmt.Sprint(gets), "-over", over.String()}
	})
	for _, s := range r.sides {
		ready, err := s.process.stdout.ReadString('\n')
		if ready != "ready\n" {
			t.Fatalf("%s: printed %q and not that it is ready: %v", s.result.Build, ready, err)
		}
	}
	r.both("gets of what is absent", func(s *side) (Step, error) {
		begun := time.Now()
		if _, err := s.process.ask(""); err != nil { // it answers when it is done
			return Step{}, err
		}
		all := p.gateways[s].Calls(begun, func(Call) bool { return true })
		beyond := len(p.gateways[s].Calls(begun, Call.isDiscovery))
		s.result.Healed = len(all)-beyond == gets && beyond <= missMost(time.Since(begun))
		s.result.Tries, s.result.Requests, s.result.Millis = 1, beyond, millisSince(begun)
		return Step{Outcome: fmt.Sprintf("%d requests", len(all)), OK: s.result.Healed, Requests: beyond}, nil
	})
	r.judge(true)
}
