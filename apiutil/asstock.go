// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// AsStock returns what to ask a RESTMapper for the mapping of a kind in a version, for a
// client that does not follow that mapper. If the question reaches a mapper of ours, it
// answers as stock's mapper would: with the first mapping that it has given to such a
// client, also of a kind that is gone. To any other mapper it is a question like all others.
// Clients and informers in a controller-runtime tree with this mapper inside call it.
//
// A program may wrap our mapper or combine it with others as it likes, and no argument of a
// RESTMapper's methods says who asks. But nearly all pass this slice on. So the mark that
// only our mapper looks for is in the array of the slice, behind its end. Who passes on a copy
// is answered like anybody else; to be followed, it says what it wraps (Unwrap).
func AsStock(version string) []string { return []string{version, stocksMark}[:1] }

const stocksMark = "as stock"

func isAsStock(versions []string) bool {
	return len(versions) == 1 && cap(versions) == 2 && versions[:2][1] == stocksMark
}

// firstMapping returns the first mapping of a kind that it has found.
func (m *DynamicRESTMapper) firstMapping(ctx context.Context, gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	m.member.use()
	first, ok := m.first.Load(gvk)
	if !ok {
		mapping, err := m.RESTMappingWithContext(ctx, gvk.GroupKind(), gvk.Version)
		switch {
		case err == nil:
			first = mapping
		case meta.IsNoMatchError(err): // stock's has the list of a kind for as long as the kind
			if first, ok = m.first.Load(gvk.GroupVersion().WithKind(strings.TrimSuffix(gvk.Kind, "List"))); ok {
				first = ListOf(first.(*meta.RESTMapping))
			}
		}
		if err != nil && !ok {
			return nil, err
		}
		first, _ = m.first.LoadOrStore(gvk, first)
	}
	mapping := *first.(*meta.RESTMapping)
	return &mapping, nil
}

// ListOf returns the mapping of the list of a kind, as a mapper has it beside that of the
// kind: with its scope, and a resource that is guessed. So what is sent for a kind that is
// only called like a list never reaches the other kind. Clients and informers in a
// controller-runtime tree with this mapper inside call it.
func ListOf(kind *meta.RESTMapping) *meta.RESTMapping {
	gvk := kind.GroupVersionKind
	gvk.Kind += "List"
	resource, _ := meta.UnsafeGuessKindToResource(gvk)
	return &meta.RESTMapping{Resource: resource, GroupVersionKind: gvk, Scope: kind.Scope}
}
