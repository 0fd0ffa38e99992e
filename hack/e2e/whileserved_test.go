// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/hack/e2e/internal/examplev1"
)

// TestRunWhileServedExample runs the example of docs/options.md: the operator
// survives two deletions of its CRD, and sends no request for the kind while the
// CRD is gone.
func TestRunWhileServedExample(t *testing.T) {
	s, cfg := startServer(t.Context(), t)
	mgr, mapper := exampleManager(t, cfg)
	seen := &names{}
	reconciler := reconcile.Func(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
		seen.add(req.Name)
		return reconcile.Result{}, nil
	})
	addExample(t, mgr, mapper, reconciler)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the manager: %v", err)
		}
	})
	kind := Kind{Group: examplev1.GroupVersion.Group, Kind: "Widget", Versions: []string{"v1"}}
	for _, name := range []string{"first", "second", "third"} {
		must(t, s.Install(ctx, kind))
		must(t, s.Make(ctx, kind, name, ""))
		took := eventually(t, time.Minute, name+" is reconciled", func() bool { return seen.has(name) })
		t.Logf("%s: reconciled after %v", name, took.Round(10*time.Millisecond))
		must(t, s.Uninstall(ctx, kind))
	}
	select {
	case err := <-ended:
		t.Errorf("the manager has ended: %v", err)
		ended <- nil
	default:
	}
}

func exampleManager(t *testing.T, cfg *rest.Config) (manager.Manager, *apiutil.DynamicRESTMapper) {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	scheme := runtime.NewScheme()
	must(t, examplev1.AddToScheme(scheme))
	httpClient, err := rest.HTTPClientFor(cfg)
	must(t, err)
	mapper, err := apiutil.NewDynamicRESTMapperWithOptions(cfg, httpClient, apiutil.DynamicRESTMapperOptions{WatchAPIs: true})
	must(t, err)
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil },
	})
	must(t, err)
	must(t, mgr.Add(mapper))
	return mgr, mapper
}

func addExample(t *testing.T, mgr manager.Manager, mapper *apiutil.DynamicRESTMapper, reconciler reconcile.Reconciler) {
	t.Helper()
	widgetKind := examplev1.GroupVersion.WithKind("Widget")
	// The example of docs/options.md begins.
	runWidgets := func(ctx context.Context) error {
		widgets, err := cache.New(mgr.GetConfig(), cache.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
		if err != nil {
			return err
		}
		c, err := controller.NewUnmanaged("widget", controller.Options{
			Reconciler: reconciler, SkipNameValidation: ptr.To(true), // its name may be used again
		})
		if err != nil {
			return err
		}
		err = c.Watch(source.Kind(widgets, &examplev1.Widget{}, &handler.TypedEnqueueRequestForObject[*examplev1.Widget]{}))
		if err != nil {
			return err
		}
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return widgets.Start(ctx) })
		group.Go(func() error { return c.Start(ctx) })
		return group.Wait() // blocks until ctx ends
	}
	err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		return mapper.RunWhileServed(ctx, runWidgets, widgetKind)
	}))
	// The example of docs/options.md ends.
	must(t, err)
}

// docs/options.md shows what is run above.
func TestRunWhileServedInDocs(t *testing.T) {
	source, err := os.ReadFile("whileserved_test.go")
	must(t, err)
	_, rest, _ := strings.Cut(string(source), "\t// The example of docs/options.md begins.\n")
	example, _, found := strings.Cut(rest, "\t// The example of docs/options.md ends.\n")
	if !found {
		t.Fatal("the example has no end")
	}
	readme, err := os.ReadFile(root + "/docs/options.md")
	must(t, err)
	example = strings.ReplaceAll("\n"+example, "\n\t", "\n")
	if !strings.Contains(string(readme), example) {
		t.Errorf("docs/options.md does not have\n%s", example)
	}
}

// names are those of objects that were reconciled.
type names struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (n *names) add(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.seen == nil {
		n.seen = map[string]bool{}
	}
	n.seen[name] = true
}

func (n *names) has(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.seen[name]
}
