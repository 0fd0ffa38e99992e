// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/providers/kubeconfig"
)

// runOperator works on the clusters whose kubeconfigs are in Secrets with the label of
// the kubeconfig provider.
func runOperator(ctx context.Context, cfg *rest.Config, opts options) error {
	gvk, err := opts.gvk()
	if err != nil {
		return err
	}
	fleet := newFleet(opts)
	provider := kubeconfig.New(kubeconfig.Options{
		Namespace:      opts.namespace,
		ClusterOptions: []cluster.Option{fleet.clusterOptions},
		RESTOptions:    []func(*rest.Config) error{selfContained},
	})
	mgr, err := mcmanager.New(cfg, provider, ctrl.Options{
		Cache:                   cache.Options{ByObject: secretsIn(opts.namespace)},
		HealthProbeBindAddress:  opts.healthAddress,
		Metrics:                 server.Options{BindAddress: opts.metricsAddress},
		PprofBindAddress:        opts.pprofAddress,
		LeaderElection:          opts.leaderElection,
		LeaderElectionID:        "fleet.example.com",
		LeaderElectionNamespace: opts.namespace,
	})
	if err != nil {
		return err
	}
	err = errors.Join(
		provider.SetupWithManager(ctx, mgr),
		mgr.Add(fleet), // first: the markers ask it for the cluster's mapper
		mgr.Add(&markers{fleet: fleet, kind: gvk}),
		mgr.AddReadyzCheck("restmappers", fleet.Healthz),
		mgr.AddMetricsServerExtraHandler("/debug/restmappers", fleet.DebugHandler()),
	)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// selfContained refuses a kubeconfig that would run programs or read files here: the
// right to write a Secret must not give the operator's own rights.
func selfContained(cfg *rest.Config) error {
	files := cfg.BearerTokenFile + cfg.CAFile + cfg.CertFile + cfg.KeyFile
	if cfg.ExecProvider != nil || cfg.AuthProvider != nil || files != "" {
		return errors.New("the kubeconfig must hold its credentials itself, not name a program or a file")
	}
	return nil
}

func secretsIn(namespace string) map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&corev1.Secret{}: {Namespaces: map[string]cache.Config{namespace: {}}},
	}
}
