// SPDX-License-Identifier: Apache-2.0

// Package v1 has the webhooks of shop.example.com/v1.
package v1

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"

	shopv1 "example.com/widgets/api/v1"
)

// +kubebuilder:webhook:path=/mutate-shop-example-com-v1-widget,mutating=true,failurePolicy=fail,sideEffects=None,groups=shop.example.com,resources=widgets,verbs=create;update,versions=v1,name=mwidget-v1.kb.io,admissionReviewVersions=v1

// WidgetDefaulter gives widgets a size.
type WidgetDefaulter struct{}

// Default is called for each new widget.
func (WidgetDefaulter) Default(_ context.Context, widget *shopv1.Widget) error {
	if widget.Spec.Size == nil {
		one := int32(1)
		widget.Spec.Size = &one
	}
	return nil
}

// SetupWebhookWithManager registers the webhook.
func SetupWebhookWithManager(mgr ctrl.Manager) error {
	return ctrl.NewWebhookManagedBy(mgr, &shopv1.Widget{}).WithDefaulter(WidgetDefaulter{}).Complete()
}
