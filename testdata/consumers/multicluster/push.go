// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

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
