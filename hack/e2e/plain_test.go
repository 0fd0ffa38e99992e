// SPDX-License-Identifier: Apache-2.0

// Package e2e replays, on a real API server, the failures that controllers on
// stock controller-runtime have, and shows the same programs healed on the fork.
//
// It reads files of other modules, which the go command's test cache does not know of: run it with -count=1.
package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// replays are those that have ended.
var replays struct {
	mu  sync.Mutex
	all []*replay
}

// TestMain writes the table of the replays to FILE.table, if FRESHMAPPER_E2E_RESULTS names FILE.
func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // or controller-runtime complains on stderr that nobody did
	code := m.Run()
	for _, binary := range plainBuilds.binaries {
		_ = os.RemoveAll(filepath.Dir(binary))
	}
	if file := os.Getenv("FRESHMAPPER_E2E_RESULTS"); file != "" && len(replays.all) > 0 {
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
	slices.SortFunc(replays.all, func(a, b *replay) int { return strings.Compare(a.name, b.name) })
	for _, r := range replays.all {
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
	lived    time.Duration // until it has exited
}

// verdict is "never", or when the side healed, and at what price.
func (s *side) verdict() string {
	if s.process != nil && s.process.hasEnded() && s.process.mayExit {
		return fmt.Sprintf("never: it exits after %.0f s", s.lived.Seconds())
	}
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
	binaries := builtPlain(ctx, t)
	server, _ := startServer(ctx, t)
	for _, story := range []story{
		{"S1", "a CRD is deleted and comes back as it was", true, moves([]Kind{widget, widget})},
		{"S2-cluster", "a CRD comes back cluster-scoped, and then as it was", false, moves([]Kind{widget, clusterWidget, widget})},
		{"S2-namespace", "a CRD comes back namespaced, and then as it was", false, moves([]Kind{clusterWidget, widget, clusterWidget})},
		{"S2-namespaces", "a CRD comes back cluster-scoped, of an operator that watches two namespaces", false, moves([]Kind{widget, clusterWidget, widget}, in...)},
		{"S2-cluster-namespaces", "the same, the other way round", false, moves([]Kind{clusterWidget, widget, clusterWidget}, in...)},
		{"S3", "a CRD comes back with another plural", false, moves([]Kind{widget, gizmo})},
		{"S4", "v2 takes over while v1 is served, v1 is dropped, and comes back", true, otherVersion},
		{"S5", "a CRD comes after the operator was started", true, late},
		{"S6", "the cluster is restored with a CRD of the other scope", false, restored},
	} {
		t.Run(story.name, func(t *testing.T) { replayStory(ctx, t, story, server, binaries) })
	}
}

// TestPlainOptional shows what happens to the same operator if it has controllers for a CRD that is not installed when it
// starts. It has a server of its own, because most of the time all wait until the CRD is noticed.
func TestPlainOptional(t *testing.T) {
	t.Parallel()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	t.Cleanup(stop)
	binaries := builtPlain(ctx, t)
	server, _ := startServer(ctx, t)
	replayStory(ctx, t, story{"S7", "For, Owns, Watches and IndexField of a CRD that is not installed", false, optional}, server, binaries)
}

// plainBuilds are the builds of the operator, which several tests share.
var plainBuilds struct {
	mu       sync.Mutex
	binaries map[string]string
}

// builtPlain returns the builds of the operator. They are made once.
func builtPlain(ctx context.Context, t *testing.T) map[string]string {
	t.Helper()
	plainBuilds.mu.Lock()
	defer plainBuilds.mu.Unlock()
	if plainBuilds.binaries == nil {
		folder, err := os.MkdirTemp("", "plain")
		must(t, err)
		binaries := map[string]string{}
		for side, built := range map[string]string{
			"stock": build(ctx, t, "plain", "stock", nil),
			"fresh": build(ctx, t, "plain", "provider", edits{"main.go": withFresh}),
			"fork":  build(ctx, t, "plain", "fork", nil),
		} {
			binaries[side] = filepath.Join(folder, side)
			must(t, os.Rename(built, binaries[side])) // the test's own folder ends with it
		}
		plainBuilds.binaries = binaries
	}
	return plainBuilds.binaries
}

func replayStory(ctx context.Context, t *testing.T, story story, server *Server, binaries map[string]string) {
	t.Helper()
	r := &replay{story: story, t: t, ctx: ctx, server: server, begun: time.Now()}
	for _, name := range []string{"stock", "fresh", "fork"} {
		r.sides = append(r.sides, &side{name: name, binary: binaries[name], heals: name != "stock" || story.stockHeals, gateway: newGateway(t, server)})
	}
	t.Cleanup(func() {
		replays.mu.Lock()
		replays.all = append(replays.all, r)
		replays.mu.Unlock()
		for _, kind := range []Kind{widget, gizmo} {
			_ = server.Uninstall(ctx, kind) // what the replay has left
		}
	})
	story.play(r)
	r.judge()
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

// optional starts operators that have controllers for ConfigMaps and for Widgets, and own, watch and index Widgets, whose
// CRD is not installed. Ours name the kind in ByObject. With stock, which needs the kind for that, they do not.
func optional(r *replay) {
	const syncTimeout = 10 * time.Second // 2 minutes, unless a program sets it
	r.start(func(s *side) []string {
		args := []string{"-class", s.name, "-owners"}
		if s.name == "stock" {
			return append(args, "-cache-sync-timeout", syncTimeout.String())
		}
		return append(args, "-optional")
	})
	for _, s := range r.sides {
		s.process.mayExit = s.name == "stock"
	}
	r.owned("absent", 0)
	for i, kind := range []Kind{widget, clusterWidget, gizmo} {
		r.moved = time.Now()
		must(r.t, r.server.Install(r.ctx, kind))
		r.reconciled(kind, true)
		r.owned(fmt.Sprint("installed-", i), 1)
		must(r.t, r.server.Uninstall(r.ctx, kind))
		r.owned(fmt.Sprint("removed-", i), 0)
	}
	for _, s := range r.sides {
		switch {
		case s.name == "stock":
			if !s.process.hasEnded() {
				r.t.Error("stock has not exited")
			}
		case s.process.hasEnded():
			r.t.Errorf("%s has exited", s.name)
		case s.took > 32*time.Second:
			r.t.Errorf("%s took %v, want 30 seconds at most", s.name, s.took)
		}
	}
}

// owned makes a ConfigMap for each side, and waits until its operator has reconciled it and has found so many Widgets.
func (r *replay) owned(when string, widgets int) {
	r.t.Helper()
	r.both("the owner "+when, func(s *side) error {
		name := s.name + "-" + when
		owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"class": s.name}}}
		if err := r.server.Client.Create(r.ctx, owner); err != nil {
			return err
		}
		return await(r.ctx, name+" to be reconciled", func() (bool, error) {
			if s.process.hasEnded() && s.process.mayExit {
				s.lived = cmp.Or(s.lived, time.Since(r.begun))
				return true, nil
			}
			return slices.ContainsFunc(s.process.lines(), func(l Line) bool {
				return l.Msg == "Reconciled the owner" && l.Name == name && l.Widgets == widgets
			}), nil
		})
	})
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
