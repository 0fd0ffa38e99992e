// SPDX-License-Identifier: Apache-2.0

package fresh_test

import (
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/freshmapper/freshmapper/fresh"
)

// An operator changes one line: fresh.NewManager instead of ctrl.NewManager.
func ExampleNewManager() {
	mgr, err := fresh.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{HealthProbeBindAddress: ":8081"})
	if err != nil {
		fmt.Fprintln(os.Stderr, "make the manager:", err)
		os.Exit(1)
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "run the manager:", err)
		os.Exit(1)
	}
}

// Another cluster of the same program gets a mapper, a client and a cache of its own.
func ExampleCluster() {
	other, err := cluster.New(ctrl.GetConfigOrDie(), fresh.Cluster)
	if err != nil {
		fmt.Fprintln(os.Stderr, "make the cluster:", err)
		os.Exit(1)
	}
	fmt.Println(other.GetRESTMapper() != nil)
}
