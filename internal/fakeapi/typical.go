// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"fmt"
	"slices"
	"strings"
)

// Typical returns the groups of a server: the core group and a number of groups of
// custom resources, named g0001.example.com and so on. Each has a number of kinds
// (Kind0001A, Kind0001B and so on, with resources kind0001as and so on), the same in
// each of its versions, the highest of which comes first.
func Typical(groups, versions, kinds int) []Group {
	list := []Group{core()}
	for n := 1; n <= groups; n++ {
		list = append(list, typicalGroup(n, versions, kinds))
	}
	return list
}

func typicalGroup(n, versions, kinds int) Group {
	resources := make([]Resource, 0, kinds)
	for k := range kinds {
		resources = append(resources, typicalResource(fmt.Sprintf("Kind%04d%s", n, letters(k))))
	}
	group := Group{Name: fmt.Sprintf("g%04d.example.com", n)}
	for v := versions; v > 0; v-- {
		group.Versions = append(group.Versions, Version{
			Name:      fmt.Sprintf("v%d", v),
			Resources: slices.Clone(resources),
		})
	}
	return group
}

func typicalResource(kind string) Resource {
	singular := strings.ToLower(kind)
	return Resource{
		Name:         singular + "s",
		Singular:     singular,
		Kind:         kind,
		Namespaced:   true,
		ShortNames:   []string{strings.Replace(singular, "kind", "k", 1)},
		Categories:   []string{"all", "example"},
		Subresources: []string{"status"},
	}
}

// letters counts A, B, …, Z, AA, AB and so on.
func letters(n int) string {
	last := string(rune('A' + n%26))
	if n < 26 {
		return last
	}
	return letters(n/26-1) + last
}

func core() Group {
	return Group{Versions: []Version{{Name: "v1", Resources: []Resource{
		{Name: "configmaps", Singular: "configmap", Kind: "ConfigMap", Namespaced: true, ShortNames: []string{"cm"}},
		{
			Name:         "namespaces",
			Singular:     "namespace",
			Kind:         "Namespace",
			ShortNames:   []string{"ns"},
			Subresources: []string{"finalize", "status"},
		},
		{Name: "nodes", Singular: "node", Kind: "Node", ShortNames: []string{"no"}, Subresources: []string{"status"}},
		{
			Name:         "pods",
			Singular:     "pod",
			Kind:         "Pod",
			Namespaced:   true,
			ShortNames:   []string{"po"},
			Categories:   []string{"all"},
			Subresources: []string{"status"},
		},
		{
			Name:         "replicationcontrollers",
			Singular:     "replicationcontroller",
			Kind:         "ReplicationController",
			Namespaced:   true,
			ShortNames:   []string{"rc"},
			Categories:   []string{"all"},
			Subresources: []string{"scale", "status"},
		},
		{Name: "secrets", Singular: "secret", Kind: "Secret", Namespaced: true},
		{
			Name:         "services",
			Singular:     "service",
			Kind:         "Service",
			Namespaced:   true,
			ShortNames:   []string{"svc"},
			Categories:   []string{"all"},
			Subresources: []string{"status"},
		},
	}}}}
}
