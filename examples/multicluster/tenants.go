// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

const (
	kubeconfigKey = "kubeconfig"   // in the data of a Secret
	fieldOwner    = "multicluster" // of what is applied in a tenant
)

// Why a tenant cannot have its Peer yet.
const (
	secretMissing     = "SecretMissing"
	kubeconfigMissing = "KubeconfigMissing"
	kubeconfigInvalid = "KubeconfigInvalid"
	unreachable       = "Unreachable"
	noNodes           = "NoNodes"
	peerNotServed     = "PeerNotServed"
)

// incomplete is the error of a tenant that is not ready yet. The tenant is tried again
// after a constant delay.
type incomplete struct {
	reason string
	err    error
}

func (i *incomplete) Error() string { return i.err.Error() }
func (i *incomplete) Unwrap() error { return i.err }

// push gives a tenant its Peer, and returns the version of that Peer.
func (r *reconciler) push(ctx context.Context, req request, mesh *clusterMesh, tenant tenantSpec) (string, error) {
	kubeconfig, err := r.kubeconfig(ctx, client.ObjectKey{Namespace: req.Mesh.Namespace, Name: tenant.KubeconfigSecret})
	if err != nil {
		return "", err
	}
	cluster, err := r.tenants.get(req, kubeconfig)
	if err != nil {
		return "", &incomplete{kubeconfigInvalid, err}
	}
	if err := hasNodes(ctx, cluster.GetClient()); err != nil {
		return "", orUnreachable(err)
	}
	mapping, err := r.lookUp(ctx, cluster.GetRESTMapper())
	if err != nil {
		return "", orUnreachable(err)
	}
	peer := client.ApplyConfigurationFromUnstructured(newPeer(mapping, mesh))
	err = cluster.GetClient().Apply(ctx, peer, client.FieldOwner(fieldOwner), client.ForceOwnership)
	if apierrors.IsNotFound(err) {
		// The tenant has dropped the version since it was looked up.
		meta.MaybeResetRESTMapper(cluster.GetRESTMapper())
	}
	if err != nil {
		return "", orUnreachable(fmt.Errorf("failed to apply %s: %w", mapping.GroupVersionKind, err))
	}
	return mapping.GroupVersionKind.Version, nil
}

func (r *reconciler) kubeconfig(ctx context.Context, key client.ObjectKey) ([]byte, error) {
	var secret corev1.Secret
	err := r.client.Get(ctx, key, &secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, &incomplete{secretMissing, fmt.Errorf("there is no Secret %s", key)}
	case err != nil:
		return nil, err
	case len(secret.Data[kubeconfigKey]) == 0:
		return nil, &incomplete{kubeconfigMissing, fmt.Errorf("there is no key %q in Secret %s", kubeconfigKey, key)}
	}
	return secret.Data[kubeconfigKey], nil
}

// hasNodes asks for one node: without a node, nothing can run that acts on a Peer.
func hasNodes(ctx context.Context, tenant client.Reader) error {
	var nodes corev1.NodeList
	if err := tenant.List(ctx, &nodes, client.Limit(1)); err != nil {
		return fmt.Errorf("failed to list nodes: %w", err)
	}
	if len(nodes.Items) == 0 {
		return &incomplete{noNodes, errors.New("the tenant has no nodes yet")}
	}
	return nil
}

// lookUp looks up the kind in the version that the tenant prefers, because tenants are
// upgraded one by one. It does so each time, because versions come and go.
func (r *reconciler) lookUp(ctx context.Context, mapper meta.RESTMapper) (*meta.RESTMapping, error) {
	mapping, err := meta.ToRESTMapperWithContext(mapper).RESTMappingWithContext(ctx, r.peer)
	if !meta.IsNoMatchError(err) {
		return mapping, err
	}
	return nil, &incomplete{peerNotServed, err}
}

// orUnreachable marks an error that means that the tenant gave no answer. A refusal is an
// answer.
func orUnreachable(err error) error {
	if network := net.Error(nil); errors.As(err, &network) {
		return &incomplete{unreachable, err}
	}
	return err
}

// newPeer returns the Peer of a mesh, which lists the mesh's tenants. It has the mesh's
// name and, if Peers are namespaced, its namespace, which must exist in the tenant.
func newPeer(mapping *meta.RESTMapping, mesh *clusterMesh) *unstructured.Unstructured {
	tenants := make([]any, 0, len(mesh.Spec.Tenants))
	for _, name := range mesh.tenantNames() {
		tenants = append(tenants, name)
	}
	peer := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"tenants": tenants}}}
	peer.SetGroupVersionKind(mapping.GroupVersionKind)
	peer.SetName(mesh.Metadata.Name)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		peer.SetNamespace(mesh.Metadata.Namespace)
	}
	return peer
}
