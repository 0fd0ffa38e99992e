// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"

	examplev1 "example.com/plain/api/v1"
)

// classField is the index of Widgets by their class.
const classField = "spec.class"

// OwnerReconciler counts the Widgets of the class that a ConfigMap's label names.
type OwnerReconciler struct {
	client.Client
	Class string // of the ConfigMaps that it reconciles
}

// Reconcile reads a ConfigMap, and the Widgets by their index.
func (r *OwnerReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	owner := &corev1.ConfigMap{}
	if err := r.Get(ctx, req.NamespacedName, owner); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if owner.Labels["class"] != r.Class {
		return ctrl.Result{}, nil
	}
	widgets := &examplev1.WidgetList{}
	err := r.List(ctx, widgets, client.MatchingFields{classField: r.Class})
	if err != nil && !meta.IsNoMatchError(err) { // Widgets need not be installed
		return ctrl.Result{}, fmt.Errorf("failed to list the Widgets: %w", err)
	}
	log.FromContext(ctx).Info("Reconciled the owner", "widgets", len(widgets.Items), "installed", err == nil)
	return ctrl.Result{}, nil
}

// SetupWithManager adds the controller to the manager.
func (r *OwnerReconciler) SetupWithManager(mgr ctrl.Manager) error {
	err := mgr.GetFieldIndexer().
		IndexField(context.Background(), &examplev1.Widget{}, classField, func(o client.Object) []string {
			return []string{o.(*examplev1.Widget).Spec.Class}
		})
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		For(&corev1.ConfigMap{}).
		Owns(&examplev1.Widget{}).
		Watches(&examplev1.Widget{}, handler.EnqueueRequestsFromMapFunc(r.owners)).
		Named("owner").
		Complete(r)
}

// owners returns a request for each ConfigMap of the class, because each counts all Widgets.
func (r *OwnerReconciler) owners(ctx context.Context, _ client.Object) (requests []ctrl.Request) {
	owners := &corev1.ConfigMapList{}
	if err := r.List(ctx, owners, client.MatchingLabels{"class": r.Class}); err != nil {
		log.FromContext(ctx).Error(err, "Failed to list the owners")
		return nil
	}
	for _, owner := range owners.Items {
		requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&owner)})
	}
	return requests
}
