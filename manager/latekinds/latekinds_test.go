// SPDX-License-Identifier: Apache-2.0

package latekinds_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/freshmapper/freshmapper/manager/latekinds"
)

var widget = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}

// times is a mapper whose kinds come and go: each element of runs says what a run finds,
// and the kinds go when the run asks for it. After the last one they stay away.
type times struct {
	meta.RESTMapper
	runs int
	gone chan struct{} // the kinds go when something arrives
}

func (m *times) RunWhileServed(ctx context.Context, run func(context.Context) error, _ ...schema.GroupVersionKind) error {
	for ; m.runs > 0 && ctx.Err() == nil; m.runs-- {
		running, cancel := context.WithCancel(ctx)
		go func() {
			select {
			case <-m.gone:
				cancel()
			case <-running.Done():
			}
		}()
		err := run(running)
		stopped := running.Err() != nil
		cancel()
		if !stopped || err != nil {
			m.runs--
			return err
		}
	}
	<-ctx.Done()
	return nil
}

// wrapped is a mapper that says what it wraps.
type wrapped struct{ meta.RESTMapper }

func (w wrapped) Unwrap() meta.RESTMapper { return w.RESTMapper }

// newTimes returns a mapper that knows these kinds, and whose kinds come so many times.
func newTimes(runs int, kinds ...schema.GroupVersionKind) *times {
	known := meta.NewDefaultRESTMapper(nil)
	for _, gvk := range kinds {
		known.Add(gvk, meta.RESTScopeNamespace)
	}
	return &times{RESTMapper: known, runs: runs, gone: make(chan struct{})}
}

func (m *times) Reset() {}

func (m *times) RESTMappingWithContext(_ context.Context, gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	return m.RESTMapping(gk, versions...)
}

// log keeps the lines.
type log struct {
	mu    sync.Mutex
	lines []string
}

func (l *log) add(_, args string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, args)
}

func (l *log) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(l.lines), func(line string) bool { return !strings.Contains(line, text) }))
}

func newManager(t *testing.T, mapper meta.RESTMapper, l *log) manager.Manager {
	t.Helper()
	mgr, err := ctrl.NewManager(&rest.Config{Host: "http://127.0.0.1:1"}, ctrl.Options{
		Logger: funcr.New(l.add, funcr.Options{}), Metrics: server.Options{BindAddress: "0"},
		Controller:     config.Controller{SkipNameValidation: ptr.To(true)}, // for go test -count
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return mgr
}

// waiting is what the gauge says of a controller.
func waiting(t *testing.T, name string) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "controller_runtime_late_kinds_waiting" && metric.GetLabel()[0].GetValue() == name {
				return metric.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no gauge of %s", name)
	return 0
}

func object(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// TestControllerOfOneNameComesBack runs the controller that a scaffold's SetupWithManager builds
// three times under one name, with its metrics, and sees what is logged and measured meanwhile.
func TestControllerOfOneNameComesBack(t *testing.T) {
	mapper, lines := newTimes(3), &log{}
	mgr := newManager(t, mapper, lines)
	reconciled := make(chan string)
	opts := latekinds.Options{Name: "comes-back", Kinds: []schema.GroupVersionKind{widget}, NeedLeaderElection: new(bool)}
	err := latekinds.Add(mgr, opts, func(given manager.Manager) error {
		if given.GetCache() == mgr.GetCache() || given.GetClient() == mgr.GetClient() {
			t.Error("setup got the program's cache or client, and needs its own")
		}
		events := make(chan event.GenericEvent, 1)
		events <- event.GenericEvent{Object: object("one")}
		return ctrl.NewControllerManagedBy(given).Named("comes-back").
			WatchesRawSource(source.Channel(events, &handler.EnqueueRequestForObject{})).
			Complete(reconcile.Func(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
				reconciled <- req.Name
				return reconcile.Result{}, nil
			}))
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	for range 3 {
		if name := <-reconciled; name != "one" {
			t.Errorf("reconciled %q, want one", name)
		}
		if got := waiting(t, "comes-back"); got != 0 {
			t.Errorf("the gauge is %v while the controller runs, want 0", got)
		}
		mapper.gone <- struct{}{}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the manager ended with %v", err)
	}
	if got := waiting(t, "comes-back"); got != 1 {
		t.Errorf("the gauge is %v after the kinds went, want 1", got)
	}
	for text, want := range map[string]int{
		"Waiting for kinds to be served": 3, "/v1, Kind=Widget": 6, "the controller starts": 3, "The controller has stopped": 3,
	} {
		if got := lines.count(text); got < want {
			t.Errorf("%d log lines with %q, want %d, in %q", got, text, want, lines.lines)
		}
	}
}

// TestErrorsEndTheProgramUnlessAKindWent sees which errors end the manager.
func TestErrorsEndTheProgramUnlessAKindWent(t *testing.T) {
	noMatch := func(kind string, versions ...string) error {
		return fmt.Errorf("index: %w", &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "example.com", Kind: kind}, SearchedVersions: versions})
	}
	for name, test := range map[string]struct {
		setup func(n int, mgr manager.Manager) error
		runs  int
		away  bool   // the kind is not served by now
		want  string // in the error; none: the manager goes on
	}{
		"setup fails":                                   {setup: func(int, manager.Manager) error { return errors.New("no") }, runs: 1, want: `set up controller "setup fails": no`},
		"setup adds nothing":                            {setup: func(int, manager.Manager) error { return nil }, runs: 1, want: "setup has added nothing"},
		"setup starts its manager":                      {setup: func(_ int, mgr manager.Manager) error { return mgr.Start(context.Background()) }, runs: 1, want: "must not start"},
		"another kind is not served":                    {setup: func(int, manager.Manager) error { return noMatch("Gadget") }, runs: 1, want: `no matches for kind "Gadget"`},
		"the controller fails":                          {setup: func(_ int, mgr manager.Manager) error { return mgr.Add(fails(errors.New("broken"))) }, runs: 1, want: "broken"},
		"its kind went during setup":                    {setup: func(int, manager.Manager) error { return noMatch("Widget") }, runs: 1},
		"it fails when told to stop":                    {setup: func(_ int, mgr manager.Manager) error { return mgr.Add(failsAtEnd(errors.New("broken"))) }, runs: 1},
		"another version is not served":                 {setup: func(int, manager.Manager) error { return noMatch("Widget", "v2") }, runs: 1, want: `no matches for kind "Widget"`},
		"a controller says no match of another version": {setup: func(_ int, mgr manager.Manager) error { return mgr.Add(fails(noMatch("Widget", "v2"))) }, runs: 1, want: `controller "`},
		"setup meets a 404 as its kind goes":            {setup: func(int, manager.Manager) error { return errors.New("could not find the requested resource") }, runs: 1, away: true},
		"the controller times out as its kind goes":     {setup: func(_ int, mgr manager.Manager) error { return mgr.Add(fails(errors.New("caches did not sync"))) }, runs: 1, away: true},
		"setup adds a health check":                     {setup: func(_ int, mgr manager.Manager) error { return mgr.AddHealthzCheck("x", nil) }, runs: 1, want: "outside of setup"},
		"setup adds a webhook": {setup: func(_ int, mgr manager.Manager) error {
			mgr.GetWebhookServer().Register("/x", http.NotFoundHandler())
			return mgr.Add(failsAtEnd(nil))
		}, runs: 1, want: "a webhook belongs to the program"},
		"its kind went, and comes again": {setup: setupSecond(noMatch("Widget")), runs: 2, want: "second"},
	} {
		t.Run(name, func(t *testing.T) {
			mapper, lines := newTimes(test.runs, widget), &log{}
			if test.away {
				mapper = newTimes(test.runs)
			}
			mgr, calls := newManager(t, wrapped{mapper}, lines), 0
			opts := latekinds.Options{Name: name, Kinds: []schema.GroupVersionKind{widget}, NeedLeaderElection: new(bool)}
			if err := latekinds.Add(mgr, opts, func(mgr manager.Manager) error { calls++; return test.setup(calls, mgr) }); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- mgr.Start(ctx) }()
			if test.away {
				for len(ended) == 0 && lines.count("A kind went while the controller started") == 0 {
					time.Sleep(time.Millisecond)
				}
				cancel()
			} else if test.want == "" {
				select {
				case mapper.gone <- struct{}{}: // while it runs
				case <-mgr.Elected():
				}
				cancel()
			}
			err := <-ended
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("the manager ended with %v, want %q", err, test.want)
			}
		})
	}
}

// setupSecond returns a setup that fails with err first, and then otherwise.
func setupSecond(err error) func(int, manager.Manager) error {
	return func(n int, _ manager.Manager) error {
		if n == 1 {
			return err
		}
		return errors.New("second")
	}
}

func fails(err error) manager.Runnable {
	return manager.RunnableFunc(func(context.Context) error { return err })
}

func failsAtEnd(err error) manager.Runnable {
	return manager.RunnableFunc(func(ctx context.Context) error {
		<-ctx.Done()
		return err
	})
}

// TestAddSaysWhatIsMissing checks the errors of wrong options.
func TestAddSaysWhatIsMissing(t *testing.T) {
	kinds := []schema.GroupVersionKind{widget}
	for want, test := range map[string]struct {
		mapper meta.RESTMapper
		opts   latekinds.Options
	}{
		"Options.Name is empty":                        {newTimes(0), latekinds.Options{Kinds: kinds}},
		`Options.Kinds of controller "x" is empty`:     {newTimes(0), latekinds.Options{Name: "x"}},
		"set Options.MapperProvider of the manager to": {meta.NewDefaultRESTMapper(nil), latekinds.Options{Name: "x", Kinds: kinds}},
	} {
		err := latekinds.Add(newManager(t, test.mapper, &log{}), test.opts, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
