// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/fresh"
)

// within is how long a kind that has moved may take on a busy machine. The reflector of a stock
// informer may need a minute.
const within = 15 * time.Second

// forms are those of Widget: as a program may have them at the same time.
func forms() (whole *unstructured.Unstructured, metadata *metav1.PartialObjectMetadata) {
	gvk := schema.GroupVersionKind{Group: widget.Group, Version: "v1", Kind: widget.Kind}
	whole, metadata = &unstructured.Unstructured{}, &metav1.PartialObjectMetadata{}
	whole.SetGroupVersionKind(gvk)
	metadata.SetGroupVersionKind(gvk)
	return whole, metadata
}

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

// moveTo makes the server serve a kind in place of another.
func (s *Server) moveTo(ctx context.Context, t *testing.T, was, becomes Kind) {
	t.Helper()
	must(t, s.Uninstall(ctx, was), s.Install(ctx, becomes))
}

// TestFreshManager takes a manager with two controllers of one kind, a map handler, an index, a client that
// owns fields and an API reader through moves, there and back.
func TestFreshManager(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, cfg := startServer(ctx, t)
	must(t, s.Install(ctx, widget))
	mgr := freshManager(t, cfg, manager.Options{})
	whole, metadata := forms()
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
	kinds := []Kind{widget, clusterWidget, widget, gizmo, clusterWidget, widget}
	for i, kind := range kinds {
		if i > 0 {
			s.moveTo(ctx, t, kinds[i-1], kind)
		}
		name := fmt.Sprint("w", i)
		must(t, s.Make(ctx, kind, name, func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"color": name}) }))
		for what, s := range map[string]*seen{"the first controller": &first, "the second controller": &second} {
			eventually(t, within, fmt.Sprintf("%s: %s reconciles", name, what), func() bool { return s.took(name) })
		}
		eventually(t, within, name+": the map handler", func() bool { return mapped.took("of-" + name) })
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(whole.GroupVersionKind())
		must(t, mgr.GetCache().List(ctx, list, client.MatchingFields{"color": name}))
		if len(list.Items) != 1 || list.Items[0].GetName() != name {
			t.Errorf("%s: the index finds %d objects", name, len(list.Items))
		}
		must(t, mgr.GetCache().List(ctx, list))
		if len(list.Items) != 1 {
			t.Errorf("%s: the cache has %d objects", name, len(list.Items))
		}
		obj := whole.DeepCopy()
		must(t, mgr.GetAPIReader().Get(ctx, client.ObjectKeyFromObject(&list.Items[0]), obj))
		obj.SetAnnotations(map[string]string{"written": name})
		must(t, owner.Update(ctx, obj))
		if !slices.ContainsFunc(obj.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Manager == "me" }) {
			t.Errorf("%s: the owner of fields is lost: %v", name, obj.GetManagedFields())
		}
	}
	for name, s := range map[string]*seen{"first": &first, "second": &second} {
		eventually(t, within, "the end of the object before, for the "+name, func() bool { return s.took(fmt.Sprint("w", len(kinds)-2)) })
	}
}

// TestRecreations deletes a kind and makes it again, at the same path and at others, time after time. Each
// time a new object is seen soon: a reflector's backoff would grow to half a minute.
func TestRecreations(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, cfg := startServer(ctx, t)
	must(t, s.Install(ctx, widget))
	mgr := freshManager(t, cfg, manager.Options{})
	_, metadata := forms()
	var all seen
	must(t, builder.ControllerManagedBy(mgr).For(metadata).Complete(&all))
	run(t, mgr)
	was, slowest := widget, time.Duration(0)
	for i := range 20 {
		becomes := []Kind{widget, widget, gizmo, clusterWidget}[i%4]
		s.moveTo(ctx, t, was, becomes)
		name := fmt.Sprint("w", i)
		must(t, s.Make(ctx, becomes, name, nil))
		slowest = max(slowest, eventually(t, within, name, func() bool { return all.took(name) }))
		was = becomes
	}
	t.Logf("20 recreations, the slowest was seen after %v", slowest)
}

// TestReadYourWrites reads back what was written, at once, before and after moves. Upstream has it for objects
// with a Go type.
func TestReadYourWrites(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	s, cfg := startServer(ctx, t)
	must(t, s.Install(ctx, widget))
	types, gv := runtime.NewScheme(), schema.GroupVersion{Group: widget.Group, Version: "v1"}
	types.AddKnownTypeWithName(gv.WithKind(widget.Kind), &corev1.ConfigMap{})
	types.AddKnownTypeWithName(gv.WithKind(widget.Kind+"List"), &corev1.ConfigMapList{})
	metav1.AddToGroupVersion(types, gv)
	mgr := freshManager(t, cfg, manager.Options{Scheme: types, Client: client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}}})
	run(t, mgr)
	c := mgr.GetClient()
	was := widget
	for i, kind := range []Kind{widget, clusterWidget, widget, gizmo, gizmo} {
		if i > 0 {
			s.moveTo(ctx, t, was, kind)
		}
		was = kind
		for j := range 20 {
			obj, got := &corev1.ConfigMap{}, &corev1.ConfigMap{}
			obj.SetName(fmt.Sprintf("w%d-%d", i, j))
			if !kind.Cluster {
				obj.SetNamespace(metav1.NamespaceDefault)
			}
			if j == 0 { // a server that begins to serve a kind answers 404 for a moment
				eventually(t, within, "the first object is made", func() bool { return c.Create(ctx, obj) == nil })
			} else {
				must(t, c.Create(ctx, obj))
			}
			must(t, c.Get(ctx, client.ObjectKeyFromObject(obj), got))
			if got.GetUID() != obj.GetUID() {
				t.Fatalf("move %d, write %d: read %s, wrote %s", i, j, got.GetUID(), obj.GetUID())
			}
			must(t, c.Delete(ctx, obj))
			if err := c.Get(ctx, client.ObjectKeyFromObject(obj), got); !apierrors.IsNotFound(err) {
				t.Fatalf("move %d, write %d: the deleted object is read: %v", i, j, err)
			}
		}
	}
}

// TestBusyQueue has one worker that is never idle, at the priority of events. What comes with the first list after
// a move is seen all the same: it is no initial list, which would wait behind.
func TestBusyQueue(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, cfg := startServer(ctx, t)
	must(t, s.Install(ctx, widget))
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return slowLists{next} })
	mgr := freshManager(t, cfg, manager.Options{})
	_, metadata := forms()
	var rounds, found atomic.Int64
	must(t, builder.ControllerManagedBy(mgr).For(metadata).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1, UsePriorityQueue: ptr.To(true)}).
		Complete(reconcile.Func(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
			if req.Name == "new" {
				found.Add(1)
				return reconcile.Result{}, nil
			}
			rounds.Add(1)
			time.Sleep(20 * time.Millisecond)
			return reconcile.Result{RequeueAfter: time.Nanosecond, Priority: ptr.To(0)}, nil
		})))
	run(t, mgr)
	for i := range 5 {
		must(t, s.Make(ctx, widget, fmt.Sprint("busy", i), nil))
	}
	eventually(t, within, "the worker is busy", func() bool { return rounds.Load() > 20 })
	s.moveTo(ctx, t, widget, gizmo)
	must(t, s.Make(ctx, gizmo, "new", nil))
	eventually(t, within, "the new object", func() bool { return found.Load() > 0 })
}

// slowLists keeps each list of gizmos waiting.
type slowLists struct{ next http.RoundTripper }

func (l slowLists) RoundTrip(req *http.Request) (*http.Response, error) {
	query := req.URL.Query() // a list may come as a watch with initial events
	if strings.HasSuffix(req.URL.Path, "/gizmos") && (!query.Has("watch") || query.Has("sendInitialEvents")) {
		time.Sleep(time.Second)
	}
	return l.next.RoundTrip(req)
}

// TestWritesKeepTheirScope sends each write that names a namespace while the kind is cluster-wide. None
// touches the cluster-wide object. This holds on stock, too, but there the client never writes again.
func TestWritesKeepTheirScope(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, cfg := startServer(ctx, t)
	must(t, s.Install(ctx, widget))
	object := func(namespace string) *unstructured.Unstructured {
		obj, _ := forms()
		obj.SetName("x")
		obj.SetNamespace(namespace)
		obj.SetLabels(map[string]string{"written": "yes"})
		return obj
	}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"written":"yes"}}}`))
	writes := map[string]func(client.Client) error{
		"Create": func(c client.Client) error { return c.Create(ctx, object("default")) },
		"Update": func(c client.Client) error { return c.Update(ctx, object("default")) },
		"Patch":  func(c client.Client) error { return c.Patch(ctx, object("default"), patch) },
		"Apply": func(c client.Client) error {
			return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object("default")), client.ForceOwnership, client.FieldOwner("me"))
		},
		"Delete":       func(c client.Client) error { return c.Delete(ctx, object("default")) },
		"DeleteAllOf":  func(c client.Client) error { return c.DeleteAllOf(ctx, object(""), client.InNamespace("default")) },
		"UpdateStatus": func(c client.Client) error { return c.Status().Update(ctx, object("default")) },
		"PatchStatus":  func(c client.Client) error { return c.Status().Patch(ctx, object("default"), patch) },
		"of a client of a namespace": func(c client.Client) error {
			return fresh.NewNamespacedClient(client.WithFieldOwner(c, "me"), "default").Patch(ctx, object(""), patch)
		},
		"around it": func(c client.Client) error {
			return client.WithFieldOwner(fresh.NewNamespacedClient(c, "default"), "me").Delete(ctx, object(""))
		},
	}
	clients, list := map[string]client.Client{}, &unstructured.UnstructuredList{}
	for what := range writes {
		var err error
		clients[what], err = fresh.NewClient(cfg, client.Options{})
		must(t, err)
		list.SetGroupVersionKind(object("").GroupVersionKind())
		must(t, clients[what].List(ctx, list))
	}
	s.moveTo(ctx, t, widget, clusterWidget)
	must(t, s.Make(ctx, clusterWidget, "x", nil))
	for range 2 {
		for what, write := range writes {
			if err := write(clients[what]); !apierrors.IsNotFound(err) {
				t.Errorf("%s: got %v, want a 404", what, err)
			}
			now, err := s.Object(ctx, clusterWidget, "", "x")
			must(t, err)
			if now == nil || len(now.GetLabels()) > 0 {
				t.Fatalf("%s has left %v", what, now)
			}
		}
	}
	for what, c := range clients {
		must(t, c.Patch(ctx, object(""), patch))
		if err := writes[what](c); !apierrors.IsNotFound(err) {
			t.Errorf("%s, after one without a namespace: %v", what, err)
		}
	}
}
