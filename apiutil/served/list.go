// SPDX-License-Identifier: Apache-2.0

package served

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

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
	everything := e.ReadAll(ctx)
	all := APIs{Generation: everything.Snapshot.Generation()}
	wanted := func(r *snapshot.Resource) bool {
		sameName := func(name string) bool { return strings.EqualFold(name, r.Kind) }
		return len(names) == 0 || slices.ContainsFunc(names, sameName)
	}
	for _, k := range everything.Snapshot.KindsWhere(wanted) {
		all.Kinds = append(all.Kinds, apiutil.ServedKind{Mapping: k.Mapping, Verbs: k.Verbs.Names()})
	}
	var err error
	switch {
	case everything.Err != nil:
		err = fmt.Errorf("failed to list what is served: %w", everything.Err)
	case everything.NotConfirmed != nil:
		err = fmt.Errorf("what is served was last confirmed more than MaxAge ago: %w", everything.NotConfirmed)
	}
	if len(everything.Failed) > 0 {
		err = errors.Join(err, e.Options.DiscoveryFailed(everything.Failed))
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
