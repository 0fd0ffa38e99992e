// SPDX-License-Identifier: Apache-2.0

// Package controller reconciles Widgets.
package controller

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	examplev1 "example.com/plain/api/v1"
)

// WidgetReconciler reports the size of each Widget in its status.
type WidgetReconciler struct {
	client.Client
	Scheme *runtime.Scheme
	Class  string // of the Widgets that it reconciles
}

// Reconcile reads a Widget from the cache and writes its status.
func (r *WidgetReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	widget := &examplev1.Widget{}
	if err := r.Get(ctx, req.NamespacedName, widget); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if widget.Spec.Class != r.Class || widget.Status.ObservedSize == widget.Spec.Size {
		return ctrl.Result{}, nil
	}
	widget.Status.ObservedSize = widget.Spec.Size
	if err := r.Status().Update(ctx, widget); err != nil {
		return ctrl.Result{}, fmt.Errorf("failed to write the status: %w", err)
	}
	log.FromContext(ctx).Info("Reconciled")
	return ctrl.Result{}, nil
}

// SetupWithManager adds the controller to the manager.
func (r *WidgetReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&examplev1.Widget{}).
		Named("widget").
		Complete(r)
}
