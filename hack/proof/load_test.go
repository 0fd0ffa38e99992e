// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
)

type gvk = schema.GroupVersionKind

// kind is one that is served throughout.
type kind struct {
	gvk
	resource string
	cluster  bool // not of a namespace
}

const (
	// waitsFor is the time after which a call gives up; slack is how much longer it may
	// take on a busy machine. A call without a context ends only by the timeouts of its
	// requests, and it makes several.
	waitsFor   = 10 * time.Second
	slack      = 5 * time.Second
	withoutEnd = 60 * time.Second
)

// load is what random users of mappers do, and what they saw.
type load struct {
	*campaign
	steady  []kind
	churned []gvk // come and go: anything may be said of them
	never   []gvk // are never served

	// Of 1,000 calls so many are resets, waits, lookups of never and of churned. The
	// others are lookups of steady.
	resetting, waiting, missing, churning int
	anyGroup                              bool          // some of these have no group
	rest                                  time.Duration // at most, between two calls

	lookups, errors, misses, resets, waits atomic.Int64
	longest                                atomic.Int64 // of all calls, in nanoseconds
}

// run runs users of a mapper until ctx ends.
func (l *load) run(ctx context.Context, running *sync.WaitGroup, m *apiutil.DynamicRESTMapper, users, stream int) {
	for n := range users {
		r := l.random(stream + n)
		running.Go(func() {
			for ctx.Err() == nil {
				l.call(ctx, m, r)
				pause(ctx, time.Duration(r.Int64N(int64(l.rest))))
			}
		})
	}
}

// call makes a random call, and holds its answer to what is promised.
func (l *load) call(ctx context.Context, m *apiutil.DynamicRESTMapper, r *rand.Rand) {
	n := r.IntN(1000)
	of := func(share int) bool {
		n -= share
		return n < 0
	}
	k := l.steady[r.IntN(len(l.steady))]
	switch {
	case of(l.resetting):
		l.resets.Add(1)
		if r.IntN(2) == 0 {
			m.Reset()
		} else {
			m.ResetGroup(k.Group)
		}
	case of(l.waiting):
		l.wait(ctx, m, r, k)
	case of(l.missing):
		l.misses.Add(1)
		never := l.never[r.IntN(len(l.never))]
		_ = l.timed(ctx, "lookup of "+never.String(), func(ctx context.Context) error { return l.miss(ctx, m, never) })
	case of(l.churning):
		c := l.churned[r.IntN(len(l.churned))]
		_ = l.timed(ctx, "lookup of "+c.Kind, func(ctx context.Context) error {
			_, err := m.RESTMappingWithContext(ctx, c.GroupKind())
			return err
		})
	default:
		l.hit(ctx, m, r, k)
	}
}

// hit looks up what is served throughout. The mapper must never return NoMatch for it;
// any other error is allowed while a server is unwell.
func (l *load) hit(ctx context.Context, m *apiutil.DynamicRESTMapper, r *rand.Rand, k kind) {
	resource, sort := k.GroupVersion().WithResource(k.resource), r.IntN(5)
	call := func(ctx context.Context) (err error) {
		switch {
		case sort == 0:
			return l.find(ctx, m, k, k.Version)
		case sort == 1:
			_, err = m.KindForWithContext(ctx, resource.GroupResource().WithVersion(""))
		case sort == 2:
			_, err = m.ResourcesForWithContext(ctx, resource)
		case sort == 3 && l.anyGroup:
			var found []gvk
			if found, err = m.KindsForWithContext(ctx, schema.GroupVersionResource{Resource: k.resource}); err == nil && !slices.Contains(found, k.gvk) {
				l.broken("%s in any group is in %v", k.resource, found)
			}
		default:
			return l.find(ctx, m, k)
		}
		return err
	}
	if sort == 0 {
		ctx = context.Background()
	}
	what := fmt.Sprintf("lookup %d of %s", sort, k.gvk)
	l.lookups.Add(1)
	if err := l.timed(ctx, what, call); meta.IsNoMatchError(err) {
		l.broken("%s, which is served throughout: %v", what, err)
	} else if err != nil && ctx.Err() == nil {
		l.errors.Add(1)
	}
}

// find looks up a kind that is served throughout, and notes a wrong mapping.
func (c *campaign) find(ctx context.Context, m *apiutil.DynamicRESTMapper, k kind, versions ...string) error {
	c.Helper()
	mapping, err := m.RESTMappingWithContext(ctx, k.GroupKind(), versions...)
	if err == nil && (mapping.Resource != k.GroupVersion().WithResource(k.resource) || mapping.Scope.Name() == meta.RESTScopeNameRoot != k.cluster) {
		c.broken("%s is mapped to %v, %v", k.gvk, mapping.Resource, mapping.Scope.Name())
	}
	return err
}

// miss looks up a kind that is never served, without a version if never has none.
func (c *campaign) miss(ctx context.Context, m *apiutil.DynamicRESTMapper, never gvk) error {
	c.Helper()
	mapping, err := m.RESTMappingWithContext(ctx, never.GroupKind(), strings.Fields(never.Version)...)
	if err == nil {
		c.broken("%s, which never was, is mapped to %v", never, mapping.Resource)
	}
	return err
}

// wait waits for kinds, one of which may never come.
func (l *load) wait(ctx context.Context, m *apiutil.DynamicRESTMapper, r *rand.Rand, k kind) {
	kinds := []gvk{k.gvk, l.churned[r.IntN(len(l.churned))]}
	ghost := r.IntN(3) == 0
	if ghost {
		kinds = append(kinds, l.never[0])
	}
	l.waits.Add(1)
	err := l.timed(ctx, fmt.Sprintf("WaitForKinds(%v)", kinds), func(ctx context.Context) error { return m.WaitForKinds(ctx, kinds...) })
	if err == nil && ghost {
		l.broken("WaitForKinds says that %s is served", l.never[0])
	}
}

// timed makes a call that must end soon after its context. One without a context must
// end, too.
func (l *load) timed(ctx context.Context, what string, call func(context.Context) error) error {
	begin, most := time.Now(), withoutEnd
	if ctx.Done() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, waitsFor)
		defer cancel()
		most = waitsFor + slack
	}
	err := call(ctx)
	took := time.Since(begin)
	if took > most {
		l.broken("%s took %v", what, took)
	}
	for is := l.longest.Load(); int64(took) > is && !l.longest.CompareAndSwap(is, int64(took)); {
		is = l.longest.Load()
	}
	return err
}
