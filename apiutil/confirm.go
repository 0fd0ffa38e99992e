// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/flowcontrol"

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
	if now, err := mappingIn(m.reloader.Snapshot(), mapping); err == nil && !sameMapping(now, mapping) {
		return now, nil
	}
	if read := m.confirmed.read(m, mapping.GroupVersionKind.GroupVersion(), true); read != nil {
		ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
		defer cancel()
		select {
		case <-read.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return mappingIn(m.reloader.Snapshot(), mapping)
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
	// confirmRead bounds a read that nobody may wait for any more.
	confirmRead = 10 * time.Second

	doubtEvery   = time.Minute // one read for a doubt, while nothing changes
	confirmQPS   = 0.25        // reads for any reason, after the burst
	confirmBurst = 4           // so at most 19 reads a minute

	mostConfirmed = 4096 // bounds of how many versions something is remembered
)

// mappingIn returns the mapping of a mapping's kind in a snapshot.
func mappingIn(s *snapshot.Snapshot, mapping *meta.RESTMapping) (*meta.RESTMapping, error) {
	now, _, err := s.RESTMapping(mapping.GroupVersionKind.GroupKind(), []string{mapping.GroupVersionKind.Version})
	return now, err
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
	reads      []*liveRead // under way, at most two: one that runs, and one that begins when that ends
	generation uint64      // of the mapper after the last read
	last       time.Time   // when a read was last begun or queued; zero before the first
	allowed    flowcontrol.PassiveRateLimiter
}

// liveRead is a live read of a version. What it finds is in the mapper's snapshot.
type liveRead struct {
	began time.Time // or was queued, as long as another one runs
	done  chan struct{}
}

// read returns a read to wait for, or nil. If the reason is certain, that is a read that
// begins later than now, if the bounds allow one. A mere doubt begins one if no read is
// under way, and if the version is not settled. While the server owes an answer for longer
// than anybody waits, nobody waits again.
func (c *confirmations) read(m *DynamicRESTMapper, gv schema.GroupVersion, certain bool) *liveRead {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, now := c.version(gv), time.Now()
	running := len(v.reads)
	settled := !v.last.IsZero() && v.generation == m.Generation() && now.Sub(v.last) < doubtEvery
	switch {
	case !certain && (running > 0 || settled):
		return nil
	case running > 0 && now.Sub(v.reads[0].began) >= confirmTimeout:
		return nil
	case running < 2 && v.allowed.TryAccept():
		v.last = now
		v.reads = append(v.reads, &liveRead{began: now, done: make(chan struct{})})
		if running == 0 {
			go c.run(m, gv, v, v.reads[0])
		}
	case running == 0:
		return nil
	}
	return v.reads[len(v.reads)-1]
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

// run makes a read. Then it begins the next one.
func (c *confirmations) run(m *DynamicRESTMapper, gv schema.GroupVersion, v *confirmation, read *liveRead) {
	ctx, cancel := context.WithTimeout(context.Background(), confirmRead)
	defer cancel()
	_, _ = m.reloader.ReadLive(ctx, gv) // if it fails, what is known goes on
	c.mu.Lock()
	defer c.mu.Unlock()
	v.generation = m.Generation()
	if v.reads = slices.Delete(v.reads, 0, 1); len(v.reads) > 0 {
		v.reads[0].began = time.Now()
		go c.run(m, gv, v, v.reads[0])
	}
	close(read.done)
}
