// SPDX-License-Identifier: Apache-2.0

// Command plain is an operator for Widgets, as kubebuilder scaffolds it: a manager with
// no options about discovery, a typed client, a cache.
package main

import (
	"flag"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	examplev1 "example.com/plain/api/v1"
	"example.com/plain/internal/controller"
)

var (
	scheme   = runtime.NewScheme()
	setupLog = ctrl.Log.WithName("setup")
)

func init() { //nolint:gochecknoinits // as kubebuilder has it
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(examplev1.AddToScheme(scheme))
}

func main() {
	var metricsAddress, probeAddress, class, namespaces string
	var leaderElection, owners, optional bool
	var syncTimeout time.Duration
	flag.StringVar(&metricsAddress, "metrics-bind-address", "0", "serve metrics at this address, 0 for none")
	flag.StringVar(&probeAddress, "health-probe-bind-address", "0", "serve probes at this address, 0 for none")
	flag.BoolVar(&leaderElection, "leader-elect", false, "run only while holding the leader lease")
	flag.StringVar(&class, "class", "", "reconcile the Widgets of this class")
	flag.StringVar(&namespaces, "namespaces", "", "watch these namespaces only, separated by commas")
	flag.BoolVar(&owners, "owners", false, "reconcile ConfigMaps of the class, too, which own Widgets")
	flag.BoolVar(&optional, "optional", false, "the CRD of Widgets may be installed later, or never")
	flag.DurationVar(&syncTimeout, "cache-sync-timeout", 2*time.Minute, "end if objects cannot be listed for so long")
	opts := zap.Options{}
	opts.BindFlags(flag.CommandLine)
	flag.Parse()
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&opts)))

	options := ctrl.Options{
		Scheme:                 scheme,
		Cache:                  cacheOptions(namespaces, optional),
		Controller:             config.Controller{CacheSyncTimeout: syncTimeout},
		Metrics:                server.Options{BindAddress: metricsAddress},
		HealthProbeBindAddress: probeAddress,
		LeaderElection:         leaderElection,
		LeaderElectionID:       "plain.example.com",
	}
	if err := run(options, class, owners); err != nil {
		setupLog.Error(err, "Failed to run the manager")
		os.Exit(1)
	}
}

func run(options ctrl.Options, class string, owners bool) error {
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), options)
	if err != nil {
		return err
	}
	r := &controller.WidgetReconciler{Client: mgr.GetClient(), Scheme: mgr.GetScheme(), Class: class}
	if err := r.SetupWithManager(mgr); err != nil {
		return err
	}
	if owners {
		if err := (&controller.OwnerReconciler{Client: mgr.GetClient(), Class: class}).SetupWithManager(mgr); err != nil {
			return err
		}
	}
	if err := mgr.AddHealthzCheck("healthz", healthz.Ping); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("readyz", healthz.Ping); err != nil {
		return err
	}
	setupLog.Info("Starting the manager")
	return mgr.Start(ctrl.SetupSignalHandler())
}

func cacheOptions(namespaces string, optional bool) cache.Options {
	options := cache.Options{}
	if optional {
		options.ByObject = map[client.Object]cache.ByObject{&examplev1.Widget{}: {}}
	}
	if namespaces != "" {
		options.DefaultNamespaces = map[string]cache.Config{}
		for namespace := range strings.SplitSeq(namespaces, ",") {
			options.DefaultNamespaces[namespace] = cache.Config{}
		}
	}
	return options
}
