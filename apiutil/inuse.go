// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// inUse is which kinds clients and informers use, so that the log tells of their changes
// and of no others. A mapper cannot find that out itself: a client asks it for a kind
// before each request, and stock's client only once.
type inUse struct{ kinds sync.Map } // of usage by schema.GroupVersionKind

// usage is what a client of a kind depends on.
type usage struct {
	resource, preferred string
	scope               meta.RESTScopeName
}

// usageIn returns the zero usage if the kind is not served.
func usageIn(s *snapshot.Snapshot, gvk schema.GroupVersionKind) usage {
	mapping, _, err := s.RESTMapping(gvk.GroupKind(), []string{gvk.Version})
	if err != nil {
		return usage{}
	}
	now := usage{resource: mapping.Resource.Resource, scope: mapping.Scope.Name()}
	if preferred, _, err := s.RESTMapping(gvk.GroupKind(), nil); err == nil {
		now.preferred = preferred.GroupVersionKind.Version
	}
	return now
}

// Use tells the mapper that a client or an informer uses a kind. The mapper then logs when
// the kind's mapping changes. Clients and informers in a controller-runtime tree with this
// mapper inside call it.
func (m *DynamicRESTMapper) Use(gvk schema.GroupVersionKind) {
	if now := usageIn(m.reloader.Snapshot(), gvk); now != (usage{}) {
		m.used.kinds.LoadOrStore(gvk, now)
	}
}

// logInUse logs each kind in use whose mapping has changed. A kind that is gone has no
// mapping. It is compared again when it comes back. logInUse reports whether any kind is
// known to be in use. Only change calls it.
func (m *DynamicRESTMapper) logInUse() (used bool) {
	s := m.reloader.Snapshot()
	for key, value := range m.used.kinds.Range {
		used = true
		gvk, was := key.(schema.GroupVersionKind), value.(usage)
		now := usageIn(s, gvk)
		if now == was || now == (usage{}) {
			continue
		}
		m.used.kinds.Store(gvk, now)
		m.logger().Info("the mapping of a kind in use has changed", "kind", gvk.String(),
			"oldResource", was.resource, "oldScope", was.scope, "oldPreferredVersion", was.preferred,
			"resource", now.resource, "scope", now.scope, "preferredVersion", now.preferred)
	}
	return used
}

// Memory returns a map for what clients and informers remember of the kinds that a mapper
// has mapped for them: for a kind that is gone, the last mapping. All that ask for the
// memory of this mapper share one. So a kind that is gone costs its lookups once, and not
// once a client. What wraps this mapper may map otherwise: it gets a memory of its own.
// Clients and informers in a controller-runtime tree with this mapper inside call it.
func (m *DynamicRESTMapper) Memory(of meta.RESTMapper) *sync.Map {
	if of == meta.RESTMapper(m) {
		return &m.memory
	}
	return &sync.Map{}
}

// Knows reports whether the mapper knows a kind now. It is no lookup, and reads nothing.
// Clients and informers in a controller-runtime tree with this mapper inside call it.
func (m *DynamicRESTMapper) Knows(gvk schema.GroupVersionKind) bool {
	return usageIn(m.reloader.Snapshot(), gvk) != (usage{})
}

// Changed returns a channel that is closed when the mapper next learns anything of the
// server. Waiting for it is no lookup and no use. Informers in a controller-runtime tree
// with this mapper inside call it.
func (m *DynamicRESTMapper) Changed() <-chan struct{} { return m.reloader.Changed() }
