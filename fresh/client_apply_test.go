// SPDX-License-Identifier: Apache-2.0

package fresh_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// An apply configuration is applied where its kind is, as a new client would do it. One that names a namespace never
// reaches the cluster-scoped object of a kind that was namespaced.
func TestApply(t *testing.T) {
	s := newChangingServer(t, inNamespaces)
	c := s.client(t, nil)
	apply := func(namespace string) error {
		config := corev1ac.ConfigMap("n", namespace)
		if namespace == "" {
			config.Namespace = nil
		}
		return c.Apply(t.Context(), config, client.FieldOwner("me"))
	}
	must(t, apply("ns"))
	s.change(func() { s.plural = "gizmos" })
	_, _ = s.take()
	must(t, apply("ns"))
	if sent, _ := s.take(); len(sent) != 2 || sent[1] != "PATCH /api/v1/namespaces/ns/gizmos/n" {
		t.Errorf("another plural: sent %q, want the second request where the kind is", sent)
	}
	s.change(func() { s.scope = ofCluster })
	refresh(t, c)
	_, _ = s.take()
	if err := apply("ns"); !apierrors.IsNotFound(err) {
		t.Errorf("for a namespace: %v, want a 404", err)
	}
	if sent, _ := s.take(); len(sent) > 0 {
		t.Errorf("for a namespace: sent %q, want nothing", sent)
	}
	must(t, apply(""))
	if sent, _ := s.take(); len(sent) != 1 || sent[0] != "PATCH /api/v1/gizmos/n" {
		t.Errorf("for none: sent %q, want one request for the cluster-scoped object", sent)
	}
	if err := c.Apply(t.Context(), &corev1ac.ConfigMapApplyConfiguration{}, client.FieldOwner("me")); err == nil {
		t.Error("an apply configuration without a kind was applied")
	}
	must(t, c.Get(t.Context(), client.ObjectKey{Name: "n"}, &corev1.ConfigMap{}))
}
