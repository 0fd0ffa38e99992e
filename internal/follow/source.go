// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Wait is how long a caller waits for a live read.
type Wait int

const (
	// WaitBriefly is for a client, which has an answer of the server already when it asks whether its mapping is right:
	// for two seconds, and not at all if no read is allowed now.
	WaitBriefly Wait = iota
	// WaitUntilRead is for a cache, which has nothing else to do: until a read is allowed and has ended.
	WaitUntilRead
)

// Source is what clients and caches ask a mapper of ours. No method is a lookup, or counts as a use of the mapper.
type Source interface {
	// Known returns the mapping of a kind as the mapper knows it now. It reads nothing. The error is NoMatch if the
	// kind is known not to be served, and another one if that is not known.
	Known(schema.GroupVersionKind) (*meta.RESTMapping, error)

	// KindsAt returns the kinds that are known to have a resource. It reads nothing.
	KindsAt(schema.GroupVersionResource) []string

	// Confirm reads the version of a kind live, and returns the mapping that a read shows which began after the call.
	// The error is NoMatch if that read shows that the kind is not served, and another one if there was no such read.
	// Callers share reads, whose number is bounded: four in a row, and then one in four seconds. Those that wait
	// briefly and the others have bounds of their own.
	Confirm(ctx context.Context, gvk schema.GroupVersionKind, wait Wait) (*meta.RESTMapping, error)

	// Poll asks the server whether kinds that are not served are served now: by a live read of each of their versions, or,
	// if there are several and the discovery document has all resources, by one refresh of that. What it finds is known
	// afterwards. A question that was asked a moment ago, by whomever, is not asked again.
	Poll(ctx context.Context, kinds []schema.GroupVersionKind) error

	// Watching reports whether watches tell the mapper of changes of the served API.
	Watching() bool

	// Hint says in which other versions or groups the kind of a NoMatch error is served, or "". It reads nothing.
	Hint(err error) string

	// Changed returns a channel that is closed when the mapper next learns anything. To miss nothing, get the channel
	// first and then ask.
	Changed() <-chan struct{}

	// Generation changes with the served API, and with each reset.
	Generation() uint64
}

// Followed is a mapper of ours, and what all clients and caches share that follow it.
type Followed struct {
	Source

	// ReportSwitch is called when a "client" or a "cache" has switched to the new path of a kind.
	ReportSwitch func(who string)
	// ReportWaiting is called when the number of caches that wait for a kind has changed. It may be nil.
	ReportWaiting func(gvk schema.GroupVersionKind, caches int)

	// Separate is whether each client and each cache remembers by itself, because they have nothing to do with each
	// other.
	Separate bool

	sharedMemory memory
	namespaced   Map[schema.GroupKind, bool] // somebody was handed a namespaced mapping of the kind, in lower case
	waiting      waiting
}

// FollowedOf returns what a mapper of ours is followed by, and nil for any other mapper. Package apiutil sets it when a
// program starts, and nobody else.
var FollowedOf = func(meta.RESTMapper) *Followed { return nil } //nolint:gochecknoglobals // See the package's doc.
