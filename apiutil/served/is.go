// SPDX-License-Identifier: Apache-2.0

package served

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/engine"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Is reports whether the server serves a kind. A program asks it once, when it starts, to decide which controllers it
// has. For a kind without a version, any version will do.
//
// The answer comes from a read that began after the call, mostly of two requests. A CustomResourceDefinition that is
// not Established yet is not served. If the server cannot be read, Is returns an error, for which meta.IsNoMatchError
// is false. If an APIService does not answer, Is returns an error for its own kinds, and works for all others. Is
// does not try again: it returns the error at once, after RequestTimeout if the server does not answer, or when ctx
// ends.
//
// Each call sends requests: in a reconciler, look the kind up with the mapper, and ask meta.IsNoMatchError. The answer
// is that of a moment: the kind may be installed, or removed, a second later. Wait and RunWhile notice that.
func Is(ctx context.Context, mapper *apiutil.DynamicRESTMapper, gvk schema.GroupVersionKind) (bool, error) {
	e := engine.Of(mapper)
	defer e.NoteUse()
	timeout := e.Options.RequestTimeout
	timedOut := discovery.NotAwaited(snapshot.ReadVersion(gvk.Group, gvk.Version), timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, timedOut)
	defer cancel()
	q := queryOf(gvk)
	found := e.Reloader.LookupSince(ctx, q, e.Reloader.LastSeq())
	known, current := found.Snapshot.Answers(&q)
	switch {
	case current:
		return true, nil
	case found.Err != nil || len(found.Failed) > 0:
		return false, e.LookupError(q, found.Failed, found.Err)
	case known:
		return false, e.LookupError(q, nil, errors.New("it was served before, and could not be confirmed now"))
	}
	return false, nil
}

// queryOf returns the query of a lookup of a kind, in its version or in any.
func queryOf(gvk schema.GroupVersionKind) snapshot.Query {
	q := snapshot.KindQuery(gvk.GroupKind(), []string{gvk.Version})
	q.RequireLive = true
	return q
}
