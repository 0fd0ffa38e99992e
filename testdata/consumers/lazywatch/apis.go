// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// apis knows which kinds the server serves. There are two implementations: the RESTMapper
// of the fork, which learns of changes; and, for comparison, with the build tag stock, a
// scan, which asks from time to time.
type apis interface {
	// Served calls found once with all kinds that are served, and again with those that
	// have come since then. It returns when ctx ends.
	Served(ctx context.Context, found func([]schema.GroupKind))
	// Mapping returns how a kind is served, in the version that the server prefers.
	Mapping(kind schema.GroupKind) (*meta.RESTMapping, error)
	// RunWhileServed runs run while the kinds, given without a version, are served:
	// it cancels run's context when one goes, and runs it again when it is back.
	RunWhileServed(ctx context.Context, run func(context.Context) error, kinds ...schema.GroupVersionKind) error
}
