// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// apis is what lazywatch asks of whoever knows which kinds the server serves.
// There are two: the RESTMapper of the fork, which is told of changes; and, for
// comparison, with the build tag stock, a scan, which asks from time to time.
type apis interface {
	// Served calls found with the kinds that are served, all in one call at first,
	// and again with those that came. It returns when ctx ends.
	Served(ctx context.Context, found func([]schema.GroupKind))
	// Mapping returns how a kind is served, in the version that the server prefers.
	Mapping(kind schema.GroupKind) (*meta.RESTMapping, error)
	// RunWhileServed runs run while the kinds, given without a version, are served:
	// it cancels run's context when one goes, and runs it again when it is back.
	RunWhileServed(ctx context.Context, run func(context.Context) error, kinds ...schema.GroupVersionKind) error
}
