// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	examplev1 "example.com/plain/api/v1"
	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/manager/latekinds"
)

// TestLateKindsExample runs the example of docs/optional-kinds.md. Its CRD comes late, goes, comes
// back cluster-wide and comes back as it was: the operator, with its cached client, works each
// time, and its manager never ends.
func TestLateKindsExample(t *testing.T) {
	s, cfg := startServer(t.Context(), t)
	types := runtime.NewScheme()
	must(t, examplev1.AddToScheme(types), scheme.AddToScheme(types))
	mgr, mapper := newManager(t, cfg, types, apiutil.DynamicRESTMapperOptions{WatchAPIs: true})
	seen := &logged{}
	addExample(t, mgr, seen)
	run(t, mgr)
	kind := Kind{Group: examplev1.GroupVersion.Group, Kind: "Widget", Versions: []string{"v1"}}
	for i, name := range []string{"first", "second", "third"} {
		kind.Cluster = i == 1
		must(t, s.Install(t.Context(), kind), s.Make(t.Context(), kind, name, nil))
		took := eventually(t, time.Minute, name+" is reconciled", func() bool { return seen.count(name, "") > 0 })
		t.Logf("%s: reconciled after %v", name, took.Round(10*time.Millisecond))
		must(t, s.Uninstall(t.Context(), kind))
		eventually(t, time.Minute, "the mapper knows that the kind is gone", func() bool {
			_, err := mapper.RESTMapping(examplev1.GroupVersion.WithKind("Widget").GroupKind(), "v1")
			return meta.IsNoMatchError(err)
		})
	}
}

func addExample(t *testing.T, mgr manager.Manager, seen *logged) {
	t.Helper()
	// The example of docs/optional-kinds.md begins.
	err := latekinds.Add(mgr, latekinds.Options{
		Name:  "widget",
		Kinds: []schema.GroupVersionKind{examplev1.GroupVersion.WithKind("Widget")},
	}, func(mgr ctrl.Manager) error {
		return (&widgetReconciler{Client: mgr.GetClient(), seen: seen}).SetupWithManager(mgr)
	})
	// The example of docs/optional-kinds.md ends.
	must(t, err)
}

// widgetReconciler is as kubebuilder scaffolds it.
type widgetReconciler struct {
	client.Client
	seen *logged
}

func (r *widgetReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).For(&examplev1.Widget{}).Owns(&corev1.ConfigMap{}).Complete(r)
}

func (r *widgetReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if err := r.Get(ctx, req.NamespacedName, &examplev1.Widget{}); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	r.seen.add("", req.Name)
	return ctrl.Result{}, nil
}

// docs/optional-kinds.md shows what is run above.
func TestLateKindsInDocs(t *testing.T) {
	_, rest, _ := strings.Cut(document(t, "hack/e2e/latekinds_test.go"), "\t// The example of docs/optional-kinds.md begins.\n")
	example, _, found := strings.Cut(rest, "\t// The example of docs/optional-kinds.md ends.\n")
	if !found {
		t.Fatal("the example has no end")
	}
	example = strings.ReplaceAll("\n"+example, "\n\t", "\n")
	if !strings.Contains(document(t, "docs/optional-kinds.md"), example) {
		t.Errorf("docs/optional-kinds.md does not have\n%s", example)
	}
}
