// SPDX-License-Identifier: Apache-2.0

// Command manager runs the controller and the webhook of widgets.
package main

import (
	"errors"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	shopv1 "example.com/widgets/api/v1"
	"example.com/widgets/internal/controller"
	webhookv1 "example.com/widgets/internal/webhook/v1"
)

func main() {
	ctrl.SetLogger(zap.New())
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), shopv1.AddToScheme(scheme)); err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{Scheme: scheme, HealthProbeBindAddress: ":8081"})
	if err != nil {
		return err
	}
	err = errors.Join(
		(&controller.WidgetReconciler{Client: mgr.GetClient()}).SetupWithManager(mgr),
		webhookv1.SetupWebhookWithManager(mgr),
		mgr.AddHealthzCheck("healthz", healthz.Ping),
	)
	if err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}
