// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/reload"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// recheck is where a lookup goes that the snapshot does not settle. It reads the
// part of the server that q is about and asks the snapshot once more. find is the
// lookup.
//
// What is known is returned even if the server could not be read; that something
// is absent is returned only if it could.
func recheck[T any](
	ctx context.Context, r *reload.Reloader, q reload.Query, find func(*snapshot.Snapshot) (T, bool, error),
) (T, error) {
	failed, readErr := r.Read(ctx, q, func(s *snapshot.Snapshot) bool {
		_, settled, _ := find(s)
		return settled
	})
	s := r.Snapshot()
	answer, _, err := find(s)
	switch {
	case readErr != nil && !s.Read():
		// Nothing is known yet.
	case readErr != nil && ctx.Err() != nil:
		// The caller did not wait for the server, so nobody knows what it would have said.
	case !meta.IsNoMatchError(err):
		return answer, err
	case readErr == nil && len(failed) == 0:
		return answer, err
	}
	var none T
	if readErr == nil {
		discoveryFailed := ErrResourceDiscoveryFailed(failed)
		readErr = &discoveryFailed
	}
	return none, fmt.Errorf("failed to look up %s: %w", describe(q), readErr)
}

// describe names what a query is about, for an error.
func describe(q reload.Query) string {
	switch {
	case q.ByResource && q.Group == "":
		return "a resource in any group"
	case len(q.Versions) == 0:
		return fmt.Sprintf("group %q", q.Group)
	default:
		return fmt.Sprintf("group %q in versions %q", q.Group, q.Versions)
	}
}

func kindQuery(gk schema.GroupKind, versions []string) reload.Query {
	return reload.Query{Group: gk.Group, Versions: specified(versions)}
}

func resourceQuery(resource schema.GroupVersionResource) reload.Query {
	return reload.Query{Group: resource.Group, Versions: specified([]string{resource.Version}), ByResource: true}
}

// specified returns the versions to search, each once, without those that client-go
// takes for none (k8s.io/apimachinery/pkg/api/meta, DefaultRESTMapper).
func specified(versions []string) []string {
	var result []string
	for _, v := range versions {
		if v != "" && v != runtime.APIVersionInternal && !slices.Contains(result, v) {
			result = append(result, v)
		}
	}
	return result
}
