// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Confirm checks a mapping that an answer of the server contradicts: the server does not
// know its path, or sent an object that does not fit its scope. It returns the kind's
// mapping from a live read of its version, or a NoMatch error if the kind is gone. If what
// is known already differs from mapping, it returns that without a read. Clients and
// informers in a controller-runtime tree with this mapper inside call it.
//
// The number of reads of a version is bounded, over all callers of Confirm and Doubt: at
// most 4 at once, and then one every 4 seconds. Callers share reads. A call that may not
// read, or whose read fails, returns what the mapper knows. Confirm waits at most 2
// seconds, and not at all for a server that has not answered the last read for so long.
func (m *DynamicRESTMapper) Confirm(ctx context.Context, mapping *meta.RESTMapping) (*meta.RESTMapping, error) {
	gvk := mapping.GroupVersionKind
	if now, err := mappingIn(m.reloader.Snapshot(), gvk); err == nil && !sameMapping(now, mapping) {
		return now, nil
	}
	if read := m.confirmed.read(m, gvk.GroupVersion(), true); read != nil {
		ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
		defer cancel()
		select {
		case <-read:
		case <-ctx.Done():
			return nil, discovery.Cause(ctx)
		}
	}
	return mappingIn(m.reloader.Snapshot(), gvk)
}

// Doubt tells the mapper that a mapping may be wrong: the server found no object at its
// path. Most likely the object does not exist, so Doubt waits for nothing. It may start a
// read, whose result is for later lookups: one a minute while the generation does not
// move, within the bounds of Confirm.
func (m *DynamicRESTMapper) Doubt(mapping *meta.RESTMapping) {
	m.confirmed.read(m, mapping.GroupVersionKind.GroupVersion(), false)
}

const (
	// confirmTimeout bounds how long a caller waits: it has an answer of the server
	// already.
	confirmTimeout = 2 * time.Second

	doubtEvery   = time.Minute // one read for a doubt, while nothing changes
	confirmQPS   = 0.25        // reads for any reason, after the burst
	confirmBurst = 4           // so at most 19 reads a minute

	mostConfirmed = 4096 // bounds of how many versions something is remembered
)

// mappingIn returns the mapping of a kind in a snapshot. A version that could not be read the last
// time proves no absence.
func mappingIn(s *snapshot.Snapshot, gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	mapping, _, err := s.RESTMapping(gvk.GroupKind(), []string{gvk.Version})
	if v := s.Group(gvk.Group).Version(gvk.Version); err != nil && v != nil && v.Err != nil {
		err = &ErrResourceDiscoveryFailed{gvk.GroupVersion(): v.Err}
	}
	return mapping, err
}

func sameMapping(a, b *meta.RESTMapping) bool {
	return a.Resource == b.Resource && a.Scope.Name() == b.Scope.Name()
}

// confirmations is what a mapper remembers of the versions that were in doubt.
type confirmations struct {
	mu       sync.Mutex // held for a moment only; guards what is in the versions, too
	versions map[schema.GroupVersion]*confirmation
}

// confirmation is what is remembered of one version.
type confirmation struct {
	allowed    flowcontrol.PassiveRateLimiter
	reads      int           // under way, at most two: one that runs, and one that begins when that ends
	last       chan struct{} // closed when the last of them has ended; nil before the first
	since      time.Time     // when the one that runs has begun; if none does, when the last has ended
	generation uint64        // of the mapper after the last that has ended
}

// read returns a channel that is closed when a read has ended, or nil if there is nothing
// to wait for. If the reason is certain, that read begins later than now, if the bounds
// allow one. A mere doubt begins one if no read is under way, and if the version is not
// settled. While the server owes an answer for longer than anybody waits, nobody waits again.
func (c *confirmations) read(m *DynamicRESTMapper, gv schema.GroupVersion, certain bool) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.version(gv)
	running, age := v.reads > 0, time.Since(v.since)
	settled := running || age < doubtEvery && v.generation == m.Generation()
	switch {
	case settled && !certain || running && age >= confirmTimeout:
		return nil
	case v.reads < 2 && v.allowed.TryAccept():
		before, ended := v.last, make(chan struct{})
		if v.last, v.reads = ended, v.reads+1; !running {
			v.since = time.Now()
		}
		go func() {
			if running {
				<-before
			}
			_, _ = m.reloader.ReadLive(context.Background(), gv) // if it fails, what is known goes on
			c.mu.Lock()
			defer c.mu.Unlock()
			v.reads, v.since, v.generation = v.reads-1, time.Now(), m.Generation()
			close(ended)
		}()
	}
	return v.last
}

func (c *confirmations) version(gv schema.GroupVersion) *confirmation {
	found, ok := c.versions[gv]
	if !ok {
		if c.versions == nil || len(c.versions) >= mostConfirmed {
			c.versions = map[schema.GroupVersion]*confirmation{}
		}
		found = &confirmation{allowed: flowcontrol.NewTokenBucketPassiveRateLimiter(confirmQPS, confirmBurst)}
		c.versions[gv] = found
	}
	return found
}
