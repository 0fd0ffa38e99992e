// SPDX-License-Identifier: Apache-2.0

package latekinds_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
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
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/manager/latekinds"
)

var widget = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}

// times is a mapper whose kinds come and go: each element of runs says what a run finds,
// and the kinds go when the run asks for it. After the last one they stay away.
type times struct {
	meta.RESTMapper
	runs int
	gone chan struct{} // the kinds go when something arrives

	hangs chan struct{} // nil, or closed by a lookup, which then has no answer
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

func (m *times) IsServed(context.Context, schema.GroupVersionKind) (bool, error) { return false, nil }

func (m *times) RESTMappingWithContext(ctx context.Context, gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if m.hangs != nil {
		close(m.hangs)
		<-ctx.Done()
	}
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
	return strings.Count(strings.Join(l.lines, "\n"), text)
}

// newManager makes a manager of the API server at that address.
func newManager(t *testing.T, address string, mapper meta.RESTMapper, l *log) manager.Manager {
	t.Helper()
	mgr, err := ctrl.NewManager(&rest.Config{Host: address}, ctrl.Options{
		Logger: funcr.New(l.add, funcr.Options{}), Metrics: server.Options{BindAddress: "0"},
		Controller:     config.Controller{SkipNameValidation: ptr.To(true)}, // for go test -count
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil },
	})
	must(t, err)
	return mgr
}

const nowhere = "http://127.0.0.1:1"

// start starts the manager. The channel has what it ends with, after cancel or by itself.
func start(mgr manager.Manager) (cancel func(), ended <-chan error) {
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- mgr.Start(ctx) }()
	return cancel, result
}

// options are those of a controller that waits for widgets. It needs no leader.
func options(name string) latekinds.Options {
	return latekinds.Options{Name: name, Kinds: []schema.GroupVersionKind{widget}, NeedLeaderElection: new(bool)}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// gauge is what the gauges of this name say that have a label of this value; -1: there is none.
func gauge(t *testing.T, name, label string) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	must(t, err)
	n := -1.0
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, l := range metric.GetLabel() {
				if family.GetName() == "controller_runtime_late_kinds_"+name && l.GetValue() == label {
					n = max(n, 0) + metric.GetGauge().GetValue()
				}
			}
		}
	}
	return n
}

// TestControllerOfOneNameComesBack runs the controller that a scaffold's SetupWithManager builds
// three times under one name, with its metrics, and sees what is logged and measured meanwhile.
func TestControllerOfOneNameComesBack(t *testing.T) {
	mapper, lines := newTimes(3), &log{}
	mgr := newManager(t, nowhere, mapper, lines)
	reconciled := make(chan string)
	opts := options("comes-back")
	must(t, latekinds.Add(mgr, opts, func(given manager.Manager) error {
		if given.GetCache() == mgr.GetCache() || given.GetClient() == mgr.GetClient() {
			t.Error("setup got the program's cache or client, and needs its own")
		}
		events := make(chan event.GenericEvent, 1)
		events <- event.GenericEvent{Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one"}}}
		return ctrl.NewControllerManagedBy(given).Named("comes-back").
			WatchesRawSource(source.Channel(events, &handler.EnqueueRequestForObject{})).
			Complete(reconcile.Func(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
				if given.Add(nil) == nil {
					t.Error("what is added once the controller runs would never start, and there was no error")
				}
				reconciled <- req.Name
				return reconcile.Result{}, nil
			}))
	}))
	opts.Kinds[0].Kind = "Gadget" // the slice is the caller's own
	cancel, ended := start(mgr)
	for range 3 {
		if name := <-reconciled; name != "one" {
			t.Errorf("reconciled %q, want one", name)
		}
		if got := gauge(t, "waiting", "comes-back"); got != 0 {
			t.Errorf("the gauge is %v while the controller runs, want 0", got)
		}
		mapper.gone <- struct{}{}
	}
	cancel()
	must(t, <-ended)
	if got := gauge(t, "waiting", "comes-back"); got != 1 {
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

func TestErrorsEndTheProgramUnlessAKindWent(t *testing.T) {
	type setup = func(n int, mgr manager.Manager) error // n counts its calls
	returns := func(err error) setup { return func(int, manager.Manager) error { return err } }
	noMatch := func(kind string, versions ...string) error {
		return fmt.Errorf("index: %w", &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "example.com", Kind: kind}, SearchedVersions: versions})
	}
	fails := func(err error, atEnd bool) setup {
		return func(_ int, mgr manager.Manager) error {
			return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
				if atEnd {
					<-ctx.Done()
				}
				return err
			}))
		}
	}
	for name, test := range map[string]struct {
		setup setup
		away  bool   // the kind is not served by now
		want  string // in the error; none: the manager goes on
	}{
		"setup fails":                                   {setup: returns(errors.New("no")), want: `set up controller "setup fails": no`},
		"setup adds nothing":                            {setup: returns(nil), want: "setup has added nothing"},
		"setup starts its manager":                      {setup: func(_ int, mgr manager.Manager) error { return mgr.Start(context.Background()) }, want: "must not start"},
		"another kind is not served":                    {setup: returns(noMatch("Gadget")), want: `no matches for kind "Gadget"`},
		"the controller fails":                          {setup: fails(errors.New("broken"), false), want: "broken"},
		"its kind went during setup":                    {setup: returns(noMatch("Widget"))},
		"it fails when told to stop":                    {setup: fails(errors.New("broken"), true)},
		"another version is not served":                 {setup: returns(noMatch("Widget", "v2")), want: `no matches for kind "Widget"`},
		"a controller says no match of another version": {setup: fails(noMatch("Widget", "v2"), false), want: `controller "`},
		"setup meets a 404 as its kind goes":            {setup: returns(errors.New("could not find the requested resource")), away: true},
		"the controller times out as its kind goes":     {setup: fails(errors.New("caches did not sync"), false), away: true},
		"setup adds a health check":                     {setup: func(_ int, mgr manager.Manager) error { return mgr.AddHealthzCheck("x", nil) }, want: "outside of setup"},
		"setup adds a webhook": {setup: func(n int, mgr manager.Manager) error {
			mgr.GetWebhookServer().Register("/x", http.NotFoundHandler())
			return fails(nil, true)(n, mgr)
		}, want: "a webhook belongs to the program"},
		"its kind went, and comes again": {setup: func(n int, _ manager.Manager) error {
			return map[bool]error{true: noMatch("Widget"), false: errors.New("second")}[n == 1]
		}, want: "second"},
	} {
		t.Run(name, func(t *testing.T) {
			mapper, lines, calls := newTimes(2, widget), &log{}, 0
			if test.away {
				mapper = newTimes(1)
			}
			mgr := newManager(t, nowhere, wrapped{mapper}, lines)
			must(t, latekinds.Add(mgr, options(name), func(mgr manager.Manager) error { calls++; return test.setup(calls, mgr) }))
			cancel, ended := start(mgr)
			defer cancel()
			switch {
			case test.away:
				for len(ended) == 0 && lines.count("A kind went while the controller started") == 0 {
					time.Sleep(time.Millisecond)
				}
				cancel()
			case test.want == "":
				select {
				case mapper.gone <- struct{}{}: // while it runs
				case <-mgr.Elected():
				}
				cancel()
			}
			var err error
			select {
			case err = <-ended:
			case <-time.After(time.Minute):
				t.Fatalf("the manager goes on, want it to end with %q", test.want)
			}
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("the manager ended with %v, want %q", err, test.want)
			}
		})
	}
}

func nothing(manager.Manager) error { return errors.New("setup was called") }

// circle is a mapper that says that it wraps itself.
type circle struct{ meta.RESTMapper }

func (c circle) Unwrap() meta.RESTMapper { return c }

func TestAddSaysWhatIsMissing(t *testing.T) {
	kinds := []schema.GroupVersionKind{widget}
	for want, test := range map[string]struct {
		mapper meta.RESTMapper
		opts   latekinds.Options
		setup  func(manager.Manager) error
	}{
		"Options.Name is empty":                        {newTimes(0), latekinds.Options{Kinds: kinds}, nothing},
		`Options.Kinds of controller "x" is empty`:     {newTimes(0), latekinds.Options{Name: "x"}, nothing},
		`"x" has an element without a Kind`:            {newTimes(0), latekinds.Options{Name: "x", Kinds: append(kinds, schema.GroupVersionKind{})}, nothing},
		`setup of controller "x" is nil`:               {newTimes(0), latekinds.Options{Name: "x", Kinds: kinds}, nil},
		"set Options.MapperProvider of the manager to": {meta.NewDefaultRESTMapper(nil), latekinds.Options{Name: "x", Kinds: kinds}, nothing},
		"latekinds_test.circle) can't wait":            {circle{meta.NewDefaultRESTMapper(nil)}, latekinds.Options{Name: "x", Kinds: kinds}, nothing},
	} {
		err := latekinds.Add(newManager(t, nowhere, test.mapper, &log{}), test.opts, test.setup)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestCacheOfTheController adds, in setup, an index and a runnable that reads. The runnable starts when the informer
// has the objects, as in any manager; and cache and client have the options that the caller gave.
func TestCacheOfTheController(t *testing.T) {
	objects := fakeapi.New(fakeapi.Typical(0, 0, 0)...)
	api := httptest.NewServer(objects)
	defer api.Close()
	kind := corev1.SchemeGroupVersion.WithKind
	mapper := newTimes(1, kind("ConfigMap"), kind("ConfigMapList"), kind("Secret"), widget) // a mapper knows lists of a kind, too
	mgr := newManager(t, api.URL, mapper, &log{})
	opts, read := options("reads"), make(chan error, 1)
	opts.Cache.DefaultNamespaces = map[string]cache.Config{"team-a": {}}
	opts.Client.Cache = &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}
	made := map[string]int{}
	opts.NewCache = func(cfg *rest.Config, opts cache.Options) (cache.Cache, error) {
		made["cache"]++
		return cache.New(cfg, opts)
	}
	opts.NewClient = func(cfg *rest.Config, opts client.Options) (client.Client, error) {
		made["client"]++
		return client.New(cfg, opts)
	}
	must(t, latekinds.Add(mgr, opts, func(mgr manager.Manager) error {
		err := mgr.GetFieldIndexer().IndexField(context.Background(), &corev1.ConfigMap{}, "x", func(client.Object) []string { return nil })
		if err != nil {
			return err
		}
		return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
			if len(objects.Requests()) == 0 {
				t.Error("the runnable started before the cache had listed")
			}
			read <- errors.Join(mgr.GetClient().List(ctx, &corev1.ConfigMapList{}), mgr.GetClient().List(ctx, &corev1.SecretList{}, client.InNamespace("team-b")))
			<-ctx.Done()
			return nil
		}))
	}))
	cancel, ended := start(mgr)
	must(t, <-read)
	cancel()
	must(t, <-ended)
	if made["cache"] != 1 || made["client"] != 1 {
		t.Errorf("made %v by the functions of the options, want a cache and a client", made)
	}
	lists := slices.DeleteFunc(objects.Requests(), func(r fakeapi.Request) bool { return r.Verb != "list" })
	for i, want := range []string{"/api/v1/namespaces/team-a/configmaps", "/api/v1/namespaces/team-b/secrets"} {
		if len(lists) != 2 || lists[i].Path != want {
			t.Errorf("read %v, want %s: ConfigMaps by a cache of the namespace in Options.Cache, Secrets not from the cache", lists, want)
		}
	}
}

func TestProgramEndsWhileTheServerHangs(t *testing.T) {
	mapper := newTimes(0)
	mapper.hangs = make(chan struct{})
	mgr := newManager(t, nowhere, mapper, &log{})
	must(t, latekinds.Add(mgr, options("hangs"), nothing))
	cancel, ended := start(mgr)
	<-mapper.hangs
	cancel()
	must(t, <-ended)
}

// adds keeps what is added.
type adds struct {
	manager.Manager
	controllers config.Controller
	added       manager.Runnable
	refuses     error
}

func (m *adds) GetControllerOptions() config.Controller { return m.controllers }
func (m *adds) Add(r manager.Runnable) error            { m.added = r; return m.refuses }

func TestLeaderElectionDefaultsToTheManagers(t *testing.T) {
	for _, test := range []struct {
		managers, options *bool
		want              bool
	}{{nil, nil, true}, {ptr.To(false), nil, false}, {ptr.To(false), ptr.To(true), true}} {
		mgr := &adds{Manager: newManager(t, nowhere, newTimes(0), &log{})}
		mgr.controllers = config.Controller{NeedLeaderElection: test.managers, SkipNameValidation: ptr.To(true)}
		opts := options("leader")
		opts.NeedLeaderElection = test.options
		must(t, latekinds.Add(mgr, opts, nothing))
		if got := mgr.added.(manager.LeaderElectionRunnable).NeedLeaderElection(); got != test.want {
			t.Errorf("NeedLeaderElection is %v for the manager and %v in Options: the controller needs it: %v, want %v", test.managers, test.options, got, test.want)
		}
	}
}

func TestNameIsTakenOnce(t *testing.T) {
	opts := options("taken " + fmt.Sprint(time.Now().UnixNano())) // for go test -count
	mgr := &adds{Manager: newManager(t, nowhere, newTimes(0), &log{}), refuses: errors.New("stopped")}
	if err := latekinds.Add(mgr, opts, nothing); !errors.Is(err, mgr.refuses) {
		t.Errorf("the manager refuses it, and Add returned %v", err)
	}
	mgr.refuses = nil
	must(t, latekinds.Add(mgr, opts, nothing)) // the name is still free
	if err := latekinds.Add(mgr, opts, nothing); err == nil || !strings.Contains(err.Error(), "another Options.Name") {
		t.Errorf("a second controller of the name: got %v, want an error that tells what to do", err)
	}
	mgr.controllers.SkipNameValidation = ptr.To(true)
	must(t, latekinds.Add(mgr, opts, nothing))
}
