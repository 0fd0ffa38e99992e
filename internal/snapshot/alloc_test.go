// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// typical is a server with so many groups, each with three kinds in v1, v1beta1
// and one kind more in v1beta1 alone, after the core group.
func typical(groups int) document {
	doc := document{{name: "", preferred: "v1", versions: []docVersion{{name: "v1", read: true, resources: []Resource{
		{Name: "pods", Singular: "pod", Kind: "Pod", Namespaced: true},
		{Name: "nodes", Singular: "node", Kind: "Node"},
		{Name: "pods/status", Kind: "Pod", Namespaced: true},
	}}}}}
	for i := range groups - 1 {
		var resources []Resource
		for j := range 4 {
			kind := fmt.Sprintf("Kind%dOf%d", j, i)
			resources = append(resources, Resource{
				Name: fmt.Sprintf("kind%dof%ds", j, i), Singular: fmt.Sprintf("kind%dof%d", j, i), Kind: kind, Namespaced: j%2 == 0,
			})
		}
		doc = append(doc, docGroup{name: fmt.Sprintf("group%d.example.com", i), preferred: "v1", versions: []docVersion{
			{name: "v1", read: true, resources: resources[:3]}, {name: "v1beta1", read: true, resources: resources},
		}})
	}
	return doc
}

// TestHitAllocatesOnlyItsAnswer pins what a hit allocates: the answer.
func TestHitAllocatesOnlyItsAnswer(t *testing.T) {
	s := typical(50).snapshot().indexed()
	versions := []string{"v1"}
	gk := schema.GroupKind{Group: "group33.example.com", Kind: "Kind1Of33"}
	later := schema.GroupKind{Group: "group33.example.com", Kind: "Kind3Of33"}
	pod := schema.GroupKind{Kind: "Pod"}
	gvr := schema.GroupVersionResource{Group: "group33.example.com", Version: "v1", Resource: "kind1of33s"}
	singular := schema.GroupVersionResource{Group: "group33.example.com", Version: "v1", Resource: "kind1of33"}
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	anyPods := schema.GroupVersionResource{Resource: "pods"}
	anyVersion := schema.GroupVersionResource{Group: "group33.example.com", Resource: "kind1of33s"}
	anyGroup := schema.GroupVersionResource{Resource: "kind1of33s"}
	tests := []struct {
		name   string
		want   float64
		lookup func() (settled bool, err error)
	}{
		{"RESTMapping of a version", 1, func() (bool, error) { _, settled, err := s.RESTMapping(gk, versions); return settled, err }},
		{"RESTMapping", 1, func() (bool, error) { _, settled, err := s.RESTMapping(gk, nil); return settled, err }},
		{"RESTMapping in a later version", 1, func() (bool, error) { _, settled, err := s.RESTMapping(later, nil); return settled, err }},
		{"RESTMapping in the core group", 1, func() (bool, error) { _, settled, err := s.RESTMapping(pod, versions); return settled, err }},
		{"RESTMappings", 1, func() (bool, error) { _, settled, err := s.RESTMappings(gk, nil); return settled, err }},
		{"RESTMappings of a version", 1, func() (bool, error) { _, settled, err := s.RESTMappings(gk, versions); return settled, err }},
		{"KindFor", 0, func() (bool, error) { _, settled, err := s.KindFor(gvr); return settled, err }},
		{"KindFor a singular", 0, func() (bool, error) { _, settled, err := s.KindFor(singular); return settled, err }},
		{"KindsFor without a version", 1, func() (bool, error) { _, settled, err := s.KindsFor(anyVersion); return settled, err }},
		{"ResourcesFor without a version", 1, func() (bool, error) { _, settled, err := s.ResourcesFor(anyVersion); return settled, err }},
		{"KindFor in the core group", 0, func() (bool, error) { _, settled, err := s.KindFor(pods); return settled, err }},
		{"KindFor in the core group without a version", 0, func() (bool, error) { _, settled, err := s.KindFor(anyPods); return settled, err }},
		{"ResourceFor", 0, func() (bool, error) { _, settled, err := s.ResourceFor(gvr); return settled, err }},
		{"ResourceFor in the core group", 0, func() (bool, error) { _, settled, err := s.ResourceFor(pods); return settled, err }},
		{"KindsFor", 1, func() (bool, error) { _, settled, err := s.KindsFor(gvr); return settled, err }},
		{"ResourcesFor", 1, func() (bool, error) { _, settled, err := s.ResourcesFor(gvr); return settled, err }},
		{"KindFor without a group", 0, func() (bool, error) { _, settled, err := s.KindFor(anyGroup); return settled, err }},
		{"ResourcesFor without a group", 1, func() (bool, error) { _, settled, err := s.ResourcesFor(anyGroup); return settled, err }},
		{"ResourceSingularizer", 0, func() (bool, error) { _, settled, err := s.ResourceSingularizer("kind1of33s"); return settled, err }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if settled, err := test.lookup(); !settled || err != nil {
				t.Fatalf("settled %v, error %v", settled, err)
			}
			if got := testing.AllocsPerRun(1000, func() { _, _ = test.lookup() }); got != test.want {
				t.Errorf("%v allocations, not %v", got, test.want)
			}
		})
	}
}
