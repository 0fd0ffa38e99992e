// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"context"
	"errors"
	"flag"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/providers/kubeconfig"
)

// Clusters are the flags of a program that works on many clusters. A Secret with the label of multicluster-runtime's
// kubeconfig provider is a cluster.
type Clusters struct {
	Manager
	secrets       string // the namespace of the Secrets
	healthAddress string
}

// AddTo defines flags. The default namespace is the name of the program.
func (c *Clusters) AddTo(flags *flag.FlagSet) {
	c.Manager.AddTo(flags)
	flags.StringVar(
		&c.secrets,
		"namespace",
		flags.Name(),
		"read Secrets with kubeconfigs in this namespace, and hold the leader lease there",
	)
	flags.StringVar(
		&c.healthAddress,
		"health-probe-bind-address",
		":8081",
		"serve /readyz and /healthz at this address",
	)
}

// engagedAtOnce is how many clusters the provider creates at the same time. So one that does not answer does not
// hold up the others.
const engagedAtOnce = 10

// NewManager returns a manager whose clusters are created with the options.
func (c *Clusters) NewManager(
	ctx context.Context,
	cfg *rest.Config,
	name string,
	options ...cluster.Option,
) (mcmanager.Manager, error) {
	if c.secrets == "" {
		return nil, errors.New("-namespace must not be empty")
	}
	provider := kubeconfig.New(kubeconfig.Options{
		Namespace:      c.secrets,
		ClusterOptions: options,
		RESTOptions:    []func(*rest.Config) error{SelfContained},
	})
	managed := c.Options(name)
	managed.Cache.ByObject = map[client.Object]cache.ByObject{
		&corev1.Secret{}: {Namespaces: map[string]cache.Config{c.secrets: {}}},
	}
	managed.Controller.GroupKindConcurrency = map[string]int{"Secret": engagedAtOnce}
	managed.HealthProbeBindAddress = c.healthAddress
	managed.LeaderElectionNamespace = c.secrets
	mgr, err := mcmanager.New(cfg, provider, managed)
	if err != nil {
		return nil, err
	}
	return mgr, provider.SetupWithManager(ctx, mgr)
}
