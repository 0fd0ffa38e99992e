// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// apis knows which kinds the server serves. There are two implementations: the RESTMapper
// of the fork, which learns of changes; and, for comparison, with the build tag stock, a
// scan, which asks from time to time.
type apis interface {
	// Watch calls changed with all kinds that are served, and again with what has changed
	// since then. It returns when ctx ends.
	Watch(ctx context.Context, changed func([]change))
	// RunWhileServed runs run while the kinds are served: it cancels run's context when
	// one goes, and runs it again when it is back.
	RunWhileServed(ctx context.Context, run func(context.Context) error, kinds ...schema.GroupVersionKind) error
}

// change is what happened to a kind in one version.
type change struct {
	resource
	served bool // as resource says; if it is not, it was
}

// resource is how a kind is served in one version.
type resource struct {
	gvk      schema.GroupVersionKind
	name     string
	obstacle string // why its objects cannot be mirrored; empty if they can
}

func newResource(gvk schema.GroupVersionKind, name string, namespaced bool, verbs []string) resource {
	return resource{gvk: gvk, name: name, obstacle: obstacle(namespaced, verbs)}
}

// obstacle is known without a request, and without a try.
func obstacle(namespaced bool, verbs []string) string {
	if !namespaced {
		return "objects of this kind are in no namespace"
	}
	var missing []string
	for _, verb := range []string{"get", "list", "watch", "create", "patch", "delete"} {
		if !slices.Contains(verbs, verb) {
			missing = append(missing, verb)
		}
	}
	if len(missing) > 0 {
		return "the server does not know the verbs " + strings.Join(missing, ", ") + " for this kind"
	}
	return ""
}
