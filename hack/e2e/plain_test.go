// SPDX-License-Identifier: Apache-2.0

// Package e2e replays, on a real API server, the failures that controllers on
// stock controller-runtime have, and shows the same programs healed on the fork.
//
// It reads files of other modules, which the go command's test cache does not know of: run it with -count=1.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// replays are those that have ended.
var replays []*replay

// TestMain writes the table of the replays to FILE.table, if FRESHMAPPER_E2E_RESULTS names FILE.
func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // or controller-runtime complains on stderr that nobody did
	code := m.Run()
	if file := os.Getenv("FRESHMAPPER_E2E_RESULTS"); file != "" && len(replays) > 0 {
		if err := os.WriteFile(file+".table", []byte(table()), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "the replays' results:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// table has a line for each replay, and a column for each build.
func table() string {
	text := fmt.Sprintf("%-21s %-28s %-28s %-28s as expected\n", "time to recover", "controller-runtime "+tree.Newest(), "fresh.NewManager", "patched "+tree.Newest())
	for _, r := range replays {
		text += fmt.Sprintf("%-21s ", r.name)
		expected := true
		for _, s := range r.sides {
			text += fmt.Sprintf("%-28s ", s.verdict())
			expected = expected && s.healed == s.heals
		}
		text += map[bool]string{true: "yes", false: "NO "}[expected] + "   " + r.title + "\n"
	}
	return text
}

// widget is what the operators are for, in its scopes and under another plural.
var (
	widget        = Kind{Group: "plain.example.com", Kind: "Widget", Versions: []string{"v1"}}
	clusterWidget = Kind{Group: widget.Group, Kind: widget.Kind, Versions: widget.Versions, Cluster: true}
	gizmo         = Kind{Group: widget.Group, Kind: widget.Kind, Versions: widget.Versions, Plural: "gizmos"}
)

// story is what a replay plays.
type story struct {
	name, title string
	stockHeals  bool
	play        func(*replay)
}

// replay is one story, told to all builds of the operator at the same time. They write a line "Reconciled" for each
// new object.
type replay struct {
	story
	t       *testing.T
	ctx     context.Context // ends when the test is interrupted, so that it still cleans up
	server  *Server
	begun   time.Time
	sides   []*side   // stock, and ours, which have to heal
	objects int       // made so far
	moved   time.Time // when the last change of the CRD began
}

// side is one of the builds in a replay, and how it fared.
type side struct {
	name    string // stock, fresh or fork; what is for one side alone has it in its name
	binary  string
	heals   bool // it has to; stock may not
	process *Process
	gateway *Gateway // to the server

	counted  bool // there was a step that counts
	healed   bool
	requests int           // discovery requests in such steps
	took     time.Duration // from the change to the right answer, or until given up: the longest
}

// verdict is "never", or when the side healed, and at what price.
func (s *side) verdict() string {
	price := fmt.Sprintf("%.1f s, %d requests", s.took.Seconds(), s.requests)
	if !s.healed {
		return "never: " + price
	}
	return price
}

// discoveries counts what was asked of the server since then about what it serves.
func (s *side) discoveries(since time.Time) int { return len(s.gateway.Calls(since, Call.isDiscovery)) }

// withFresh are the edits of main.go that take fresh.NewManager.
var withFresh = []string{"ctrl.NewManager(", "fresh.NewManager(", "\n\texamplev1 ", "\n\t\"" + ours + "/fresh\"\n\n\texamplev1 "}

// TestPlain shows what happens to an operator as kubebuilder scaffolds it, with no option set, when its CRD changes: as
// it is, with fresh.NewManager in one line, and on the fork without a line of code of ours in it.
func TestPlain(t *testing.T) {
	t.Parallel() // most of the time it waits for stock to come right
	in := []string{"-namespaces", "default,kube-system"}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	t.Cleanup(stop)
	signal.Ignore(syscall.SIGPIPE) // a reader of our output that is interrupted too must not end us half-way
	binaries := map[string]string{
		"stock": build(ctx, t, "plain", "stock", nil),
		"fresh": build(ctx, t, "plain", "provider", edits{"main.go": withFresh}),
		"fork":  build(ctx, t, "plain", "fork", nil),
	}
	server, _ := startServer(ctx, t)
	for _, story := range []story{
		{"S1", "a CRD is deleted and comes back as it was", true, moves([]Kind{widget, widget})},
		{"S2-cluster", "a CRD comes back cluster-wide, and then as it was", false, moves([]Kind{widget, clusterWidget, widget})},
		{"S2-namespace", "a CRD comes back namespaced, and then as it was", false, moves([]Kind{clusterWidget, widget, clusterWidget})},
		{"S2-namespaces", "a CRD comes back cluster-wide, of an operator that watches two namespaces", false, moves([]Kind{widget, clusterWidget, widget}, in...)},
		{"S2-cluster-namespaces", "the same, the other way round", false, moves([]Kind{clusterWidget, widget, clusterWidget}, in...)},
		{"S3", "a CRD comes back with another plural", false, moves([]Kind{widget, gizmo})},
		{"S4", "v2 takes over while v1 is served, v1 is dropped, and comes back", true, otherVersion},
		{"S5", "a CRD comes after the operator was started", true, late},
		{"S6", "the cluster is restored with a CRD of the other scope", false, restored},
	} {
		t.Run(story.name, func(t *testing.T) {
			r := &replay{story: story, t: t, ctx: ctx, server: server, begun: time.Now()}
			for _, name := range []string{"stock", "fresh", "fork"} {
				r.sides = append(r.sides, &side{name: name, binary: binaries[name], heals: name != "stock" || story.stockHeals, gateway: newGateway(t, server)})
			}
			t.Cleanup(func() {
				replays = append(replays, r)
				for _, kind := range []Kind{widget, gizmo} {
					_ = server.Uninstall(ctx, kind) // what the replay has left
				}
			})
			story.play(r)
			r.judge()
		})
	}
}

// judge compares what all sides did with what the replay has to show.
func (r *replay) judge() {
	r.t.Helper()
	for _, s := range r.sides {
		r.t.Logf("%-6s %s", s.name, s.verdict())
		switch {
		case s.healed == s.heals:
		case s.heals:
			r.t.Errorf("%s does not heal %s (%s): %s", s.name, r.name, r.title, s.verdict())
		default:
			r.t.Errorf("stock no longer fails %s (%s): it came right in %s. If this is a newer release, say so in the documentation and change what is expected here",
				r.name, r.title, s.verdict())
		}
	}
}

// moves takes the operators from one kind to the next: each CRD is deleted, and another comes.
func moves(kinds []Kind, args ...string) func(*replay) {
	return func(r *replay) {
		r.begin(kinds[0], args...)
		for i, becomes := range kinds[1:] {
			r.moved = time.Now()
			must(r.t, r.server.Uninstall(r.ctx, kinds[i]), r.server.Install(r.ctx, becomes))
			r.reconciled(becomes, true)
		}
	}
}

func otherVersion(r *replay) {
	r.begin(widget)
	both := widget
	both.Versions = []string{"v2", "v1"}
	must(r.t, r.server.Install(r.ctx, both)) // v2 is stored, and preferred
	r.reconciled(both, true)
	r.moved = time.Now()
	for _, served := range []bool{false, true} {
		must(r.t, r.server.change(r.ctx, widget, func(spec *apiextensionsv1.CustomResourceDefinitionSpec) { spec.Versions[1].Served = served }))
		must(r.t, await(r.ctx, fmt.Sprint("v1 to be served: ", served), func() (bool, error) {
			live, err := r.server.live(widget)
			return (widget.in(live) == 1) == served, err
		}))
	}
	r.reconciled(both, true)
}

func late(r *replay) {
	r.start(func(s *side) []string { return []string{"-class", s.name} })
	r.both("looking for the kind", func(s *side) error {
		return await(r.ctx, s.name+": a request", func() (bool, error) { return s.discoveries(r.begun) > 0, nil })
	})
	r.moved = time.Now()
	must(r.t, r.server.Install(r.ctx, widget))
	r.reconciled(widget, true)
}

func restored(r *replay) {
	r.begin(widget)
	r.moved = time.Now()
	must(r.t, r.server.Empty(r.ctx), r.server.Install(r.ctx, clusterWidget))
	r.reconciled(clusterWidget, true)
}

// begin starts operators on a server that serves what they are for.
func (r *replay) begin(kind Kind, args ...string) {
	r.t.Helper()
	must(r.t, r.server.Install(r.ctx, kind))
	r.start(func(s *side) []string { return append([]string{"-class", s.name}, args...) })
	r.reconciled(kind, false)
}

const giveUpAfter = 15 * time.Second // a side that need not heal: then it is plain that it does not

// reconciled makes a new object for each side and waits for it to be reconciled. It counts for the
// result unless the operators have just been started: a side has healed if it has done so each time.
func (r *replay) reconciled(kind Kind, counts bool) {
	r.t.Helper()
	r.objects++
	before := map[*side]int{}
	for _, s := range r.sides {
		before[s] = len(s.process.lines())
		must(r.t, r.server.Make(r.ctx, kind, s.object(r.objects), func(object *unstructured.Unstructured) {
			object.Object["spec"] = map[string]any{"size": 1, "class": s.name}
		}))
	}
	made := time.Now()
	r.both(fmt.Sprintf("object %d of %s", r.objects, kind.crd().Name), func(s *side) error {
		healed := false
		err := await(r.ctx, s.name+": the object to be reconciled", func() (bool, error) {
			healed = slices.ContainsFunc(s.process.lines()[before[s]:], func(l Line) bool { return l.Msg == "Reconciled" && l.Name == s.object(r.objects) })
			return healed || counts && !s.heals && time.Since(made) > giveUpAfter, nil
		})
		if !counts {
			return err
		}
		if s.name != "stock" {
			r.checkErrors(s, before[s])
		}
		s.healed = (!s.counted || s.healed) && healed
		s.counted, s.took, s.requests = true, max(s.took, time.Since(made)), s.requests+s.discoveries(made)
		return err
	})
}

func (s *side) object(n int) string { return fmt.Sprintf("%s-%d", s.name, n) }

// checkErrors looks for an error that one of ours has logged again and again since the object was there. Until it
// heals, a program may log one a second.
func (r *replay) checkErrors(s *side, before int) {
	most, seen := 3+int(time.Since(r.moved).Seconds()), map[string]int{}
	for _, line := range s.process.lines()[before:] {
		if line.Level != "error" {
			continue
		}
		text := line.Msg + ": " + line.Error
		if seen[text]++; seen[text] == most+1 {
			r.t.Errorf("%s logs the same error more than %d times, and once a second is enough: %s", s.name, most, text)
		}
	}
}

// start starts the program of each side on a gateway of its own, which counts its requests.
func (r *replay) start(args func(*side) []string) {
	r.t.Helper()
	for _, s := range r.sides {
		file := filepath.Join(r.t.TempDir(), "kubeconfig")
		must(r.t, os.WriteFile(file, s.gateway.kubeconfig(), 0o600))
		s.process = start(r.ctx, r.t, s.binary, file, args(s)...)
	}
}

// both does something with each side at the same time, so that none sees a
// server that is younger or older than the other's.
func (r *replay) both(what string, do func(*side) error) {
	r.t.Helper()
	var group sync.WaitGroup
	errs := make([]error, len(r.sides))
	for i, s := range r.sides {
		group.Go(func() {
			if err := do(s); err != nil {
				errs[i] = fmt.Errorf("%s, %s: %w", s.name, what, err)
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		r.t.Fatalf("%s (%s): %v", r.name, r.title, err)
	}
}
