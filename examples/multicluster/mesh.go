// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var clusterMeshKind = schema.GroupVersionKind{Group: "multicluster.example.com", Version: "v1", Kind: "ClusterMesh"}

// The types of conditions, and their reasons. The reasons of a tenant that is not ready
// are beside the type incomplete.
const (
	typeComplete     = "Complete" // of the mesh: every tenant is Ready
	reasonAllPushed  = "AllPushed"
	reasonIncomplete = "Incomplete"

	typeReady    = "Ready" // of a tenant: whether the last push of its Peer succeeded
	reasonPushed = "Pushed"
	reasonFailed = "Failed" // tried again with backoff
)

// clusterMesh is what a ClusterMesh holds. Its CRD is in deploy.yaml.
type clusterMesh struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     meshSpec          `json:"spec"`
	Status   meshStatus        `json:"status,omitempty"`
}

type meshSpec struct {
	Tenants []tenantSpec `json:"tenants"`
}

type tenantSpec struct {
	Name             string `json:"name"`
	KubeconfigSecret string `json:"kubeconfigSecret"` // in the mesh's namespace
}

type meshStatus struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	Tenants    []tenantStatus     `json:"tenants,omitempty"`
}

type tenantStatus struct {
	Name        string             `json:"name"`
	PeerVersion string             `json:"peerVersion,omitempty"` // in which the Peer was last pushed
	Conditions  []metav1.Condition `json:"conditions,omitempty"`
}

func newObject() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(clusterMeshKind)
	return object
}

func decode(object *unstructured.Unstructured) (*clusterMesh, error) {
	mesh := &clusterMesh{}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, mesh)
	if err != nil {
		return nil, fmt.Errorf("failed to read ClusterMesh %s/%s: %w", object.GetNamespace(), object.GetName(), err)
	}
	return mesh, nil
}

// encodeStatus writes the status of mesh into object.
func (m *clusterMesh) encodeStatus(object *unstructured.Unstructured) error {
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&m.Status)
	if err != nil {
		return err
	}
	return unstructured.SetNestedMap(object.Object, status, "status")
}

func (m *clusterMesh) tenant(name string) (tenantSpec, bool) {
	i := slices.IndexFunc(m.Spec.Tenants, func(t tenantSpec) bool { return t.Name == name })
	if i < 0 {
		return tenantSpec{}, false
	}
	return m.Spec.Tenants[i], true
}

func (m *clusterMesh) tenantNames() []string {
	names := make([]string, 0, len(m.Spec.Tenants))
	for _, t := range m.Spec.Tenants {
		names = append(names, t.Name)
	}
	return names
}

// record writes the state of a tenant into the status, drops tenants that are no longer
// in the spec, and sums up.
func (m *clusterMesh) record(tenant, peerVersion string, ready metav1.Condition) {
	m.Status.Tenants = slices.DeleteFunc(m.Status.Tenants, func(t tenantStatus) bool {
		_, ok := m.tenant(t.Name)
		return !ok
	})
	if _, ok := m.tenant(tenant); ok {
		t := m.tenantStatus(tenant)
		if peerVersion != "" {
			t.PeerVersion = peerVersion
		}
		ready.Type, ready.ObservedGeneration = typeReady, m.Metadata.Generation
		meta.SetStatusCondition(&t.Conditions, ready)
	}
	complete := m.complete()
	complete.ObservedGeneration = m.Metadata.Generation
	meta.SetStatusCondition(&m.Status.Conditions, complete)
}

// tenantStatus returns the status of a tenant. It adds one if there is none.
func (m *clusterMesh) tenantStatus(name string) *tenantStatus {
	i := slices.IndexFunc(m.Status.Tenants, func(t tenantStatus) bool { return t.Name == name })
	if i < 0 {
		i = len(m.Status.Tenants)
		m.Status.Tenants = append(m.Status.Tenants, tenantStatus{Name: name})
	}
	return &m.Status.Tenants[i]
}

func (m *clusterMesh) complete() metav1.Condition {
	waiting := slices.DeleteFunc(m.tenantNames(), func(name string) bool {
		return slices.ContainsFunc(m.Status.Tenants, func(t tenantStatus) bool {
			return t.Name == name && meta.IsStatusConditionTrue(t.Conditions, typeReady)
		})
	})
	if len(waiting) == 0 {
		return metav1.Condition{
			Type: typeComplete, Status: metav1.ConditionTrue, Reason: reasonAllPushed,
			Message: fmt.Sprintf("all %d tenants have their Peer", len(m.Spec.Tenants)),
		}
	}
	return metav1.Condition{
		Type: typeComplete, Status: metav1.ConditionFalse, Reason: reasonIncomplete,
		Message: fmt.Sprintf(
			"%d of %d tenants wait for their Peer: %s",
			len(waiting),
			len(m.Spec.Tenants),
			strings.Join(waiting, ", "),
		),
	}
}
