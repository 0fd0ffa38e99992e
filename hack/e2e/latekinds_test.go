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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/hack/e2e/internal/examplev1"
	"github.com/freshmapper/freshmapper/manager/latekinds"
)

// TestLateKindsExample runs the example of docs/options.md. Its CRD comes late, goes, comes
// back cluster-wide and comes back as it was: the operator, with its cached client, works each
// time, and its manager never ends.
func TestLateKindsExample(t *testing.T) {
	s, cfg := startServer(t.Context(), t)
	mgr, mapper := exampleManager(t, cfg)
	seen := &names{}
	addExample(t, mgr, seen)
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
	for i, name := range []string{"first", "second", "third"} {
		kind.Cluster = i == 1
		must(t, s.Install(ctx, kind))
		must(t, s.Make(ctx, kind, name, ""))
		took := eventually(t, time.Minute, name+" is reconciled", func() bool { return seen.has(name) })
		t.Logf("%s: reconciled after %v", name, took.Round(10*time.Millisecond))
		must(t, s.Uninstall(ctx, kind))
		eventually(t, time.Minute, "the mapper knows that the kind is gone", func() bool {
			_, err := mapper.RESTMapping(examplev1.GroupVersion.WithKind("Widget").GroupKind(), "v1")
			return meta.IsNoMatchError(err)
		})
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
	types := runtime.NewScheme()
	must(t, examplev1.AddToScheme(types), scheme.AddToScheme(types))
	httpClient, err := rest.HTTPClientFor(cfg)
	must(t, err)
	mapper, err := apiutil.NewDynamicRESTMapperWithOptions(cfg, httpClient, apiutil.DynamicRESTMapperOptions{WatchAPIs: true})
	must(t, err)
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: types, Metrics: server.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil },
	})
	must(t, err)
	must(t, mgr.Add(mapper))
	return mgr, mapper
}

func addExample(t *testing.T, mgr manager.Manager, seen *names) {
	t.Helper()
	// The example of docs/options.md begins.
	err := latekinds.Add(mgr, latekinds.Options{
		Name:  "widget",
		Kinds: []schema.GroupVersionKind{examplev1.GroupVersion.WithKind("Widget")},
	}, func(mgr ctrl.Manager) error {
		return (&widgetReconciler{Client: mgr.GetClient(), seen: seen}).SetupWithManager(mgr)
	})
	// The example of docs/options.md ends.
	must(t, err)
}

// widgetReconciler is as kubebuilder scaffolds it.
type widgetReconciler struct {
	client.Client
	seen *names
}

func (r *widgetReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).For(&examplev1.Widget{}).Owns(&corev1.ConfigMap{}).Complete(r)
}

func (r *widgetReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if err := r.Get(ctx, req.NamespacedName, &examplev1.Widget{}); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	r.seen.add(req.Name)
	return ctrl.Result{}, nil
}

// docs/options.md shows what is run above.
func TestLateKindsInDocs(t *testing.T) {
	source, err := os.ReadFile("latekinds_test.go")
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
