// SPDX-License-Identifier: Apache-2.0

package fresh

import (
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

	// watchedPolls is of how many polls one asks while the mapper watches for changes of the served API: then a watch
	// reports them.
	watchedPolls = 20
)

// waitsFor notes why the kind is absent. The log has a line, and another one if the reason is another.
func (k *kind) waitsFor(i *instance, reason error) {
	i.reason.Store(&reason)
	changed := k.c.mapper.SetWaiting(k, k.gvk, reason)
	if i.is(retired) || k.ended() { // meanwhile: nobody else takes it back
		k.c.mapper.SetWaiting(k, k.gvk, nil)
		return
	}
	if changed {
		log.Log.WithName("fresh").Info("Waiting for a kind that cannot be listed yet", "kind", k.gvk.String(),
			"reason", reason.Error(), "servedAs", k.c.mapper.Hint(reason))
	}
	k.c.pollAbsent()
}

// served notes that the kind is no longer absent.
func (k *kind) served(mapping *meta.RESTMapping) {
	k.c.mapper.SetWaiting(k, k.gvk, nil)
	log.Log.WithName("fresh").Info("A kind that the cache was waiting for is served", "kind", k.gvk.String(),
		"resource", mapping.Resource.Resource, "scope", mapping.Scope.Name())
}

// pollAbsent makes a goroutine that asks, once in a pollInterval for all absent kinds together, whether they are served.
// It ends when none is absent. Before the cache has started, start does it.
func (c *followingCache) pollAbsent() {
	select {
	case <-c.started:
	default:
		return
	}
	if !c.polling.CompareAndSwap(false, true) {
		return
	}
	c.run(func() {
		for polls := 1; c.ctx.Err() == nil; polls++ {
			pause(c.ctx, pollInterval)
			absent := c.absentKinds()
			if len(absent) == 0 {
				break
			}
			if polls%watchedPolls == 0 || !c.mapper.Watching() {
				_ = c.mapper.Poll(c.ctx, slices.Collect(maps.Keys(absent))) // in an outage the kinds stay as they are
			}
			for _, k := range absent { // one that may not be listed is tried again, though the API has not changed
				k.wake()
			}
		}
		c.polling.Store(false)
		if len(c.absentKinds()) > 0 && c.ctx.Err() == nil {
			c.pollAbsent() // one has become absent since
		}
	})
}

// absentKinds returns the kinds that are absent, because they are not served or may not be listed.
func (c *followingCache) absentKinds() map[schema.GroupVersionKind]*kind {
	all := maps.Clone(c.kinds.all())
	maps.DeleteFunc(all, func(_ schema.GroupVersionKind, k *kind) bool { return k.current.Load().absentBecause() == nil })
	return all
}
