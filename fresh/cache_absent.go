// SPDX-License-Identifier: Apache-2.0

package fresh

import (
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
	if k.c.mapper.SetWaiting(k.c, k.gvk, reason) {
		log.Log.WithName("fresh").Info("Waiting for a kind that cannot be listed yet", "kind", k.gvk.String(),
			"reason", reason.Error(), "servedAs", k.c.mapper.Hint(reason))
	}
	k.c.pollAbsent()
}

// served notes that the kind is no longer absent.
func (k *kind) served(mapping *meta.RESTMapping) {
	k.c.mapper.SetWaiting(k.c, k.gvk, nil)
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
			unserved, forbidden := c.absentKinds()
			if len(unserved)+len(forbidden) == 0 {
				break
			}
			if len(unserved) > 0 && (polls%watchedPolls == 0 || !c.mapper.Watching()) {
				_ = c.mapper.Poll(c.ctx, unserved) // what it finds wakes the kinds, and in an outage they stay as they are
			}
			for _, k := range forbidden {
				k.wake()
			}
		}
		c.polling.Store(false)
		if unserved, forbidden := c.absentKinds(); len(unserved)+len(forbidden) > 0 && c.ctx.Err() == nil {
			c.pollAbsent() // one has become absent since
		}
	})
}

// absentKinds returns the kinds that are not served, and those that are served and may not be listed.
func (c *followingCache) absentKinds() (unserved []schema.GroupVersionKind, forbidden []*kind) {
	for gvk, k := range c.kinds.All() {
		why := k.current.Load().absentBecause()
		switch {
		case why == nil:
		case meta.IsNoMatchError(why):
			unserved = append(unserved, gvk)
		default:
			forbidden = append(forbidden, k)
		}
	}
	return unserved, forbidden
}
