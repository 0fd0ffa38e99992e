// SPDX-License-Identifier: Apache-2.0

package fresh_test

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/freshmapper/freshmapper/fresh"
)

// reconciler stands for yours.
var reconciler = reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
	return reconcile.Result{}, nil
})

// One line changes: fresh.NewManager in place of ctrl.NewManager.
func Example() {
	mgr, err := fresh.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// Set up your controllers here, as with any other manager.
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A controller owns a kind whose CRD may be installed later, or never: an entry in ByObject says so. The controller
// starts without the kind, and receives its objects once it is installed.
func ExampleNewManager_optionalCRD() {
	monitor := &unstructured.Unstructured{}
	monitor.SetGroupVersionKind(schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1",
		Kind: "ServiceMonitor"})

	mgr, err := fresh.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			monitor: {},
		}},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	err = ctrl.NewControllerManagedBy(mgr).
		For(&corev1.ConfigMap{}).
		Owns(monitor).
		Complete(reconciler)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A client without a manager, as in a command-line program. It makes a RESTMapper of its own.
func ExampleNewClient() {
	c, err := fresh.NewClient(ctrl.GetConfigOrDie(), client.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	pods := &corev1.PodList{}
	if err := c.List(context.Background(), pods, client.InNamespace("default")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(len(pods.Items))
}
