// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	examplev1 "example.com/plain/api/v1"
	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/fresh"
)

// freshManager makes a manager as README shows it first.
func freshManager(t *testing.T, cfg *rest.Config, options manager.Options) manager.Manager {
	t.Helper()
	options.Metrics = server.Options{BindAddress: "0"}
	options.Controller.SkipNameValidation = ptr.To(true)
	mgr, err := fresh.NewManager(cfg, options)
	must(t, err)
	if _, ours := mgr.GetRESTMapper().(*apiutil.DynamicRESTMapper); !ours {
		t.Fatalf("the manager's mapper is a %T", mgr.GetRESTMapper())
	}
	return mgr
}

// seen notes what was reconciled.
type seen struct {
	mu   sync.Mutex
	what map[string]bool
}

func (s *seen) Reconcile(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.what == nil {
		s.what = map[string]bool{}
	}
	s.what[req.Name] = true
	return reconcile.Result{}, nil
}

// took reports whether an object was reconciled since the last time.
func (s *seen) took(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.what[name]
	delete(s.what, name)
	return was
}

// TestFreshManager takes a manager with two controllers of one kind, a map handler, an index, a client that
// owns fields, and an API reader through moves, there and back, and through a CRD that comes back as it was.
func TestFreshManager(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, cfg := startServer(ctx, t)
	must(t, s.Install(ctx, widget))
	mgr := freshManager(t, cfg, manager.Options{Scheme: withWidgets(t)})
	whole, metadata := &unstructured.Unstructured{}, &metav1.PartialObjectMetadata{}
	whole.SetGroupVersionKind(examplev1.GroupVersion.WithKind(widget.Kind))
	metadata.SetGroupVersionKind(examplev1.GroupVersion.WithKind(widget.Kind))
	var first, second, mapped seen
	must(t,
		mgr.GetFieldIndexer().IndexField(ctx, whole, "color", func(o client.Object) []string { return []string{o.GetLabels()["color"]} }),
		builder.ControllerManagedBy(mgr).Named("whole").For(whole).Complete(&first),
		builder.ControllerManagedBy(mgr).Named("metadata").For(metadata).Complete(&second),
		builder.ControllerManagedBy(mgr).Named("mapped").For(&corev1.ConfigMap{}).
			Watches(metadata, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
				return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: "of-" + o.GetName()}}}
			})).Complete(&mapped))
	run(t, mgr)
	owner := client.WithFieldOwner(mgr.GetClient(), "me")
	kinds := []Kind{widget, clusterWidget, widget, widget, gizmo, clusterWidget, widget}
	for i, kind := range kinds {
		if i > 0 {
			must(t, s.Uninstall(ctx, kinds[i-1]), s.Install(ctx, kind))
		}
		name := fmt.Sprint("w", i)
		must(t, s.Make(ctx, kind, name, func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"color": name}) }))
		for what, s := range map[string]*seen{"the first controller": &first, "the second controller": &second} {
			eventually(t, fmt.Sprintf("%s: %s reconciles", name, what), func() bool { return s.took(name) })
		}
		eventually(t, name+": the map handler", func() bool { return mapped.took("of-" + name) })
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(whole.GroupVersionKind())
		must(t, mgr.GetCache().List(ctx, list, client.MatchingFields{"color": name}))
		if len(list.Items) != 1 || list.Items[0].GetName() != name {
			t.Errorf("%s: the index finds %d objects of its color, want it alone", name, len(list.Items))
		}
		must(t, mgr.GetCache().List(ctx, list))
		if len(list.Items) != 1 {
			t.Errorf("%s: the cache has %d objects; those before the move are gone", name, len(list.Items))
		}
		obj := whole.DeepCopy()
		must(t, mgr.GetAPIReader().Get(ctx, client.ObjectKeyFromObject(&list.Items[0]), obj))
		obj.SetAnnotations(map[string]string{"written": name})
		must(t, owner.Update(ctx, obj))
		if !slices.ContainsFunc(obj.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Manager == "me" }) {
			t.Errorf("%s: the owner of fields is lost: %v", name, obj.GetManagedFields())
		}
		if kind.Cluster {
			staysInItsNamespace(t, mgr.GetClient(), name)
		}
	}
	for name, s := range map[string]*seen{"first": &first, "second": &second} {
		eventually(t, "the end of the object before, for the "+name, func() bool { return s.took(fmt.Sprint("w", len(kinds)-2)) })
	}
}

// staysInItsNamespace writes what names a namespace while the kind is cluster-scoped, at the first try and after one.
// It does not touch the cluster-scoped object. fresh has all sorts of writes, on a server in memory.
func staysInItsNamespace(t *testing.T, c client.Client, name string) {
	t.Helper()
	object := func() *examplev1.Widget {
		return &examplev1.Widget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"written": "yes"}}}
	}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"written":"yes"}}}`))
	for range 2 {
		for what, err := range map[string]error{
			"Update":                  c.Update(t.Context(), object()),
			"Patch":                   c.Patch(t.Context(), object(), patch),
			"Patch of the status":     c.Status().Patch(t.Context(), object(), patch),
			"Delete":                  c.Delete(t.Context(), object()),
			"DeleteAllOf":             c.DeleteAllOf(t.Context(), object(), client.InNamespace("default")),
			"a client of a namespace": fresh.NewNamespacedClient(c, "default").Delete(t.Context(), object()),
		} {
			if !apierrors.IsNotFound(err) {
				t.Errorf("%s in a namespace while the kind is cluster-scoped: got %v, want a 404", what, err)
			}
		}
	}
	left := &unstructured.Unstructured{}
	left.SetGroupVersionKind(examplev1.GroupVersion.WithKind("Widget"))
	must(t, c.Get(t.Context(), client.ObjectKey{Name: name}, left))
	if left.GetLabels()["written"] != "" || left.GetDeletionTimestamp() != nil {
		t.Errorf("the cluster-scoped object was written: %v", left)
	}
}

// TestReadYourWrites has a client that reads its own writes (controller-runtime v0.25). While the kind changes its path no read
// waits longer than the cache takes, and what was just created is found by the next read.
func TestReadYourWrites(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, cfg := startServer(ctx, t)
	must(t, s.Install(ctx, widget))
	mgr := freshManager(t, cfg, manager.Options{Scheme: withWidgets(t), Client: client.Options{
		Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)},
	}})
	run(t, mgr)
	c := mgr.GetClient()
	get := func(ctx context.Context, name string) error {
		return c.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, &examplev1.Widget{})
	}
	kinds := []Kind{widget, gizmo, widget, gizmo}
	for i, kind := range kinds {
		if i > 0 {
			waiting, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			ended := make(chan error, 1)
			must(t, c.Create(ctx, &examplev1.Widget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "last"}}))
			go func() { ended <- get(waiting, "last") }()
			must(t, s.Uninstall(ctx, kinds[i-1]), s.Install(ctx, kind))
			if err := <-ended; err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("%d: a read of what was written before: %v", i, err)
			}
		}
		for n := range 5 {
			name := fmt.Sprintf("w%d-%d", i, n)
			must(t, await(ctx, "a write at the new path", func() (bool, error) {
				err := c.Create(ctx, &examplev1.Widget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
				return err == nil, err
			}))
			waiting, cancel := context.WithTimeout(ctx, patience)
			if err := get(waiting, name); err != nil {
				t.Errorf("a read of %s, which was just created: %v", name, err)
			}
			cancel()
		}
	}
}
