// SPDX-License-Identifier: Apache-2.0

// Package controller reconciles widgets.
package controller

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	shopv1 "example.com/widgets/api/v1"
)

// WidgetReconciler marks widgets as ready.
type WidgetReconciler struct {
	client.Client
}

// +kubebuilder:rbac:groups=shop.example.com,resources=widgets,verbs=get;list;watch
// +kubebuilder:rbac:groups=shop.example.com,resources=widgets/status,verbs=get;update;patch

// Reconcile is called for each change.
func (r *WidgetReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var widget shopv1.Widget
	if err := r.Get(ctx, req.NamespacedName, &widget); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	widget.Status.Ready = true
	return ctrl.Result{}, r.Status().Update(ctx, &widget)
}

// SetupWithManager registers the controller.
func (r *WidgetReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).For(&shopv1.Widget{}).Named("widget").Complete(r)
}
