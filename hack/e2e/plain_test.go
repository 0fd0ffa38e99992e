// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	objects int       // made so far
	moved   time.Time // when the last change of the CRD began
}

// withFresh are the edits of main.go that take fresh.NewManager.
var withFresh = []string{"ctrl.NewManager(", "fresh.NewManager(", "\n\texamplev1 ", "\n\t\"" + ours + "/fresh\"\n\n\texamplev1 "}

// TestPlain shows what happens to an operator as kubebuilder scaffolds it, with no
// option set, when its CRD changes: as it is, with fresh.NewManager in one line, and on the
// fork without a line of code of ours in it.
func TestPlain(t *testing.T) {
	t.Parallel() // most of the time it waits for stock to come right
	in := []string{"-namespaces", "default,kube-system"}
	e := newEnvironment(t, "plain")
	e.builds = slices.Insert(e.builds, 1, built{"fresh", "fresh.NewManager", build(e.ctx, t, "plain", "provider", edits{"main.go": withFresh})})
	e.tell(t,
		story{"S1", "a CRD is deleted and comes back as it was", true, moves([]Kind{widget, widget})},
		story{"S2-cluster", "a CRD comes back cluster-wide, and then as it was", false, moves([]Kind{widget, clusterWidget, widget})},
		story{"S2-namespace", "a CRD comes back namespaced, and then as it was", false, moves([]Kind{clusterWidget, widget, clusterWidget})},
		story{"S2-namespaces", "a CRD comes back cluster-wide, of an operator that watches two namespaces", false, moves([]Kind{widget, clusterWidget, widget}, in...)},
		story{"S2-cluster-namespaces", "the same, the other way round", false, moves([]Kind{clusterWidget, widget, clusterWidget}, in...)},
		story{"S3", "a CRD comes back with another plural", false, moves([]Kind{widget, gizmo})},
		story{"S4", "v2 takes over while v1 is served, v1 is dropped, and comes back", true, operate(otherVersion)},
		story{"S5", "a CRD comes after the operator was started", true, operate(late)},
		story{"S6", "the cluster is restored with a CRD of the other scope", false, operate(restored)},
	)
}

func operate(play func(*operators)) func(*replay) {
	return func(r *replay) {
		r.t.Cleanup(func() { _, _ = r.server.Uninstall(r.ctx, widget), r.server.Uninstall(r.ctx, gizmo) }) // what the replay has left
		play(&operators{replay: r})
	}
}

// moves takes the operators from one kind to the next: each CRD is deleted, and another comes.
func moves(kinds []Kind, args ...string) func(*replay) {
	return operate(func(o *operators) {
		o.begin(kinds[0], args...)
		for i, becomes := range kinds[1:] {
			o.moved = time.Now()
			o.uninstall(kinds[i])
			o.install(becomes)
			o.reconciled(becomes, true)
		}
	})
}

func otherVersion(o *operators) {
	o.begin(widget)
	both := widget
	both.Versions = []string{"v2", "v1"}
	o.install(both) // v2 is stored, and preferred
	o.reconciled(both, true)
	o.moved = time.Now()
	for _, served := range []bool{false, true} {
		must(o.t, o.server.change(o.ctx, widget, func(spec *apiextensionsv1.CustomResourceDefinitionSpec) { spec.Versions[1].Served = served }))
		must(o.t, await(o.ctx, fmt.Sprint("v1 to be served: ", served), func() (bool, error) {
			live, err := o.server.live(widget)
			return (widget.in(live) == 1) == served, err
		}))
	}
	o.reconciled(both, true)
}

func late(o *operators) {
	o.start(func(s *side) []string { return []string{"-class", s.name} })
	o.both("looking for the kind", func(s *side) error {
		return s.await("a request", func() (bool, error) { return s.discoveries(o.begun) > 0, nil })
	})
	o.moved = time.Now()
	o.install(widget)
	o.reconciled(widget, true)
}

func restored(o *operators) {
	o.begin(widget)
	o.moved = time.Now()
	must(o.t, o.server.Empty(o.ctx))
	o.install(clusterWidget)
	o.reconciled(clusterWidget, true)
}

// begin starts operators on a server that serves what they are for.
func (o *operators) begin(kind Kind, args ...string) {
	o.t.Helper()
	o.install(kind)
	o.start(func(s *side) []string { return append([]string{"-class", s.name}, args...) })
	o.reconciled(kind, false)
}

// reconciled makes a new object for each side and waits for it to be reconciled. It counts for the
// result unless the operators have just been started: a side has healed if it has done so each time.
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
	o.both(fmt.Sprintf("object %d of %s", o.objects, kind.crd().Name), func(s *side) error {
		healed, took, err := s.awaitHeal(s.heals || !counts, "the object to be reconciled", func() (bool, error) {
			return slices.ContainsFunc(s.process.lines()[before[s]:], func(l Line) bool { return l.Msg == "Reconciled" && l.Name == s.object(o.objects) }), nil
		})
		if !counts {
			return err
		}
		if s.ours {
			o.checkErrors(s, before[s])
		}
		s.healed = (!s.counted || s.healed) && healed
		s.counted, s.took, s.requests = true, max(s.took, took), s.requests+s.discoveries(made)
		return err
	})
}

func (s *side) object(n int) string { return fmt.Sprintf("%s-%d", s.name, n) }

// checkErrors looks for an error that one of ours has logged again and again since the object was there. Until it
// heals, a program may log one a second.
func (o *operators) checkErrors(s *side, before int) {
	most, seen := 3+int(time.Since(o.moved).Seconds()), map[string]int{}
	for _, line := range s.process.lines()[before:] {
		if line.Level != "error" {
			continue
		}
		text := line.Msg + ": " + line.Error
		if seen[text]++; seen[text] == most+1 {
			o.t.Errorf("%s logs the same error more than %d times, and once a second is enough: %s", s.called, most, text)
		}
	}
}
