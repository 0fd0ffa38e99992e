// SPDX-License-Identifier: Apache-2.0

package served

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/engine"
	"github.com/freshmapper/freshmapper/internal/report"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// APIs is what a server serves.
type APIs struct {
	Generation uint64               // what is served is the same as long as the mapper's Generation is
	Kinds      []apiutil.ServedKind // in the server's order; a kind is there once for each version
}

// List returns what the server serves: all kinds, or, in any group and version, those of the given names, whose case
// does not matter. So it finds a kind of which only the name is known. Without a name, which an empty slice is, too, it
// returns everything.
//
// It is as fresh as a lookup: it sends no request if everything was read or confirmed within MaxAge. Otherwise it
// reads the server first, until ctx ends, and for about 10 seconds at most if something is known. If that fails, or
// single versions can't be read, it returns what is known of the rest together with an error; of versions that is an
// *apiutil.ErrResourceDiscoveryFailed. An empty result of a moment ago does not prove that a kind is absent, as false
// from Is does. For a list of now, call Refresh of the mapper first.
//
// What it returns belongs to the caller, and the mapper keeps nothing of it. It takes about 300 bytes a kind.
func List(ctx context.Context, mapper *apiutil.DynamicRESTMapper, names ...string) (APIs, error) {
	e := engine.Of(mapper)
	began, unread := time.Now(), !e.Reloader.Snapshot().Read()
	var old error
	if !unread {
		old = e.Reloader.ConfirmAll(ctx, 1)
	}
	some := "pods"
	e.Reloader.Snapshot().KindsWhere(func(r *snapshot.Resource) bool { some = r.Name; return false })
	q := snapshot.ResourceQuery(schema.GroupVersionResource{Resource: some})
	q.All = true // current only if all groups are
	found := e.Reloader.Lookup(ctx, q)
	e.NoteUse()
	var err error
	switch {
	case found.Err != nil:
		err = e.LookupError(q, nil, found.Err)
	case old != nil:
		err = fmt.Errorf("what is served was last confirmed more than MaxAge ago: %w", old)
	case unread:
		e.Reloader.NoteAllRead(began)
	}
	s := e.Reloader.Snapshot()
	all := APIs{Generation: s.Generation()}
	for _, k := range s.KindsWhere(func(r *snapshot.Resource) bool {
		return len(names) == 0 || slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, r.Kind) })
	}) {
		all.Kinds = append(all.Kinds, apiutil.ServedKind{Mapping: k.Mapping, Verbs: k.Verbs.Names()})
	}
	failed := engine.FailedVersions(s)
	for gv, why := range found.Failed { // of those whose read has had no answer yet
		if failed[gv] == nil {
			failed[gv] = why
		}
	}
	if len(failed) > 0 {
		err = errors.Join(err, e.Options.DiscoveryFailed(failed))
	}
	return all, err
}

// Hint returns where the kind, or the resource, of a NoMatch is served instead, as far as the mapper knows, for a person
// who reads the error: "Widget: example.com/v2, example.org/v1". It returns "" if err has no NoMatch, or if nothing of
// that name is known to be served. It sends no request, and the text is for people only. The mapper writes it to its
// Logger at level 1, too, and to the debug page.
func Hint(mapper *apiutil.DynamicRESTMapper, err error) string {
	return report.Hint(engine.Of(mapper).Reloader.Snapshot(), err)
}
