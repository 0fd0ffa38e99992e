// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"example.com/consumers/frame"
)

// tenants keeps a cluster.Cluster for every tenant, with its connections and with what
// its mapper has read.
type tenants struct {
	timeout time.Duration

	mu  sync.Mutex // guards all; nothing waits for a tenant while it is held
	all map[request]tenant
}

type tenant struct {
	kubeconfig []byte
	cluster    cluster.Cluster
}

func newTenants(timeout time.Duration) *tenants {
	return &tenants{timeout: timeout, all: map[request]tenant{}}
}

// get returns a tenant's cluster. It is the same cluster as long as the kubeconfig is the
// same. get sends no request.
func (t *tenants) get(key request, kubeconfig []byte) (cluster.Cluster, error) {
	t.mu.Lock()
	known, ok := t.all[key]
	t.mu.Unlock()
	if ok && bytes.Equal(known.kubeconfig, kubeconfig) {
		return known.cluster, nil
	}
	t.forget(key)
	c, err := t.connect(kubeconfig)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	t.all[key] = tenant{kubeconfig, c}
	t.mu.Unlock()
	return c, nil
}

// forget drops a tenant that has been removed, or whose kubeconfig has changed.
func (t *tenants) forget(key request) {
	t.mu.Lock()
	known, ok := t.all[key]
	delete(t.all, key)
	t.mu.Unlock()
	if ok {
		known.cluster.GetHTTPClient().CloseIdleConnections()
	}
}

// connect makes a cluster that is never started, so every read goes to the tenant. A
// cluster with a cache would have to be started, and stopped when it is forgotten.
func (t *tenants) connect(kubeconfig []byte) (cluster.Cluster, error) {
	cfg, err := restConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	// The timeout holds for each request, also for those of the mapper, which may have no
	// context. It would cut watches short, but there are none.
	cfg.Timeout = t.timeout
	return cluster.New(cfg, func(opts *cluster.Options) { opts.NewClient = uncached })
}

func uncached(cfg *rest.Config, opts client.Options) (client.Client, error) {
	opts.Cache = nil
	return client.New(cfg, opts)
}

var errNotKubeconfig = errors.New("the Secret holds no valid kubeconfig")

// restConfig reads a kubeconfig. If it cannot be parsed, the error does not name the
// reason, because the parser's message may quote the Secret.
func restConfig(kubeconfig []byte) (*rest.Config, error) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, errNotKubeconfig
	}
	cfg, err := clientcmd.NewDefaultClientConfig(*config, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotKubeconfig, err)
	}
	return cfg, frame.SelfContained(cfg)
}
