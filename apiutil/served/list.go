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
	// Generation is that of the mapper. As long as it is the same, so are the kinds.
	Generation uint64
	// Kinds are in the server's order. A kind is there once for each version.
	Kinds []apiutil.ServedKind
}

// List returns what the server serves: all kinds, or, in any group and version, those of the given names, whose case
// does not matter. So it finds a kind of which only the name is known.
//
// It is as fresh as a lookup: it sends no request if everything was read or confirmed within MaxAge. Otherwise it reads
// the server first, until ctx ends, and for about 10 seconds at most if something is known. For a list of this moment,
// call Refresh of the mapper first. To know that one kind is not served at this moment,
// use Is.
//
// If the server cannot be read, List returns what is known together with an error. If single versions cannot be read,
// it returns the rest, and what they served before, together with an *apiutil.ErrResourceDiscoveryFailed; find it with
// errors.As.
//
// What List returns belongs to the caller. It takes about 300 bytes a kind.
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

// Hint returns where the kind or the resource of a NoMatch error is served instead, as far as the mapper knows, for a
// person who reads the error: "Widget: example.com/v2, example.org/v1". It returns "" if err is no NoMatch, or if
// nothing of that name is known to be served. It sends no request. The mapper also writes the hint to its Logger at
// level 1, and to the debug page.
func Hint(mapper *apiutil.DynamicRESTMapper, err error) string {
	return report.Hint(engine.Of(mapper).Reloader.Snapshot(), err)
}
