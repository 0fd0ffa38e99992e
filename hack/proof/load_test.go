// SPDX-License-Identifier: Apache-2.0

// Package proof tests at length what DESIGN.md promises. Each campaign is a test. It is
// short unless flags make it longer, and it writes a page about what it has found:
//
//	go test -run '^TestChaos$' -v -timeout 0 . -args -kills 100 -etcd 20 -o results
package proof

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

var lasting = flag.Duration("time", 0, "how long the soak and the hostile servers take; 0: seconds")

// TestMain silences client-go's log, which is full of the faults that the campaigns make.
func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// liveHeap returns the MiB of the process's heap that are live.
func liveHeap() float64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc) / (1 << 20)
}

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
	*report.Campaign
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
		r := l.Random(stream + n)
		running.Go(func() {
			for ctx.Err() == nil {
				l.call(ctx, m, r)
				report.Pause(ctx, time.Duration(r.Int64N(int64(l.rest))))
			}
		})
	}
}

// call makes a random call, and holds its answer to what is promised.
func (l *load) call(ctx context.Context, m *apiutil.DynamicRESTMapper, r *rand.Rand) {
	k, c := l.steady[r.IntN(len(l.steady))], l.churned[r.IntN(len(l.churned))]
	never, n := l.never[r.IntN(len(l.never))], r.IntN(1000)
	of := func(share int) bool {
		n -= share
		return n < 0
	}
	switch {
	case of(l.resetting):
		l.resets.Add(1)
		if r.IntN(2) == 0 {
			m.Reset()
		} else {
			m.ResetGroup(k.Group)
		}
	case of(l.waiting): // of three times once for a kind that never comes
		l.waits.Add(1)
		kinds := []gvk{k.gvk, c, l.never[0]}[:2+r.IntN(3)/2]
		err := l.timed(ctx, fmt.Sprintf("WaitForKinds(%v)", kinds), func(ctx context.Context) error { return m.WaitForKinds(ctx, kinds...) })
		if err == nil && len(kinds) > 2 {
			l.Broken("WaitForKinds says that %s is served", l.never[0])
		}
	case of(l.missing):
		l.misses.Add(1)
		_ = l.timed(ctx, "lookup of "+never.String(), func(ctx context.Context) error {
			mapping, err := m.RESTMappingWithContext(ctx, never.GroupKind(), never.Version)
			if err == nil {
				l.Broken("%s, which never was, is mapped to %v", never, mapping.Resource)
			}
			return err
		})
	case of(l.churning):
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
	what := fmt.Sprintf("lookup %d of %s", sort, k.gvk)
	if sort == 0 {
		ctx = context.Background()
	}
	l.lookups.Add(1)
	err := l.timed(ctx, what, func(ctx context.Context) (err error) {
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
				l.Broken("%s in any group is in %v", k.resource, found)
			}
		default:
			return l.find(ctx, m, k)
		}
		return err
	})
	if meta.IsNoMatchError(err) {
		l.Broken("%s, which is served throughout: %v", what, err)
	} else if err != nil && ctx.Err() == nil {
		l.errors.Add(1)
	}
}

// find looks up a kind that is served throughout, and notes a wrong mapping.
func (l *load) find(ctx context.Context, m *apiutil.DynamicRESTMapper, k kind, versions ...string) error {
	l.Helper()
	mapping, err := m.RESTMappingWithContext(ctx, k.GroupKind(), versions...)
	if err == nil && (mapping.Resource != k.GroupVersion().WithResource(k.resource) || mapping.Scope.Name() == meta.RESTScopeNameRoot != k.cluster) {
		l.Broken("%s is mapped to %v, %v", k.gvk, mapping.Resource, mapping.Scope.Name())
	}
	return err
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
		l.Broken("%s took %v", what, took)
	}
	for is := l.longest.Load(); int64(took) > is && !l.longest.CompareAndSwap(is, int64(took)); {
		is = l.longest.Load()
	}
	return err
}
