// SPDX-License-Identifier: Apache-2.0

package fresh

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// pollInterval is how often a cache asks whether its absent kinds are served.
	pollInterval = 30 * time.Second

	// pollsWhileWatching is the number of polls of which only one asks, while the mapper watches for changes of the
	// served API: then a watch reports them.
	pollsWhileWatching = 20
)

// setWaiting notes why the kind is absent, which the instance has to say. The reason is logged, unless it is still
// the same.
func (k *kind) setWaiting(i *instance, reason error) {
	i.reason.Store(&reason)
	changed := k.c.mapper.SetWaiting(k, k.gvk, reason)
	if i.is(retired) || k.ended() { // since the line before: then nobody else takes it back
		k.c.mapper.SetWaiting(k, k.gvk, nil)
		return
	}
	if changed {
		log.Log.WithName("fresh").Info("Waiting for a kind that cannot be listed yet", "kind", k.gvk.String(),
			"reason", reason.Error(), "servedAs", k.c.mapper.Hint(reason))
	}
	k.c.pollAbsentKinds()
}

// noteServed notes and logs that the kind is no longer absent.
func (k *kind) noteServed(mapping *meta.RESTMapping) {
	k.c.mapper.SetWaiting(k, k.gvk, nil)
	log.Log.WithName("fresh").Info("A kind that the cache was waiting for is served", "kind", k.gvk.String(),
		"resource", mapping.Resource.Resource, "scope", mapping.Scope.Name())
}

// pollAbsentKinds starts a goroutine that asks once in a pollInterval, for all absent kinds together, whether they
// are served. It ends when no kind is absent. Before the cache has started it does nothing: Start calls it again.
func (c *followingCache) pollAbsentKinds() {
	select {
	case <-c.started:
	default:
		return
	}
	if !c.polling.CompareAndSwap(false, true) {
		return
	}
	c.run(func() {
		c.pollUntilNoneIsAbsent(c.ctx)
		c.polling.Store(false)
		if len(c.absentKinds()) > 0 && c.ctx.Err() == nil {
			c.pollAbsentKinds() // a kind has become absent since
		}
	})
}

func (c *followingCache) pollUntilNoneIsAbsent(ctx context.Context) {
	for polls := 1; ctx.Err() == nil; polls++ {
		pause(ctx, pollInterval)
		absent := c.absentKinds()
		if len(absent) == 0 {
			return
		}
		if polls%pollsWhileWatching == 0 || !c.mapper.Watching() {
			_ = c.mapper.Poll(ctx, slices.Collect(maps.Keys(absent))) // after an error the kinds stay absent
		}
		for _, k := range absent { // also if nothing has changed: a kind that may not be listed is tried again
			k.wake()
		}
	}
}

// absentKinds returns the kinds that are absent, because they are not served or may not be listed.
func (c *followingCache) absentKinds() map[schema.GroupVersionKind]*kind {
	kinds := maps.Clone(c.kinds.all())
	maps.DeleteFunc(kinds, func(_ schema.GroupVersionKind, k *kind) bool {
		return k.current.Load().absentBecause() == nil
	})
	return kinds
}
