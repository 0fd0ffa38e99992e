// SPDX-License-Identifier: Apache-2.0

//go:build linux

package control

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// CRDs are the CustomResourceDefinitions of an API server.
func (s *Process) CRDs() (dynamic.ResourceInterface, error) {
	client, err := dynamic.NewForConfig(s.Config())
	if err != nil {
		return nil, err
	}
	return client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}), nil
}

// CRD is the CustomResourceDefinition of a kind, whose versions are all served.
func CRD(group, kind string, cluster bool, versions ...string) *unstructured.Unstructured {
	scope := "Namespaced"
	if cluster {
		scope = "Cluster"
	}
	var list []any
	for i, v := range versions {
		list = append(list, map[string]any{
			"name": v, "served": true, "storage": i == 0,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
		})
	}
	singular := strings.ToLower(kind)
	plural := singular + "s"
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + "." + group},
		"spec": map[string]any{
			"group": group, "scope": scope, "versions": list,
			"names": map[string]any{"kind": kind, "plural": plural, "singular": singular},
		},
	}}
}
