// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Confirm checks a mapping that was used. It returns the kind's mapping from a read
// of its version that began after the call, or a NoMatch error if the kind is gone.
// If what is known already differs from mapping, it returns that without a read.
// Clients and informers in a controller-runtime tree with this mapper inside call
// it when an answer of the server casts doubt on mapping.
//
// contradicted reports whether that answer contradicts mapping: the server does not know
// the path of mapping, or sent something that does not fit mapping. If it is false, there
// is a mere doubt: most likely mapping is right, and an object does not exist.
//
// The number of reads of a group is bounded, over all callers. While the generation does
// not move, mere doubts cause at most one read a minute. All reasons together cause at
// most 4 reads at once, and then one every 3 seconds. Callers share reads. A call that
// may not read returns what the mapper knows: mapping, or NoMatch. Confirm returns within
// 10 seconds.
func (m *DynamicRESTMapper) Confirm(ctx context.Context, mapping *meta.RESTMapping, contradicted bool) (*meta.RESTMapping, error) {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	gvk := mapping.GroupVersionKind
	group := m.confirmed.group(gvk.Group)
	arrived := group.begun()
	now, err := m.lookUpOnce(ctx, group, gvk)
	if err != nil && !meta.IsNoMatchError(err) || err == nil && !sameMapping(now, mapping) {
		return now, err
	}
	if !group.enter(ctx, contradicted) {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return now, err
	}
	defer group.leave()
	if group.begun() != arrived || !group.mayRead(time.Now(), m.Generation(), contradicted) {
		return m.lookUpOnce(ctx, group, gvk) // another call's read may have found something
	}
	// Read only the version. A reset of the group would cause reads of its list and of
	// its other versions, too. If the read fails, what is known stands.
	_, _ = m.reloader.ReadLive(ctx, gvk.GroupVersion())
	now, err = m.lookUpOnce(ctx, group, gvk)
	group.read(m.Generation())
	return now, err
}

const (
	// confirmTimeout bounds how long a caller waits: it has an answer of the server
	// already.
	confirmTimeout = 10 * time.Second
	// doubtTimeout bounds how long a caller with a mere doubt waits for another caller's
	// read.
	doubtTimeout = time.Second

	doubtEvery   = time.Minute     // one read a group for a doubt, while nothing changes
	confirmEvery = 3 * time.Second // one read a group for any reason, after the burst
	confirmBurst = 4

	mostConfirmed = 4096 // bounds what is remembered of groups, and of kinds in a group
)

func sameMapping(a, b *meta.RESTMapping) bool {
	return a.Resource == b.Resource && a.Scope.Name() == b.Scope.Name()
}

// confirmations is what a mapper remembers of the groups that were in doubt.
type confirmations struct {
	mu     sync.Mutex // held for map operations only
	groups map[string]*confirmation
}

func (c *confirmations) group(name string) *confirmation {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.groups[name]
	if !ok {
		if c.groups == nil || len(c.groups) >= mostConfirmed {
			c.groups = map[string]*confirmation{}
		}
		found = &confirmation{turn: make(chan struct{}, 1), allowance: confirmBurst}
		c.groups[name] = found
	}
	return found
}

// confirmation is what is remembered of one group. A caller that reads the group
// holds its turn.
type confirmation struct {
	turn chan struct{} // full while somebody has it

	mu         sync.Mutex // held for a moment only; guards the rest
	reads      uint64     // begun so far
	generation uint64     // of the mapper after the last read
	last       time.Time  // when the last read began
	allowance  float64    // how many reads may begin at once, computed at counted
	counted    time.Time
	absent     map[schema.GroupVersionKind]uint64 // kinds that were not served, with the generation at that time
}

// enter waits for the turn until ctx ends, and reports whether it has come. A mere
// doubt waits only for doubtTimeout: most are about objects that do not exist, and
// must not wait for one another if the group does not answer.
func (c *confirmation) enter(ctx context.Context, contradicted bool) bool {
	if !contradicted {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, doubtTimeout)
		defer cancel()
	}
	select {
	case c.turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *confirmation) leave() { <-c.turn }

// begun returns the number of reads so far. If it has changed since a call arrived,
// a read began after the call, and serves it.
func (c *confirmation) begun() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reads
}

// mayRead reports whether another read may begin now, and counts it if so.
func (c *confirmation) mayRead(now time.Time, generation uint64, contradicted bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	settled := c.reads > 0 && generation == c.generation && now.Sub(c.last) < doubtEvery
	if settled && !contradicted {
		return false
	}
	c.allowance = min(confirmBurst, c.allowance+float64(now.Sub(c.counted))/float64(confirmEvery))
	c.counted = now
	if c.allowance < 1 {
		return false
	}
	c.allowance--
	c.reads++
	c.last = now
	clear(c.absent)
	return true
}

// read notes the generation of the mapper after a read.
func (c *confirmation) read(generation uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation = generation
}

// lookUpOnce is RESTMapping. If a kind was not served, lookUpOnce does not look it up
// again at the same generation: every such lookup would read the server.
func (m *DynamicRESTMapper) lookUpOnce(ctx context.Context, group *confirmation, gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	generation := m.Generation() // before the lookup, which may move it
	if group.isAbsent(gvk, generation) {
		return nil, &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
	}
	mapping, err := m.RESTMappingWithContext(ctx, gvk.GroupKind(), gvk.Version)
	if meta.IsNoMatchError(err) {
		group.setAbsent(gvk, generation)
	}
	return mapping, err
}

func (c *confirmation) isAbsent(gvk schema.GroupVersionKind, generation uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.absent[gvk]
	return ok && at == generation
}

func (c *confirmation) setAbsent(gvk schema.GroupVersionKind, generation uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.absent == nil || len(c.absent) >= mostConfirmed {
		c.absent = map[schema.GroupVersionKind]uint64{}
	}
	c.absent[gvk] = generation
}
