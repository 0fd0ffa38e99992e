// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Differ reports whether two mappings of a kind lead to different paths.
func Differ(a, b *meta.RESTMapping) bool {
	return a.Resource != b.Resource || a.Scope.Name() != b.Scope.Name()
}

// PinnedMapper is a mapper that has one mapping, and asks another mapper for all other kinds. A cache that was made
// with it never learns of another path.
type PinnedMapper struct {
	meta.RESTMapper
	Mapping *meta.RESTMapping
}

// RESTMapping returns the pinned mapping, also that of the kind's list.
func (p PinnedMapper) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	pinned := p.Mapping.GroupVersionKind
	if !slices.Equal(versions, []string{pinned.Version}) {
		return p.RESTMapper.RESTMapping(gk, versions...)
	}
	list := schema.GroupKind{Group: pinned.Group, Kind: pinned.Kind + "List"}
	switch gk {
	case pinned.GroupKind():
		return p.Mapping, nil
	case list:
		ofList := *p.Mapping
		ofList.GroupVersionKind = list.WithVersion(pinned.Version)
		return &ofList, nil
	default:
		return p.RESTMapper.RESTMapping(gk, versions...)
	}
}
