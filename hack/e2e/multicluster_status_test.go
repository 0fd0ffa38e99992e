// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// meshStatus is what the operator says of a tenant.
type meshStatus struct{ reason, message, peerVersion string }

type meshObject struct {
	Status struct {
		Conditions []metav1.Condition `json:"conditions"`
		Tenants    []struct {
			Name        string             `json:"name"`
			PeerVersion string             `json:"peerVersion"`
			Conditions  []metav1.Condition `json:"conditions"`
		} `json:"tenants"`
	} `json:"status"`
}

func (r *meshReplay) object(s *side) (*meshObject, error) {
	object, mesh := newClusterMesh(r.namespace(s), nil), &meshObject{}
	if err := r.server.Client.Get(r.ctx, client.ObjectKeyFromObject(object), object); err != nil {
		return nil, err
	}
	return mesh, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, mesh)
}

func (r *meshReplay) status(s *side, tenant string) (meshStatus, error) {
	mesh, err := r.object(s)
	if err != nil {
		return meshStatus{}, err
	}
	for _, t := range mesh.Status.Tenants {
		if t.Name == tenant && len(t.Conditions) > 0 {
			return meshStatus{t.Conditions[0].Reason, t.Conditions[0].Message, t.PeerVersion}, nil
		}
	}
	return meshStatus{}, nil
}

func (r *meshReplay) complete(s *side) (string, error) {
	mesh, err := r.object(s)
	if err != nil || len(mesh.Status.Conditions) == 0 {
		return "", err
	}
	return string(mesh.Status.Conditions[0].Status), nil
}
