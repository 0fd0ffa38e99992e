// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"example.com/consumers/frame"
)

// kindAnnotation names the kind that a ConfigMap asks about, without a version:
// Widget.example.com, or ConfigMap for a kind of the core group.
const kindAnnotation = "heal.example.com/kind"

// The states that the data of a ConfigMap shows, beside the fields of found.
const (
	stateReady     = "Ready"     // the kind is served, and its objects were counted
	stateNotServed = "NotServed" // the server has no such kind; it is looked up again soon
	stateFailed    = "Failed"    // something else is wrong; it is tried again with backoff
)

var errNoKind = errors.New("the annotation " + kindAnnotation + " is empty, want a kind such as Widget.example.com")

// reconciler writes into every annotated ConfigMap how the kind that it names is
// served, and how many objects of it there are.
type reconciler struct {
	client   client.Client
	mapper   meta.RESTMapper
	requests *frame.Requests
	retry    time.Duration
}

func (r *reconciler) setup(mgr ctrl.Manager) error {
	annotated := predicate.NewPredicateFuncs(func(o client.Object) bool {
		_, ok := o.GetAnnotations()[kindAnnotation]
		return ok
	})
	// Only annotations count, so that writing to data starts no new reconcile.
	return ctrl.NewControllerManagedBy(mgr).
		For(&corev1.ConfigMap{}, builder.WithPredicates(annotated, predicate.AnnotationChangedPredicate{})).
		Complete(r)
}

// Reconcile looks up the kind again each time, and not once at start, because kinds come
// and go.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var cm corev1.ConfigMap
	if err := r.client.Get(ctx, req.NamespacedName, &cm); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	found, err := r.find(ctx, cm.Annotations[kindAnnotation], cm.Namespace)
	if recordErr := r.record(ctx, &cm, found, err); recordErr != nil {
		return ctrl.Result{}, errors.Join(err, recordErr)
	}
	switch {
	case meta.IsNoMatchError(err):
		// This is no failure: nobody has installed the CRD yet. With a backoff, the wait
		// would grow the later the CRD comes.
		return ctrl.Result{RequeueAfter: r.retry}, nil
	case errors.Is(err, errNoKind):
		return ctrl.Result{}, reconcile.TerminalError(err)
	}
	return ctrl.Result{}, err
}

// found describes how a kind is served.
type found struct {
	mapping *meta.RESTMapping
	objects int64
}

// find looks up the kind in the version that the server prefers, and counts its objects.
func (r *reconciler) find(ctx context.Context, kind, namespace string) (*found, error) {
	if kind == "" {
		return nil, errNoKind
	}
	mapping, err := r.mapper.RESTMapping(schema.ParseGroupKind(kind))
	if err != nil {
		return nil, err
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(mapping.GroupVersionKind)
	opts := []client.ListOption{client.Limit(1)} // the server says how many more there are
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		opts = append(opts, client.InNamespace(namespace))
	}
	if err := r.client.List(ctx, list, opts...); err != nil {
		return nil, fmt.Errorf("failed to list %s: %w", mapping.Resource, err)
	}
	return &found{mapping: mapping, objects: int64(len(list.Items)) + ptr.Deref(list.GetRemainingItemCount(), 0)}, nil
}

// record writes the outcome of a lookup into the ConfigMap's data.
func (r *reconciler) record(ctx context.Context, cm *corev1.ConfigMap, f *found, err error) error {
	attempts, _ := strconv.Atoi(cm.Data["attempts"]) // 0 if there is no number yet
	before := client.MergeFrom(cm.DeepCopy())
	cm.Data = outcome(f, err)
	cm.Data["attempts"] = strconv.Itoa(attempts + 1)
	cm.Data["discoveryRequests"] = strconv.FormatInt(r.requests.Made(), 10)
	// If the ConfigMap was deleted meanwhile, there is nothing to do.
	return client.IgnoreNotFound(r.client.Patch(ctx, cm, before))
}

func outcome(f *found, err error) map[string]string {
	switch {
	case meta.IsNoMatchError(err):
		return map[string]string{"state": stateNotServed, "error": err.Error()}
	case err != nil:
		return map[string]string{"state": stateFailed, "error": err.Error()}
	}
	return map[string]string{
		"state":    stateReady,
		"version":  f.mapping.GroupVersionKind.GroupVersion().String(),
		"resource": f.mapping.Resource.Resource,
		"scope":    string(f.mapping.Scope.Name()),
		"objects":  strconv.FormatInt(f.objects, 10),
	}
}
