// SPDX-License-Identifier: Apache-2.0

package share

import (
	"math"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// The bounds of what is kept although no mapper uses it, until Keep is called.
const (
	DefaultKeepFor   = 10 * time.Minute
	DefaultKeepBytes = 64 << 20
)

// kept keeps bulk documents for a time after they were last used, so that a
// program that makes a mapper, drops it and makes the next one does not start from
// nothing. It keeps at most limit bytes: the documents used least recently go first. A
// group that is in many documents counts once.
//
// No timer runs while nothing is kept. An expired document is not found any more. Its
// memory is freed within a second or a tenth of ttl, whichever is longer.
type kept struct {
	mu     sync.Mutex // held for map operations only
	ttl    time.Duration
	limit  int64
	cache  *cache.LRUExpireCache   // Server to *Bulk
	bulks  map[Server]*Bulk        // what is in cache, and what has expired there since the last trim
	groups map[*snapshot.Group]int // in how many of bulks each group is
	bytes  int64                   // of bulks
	due    time.Time               // of the next trim by the timer
}

func newKept(ttl time.Duration, limit int64) *kept {
	return &kept{
		ttl: ttl, limit: limit,
		cache: cache.NewLRUExpireCache(math.MaxInt), // bytes are the limit
		bulks: map[Server]*Bulk{}, groups: map[*snapshot.Group]int{},
	}
}

func (k *kept) get(server Server) *Bulk {
	if found, ok := k.cache.Get(server); ok {
		return found.(*Bulk)
	}
	return nil
}

// put keeps b for server, instead of what was kept for it.
func (k *kept) put(server Server, b *Bulk) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if old := k.bulks[server]; old != b {
		k.remove(server)
		if k.ttl <= 0 || b.size() > k.limit { // one document must not push out all others
			return
		}
		k.bulks[server] = b
		k.count(b, 1)
	}
	k.cache.Add(server, b, k.ttl)
	if k.bytes > k.limit {
		k.trim()
	}
	k.arm()
}

func (k *kept) remove(server Server) {
	k.cache.Remove(server)
	if b := k.bulks[server]; b != nil {
		delete(k.bulks, server)
		k.count(b, -1)
	}
}

// count adds b to the counts if by is 1, and removes it if by is -1.
func (k *kept) count(b *Bulk, by int) {
	k.bytes += int64(by) * b.ownSize()
	for g := range b.groups() {
		before := k.groups[g]
		switch after := before + by; {
		case after == 0:
			delete(k.groups, g)
			k.bytes -= g.Size()
		case before == 0:
			k.bytes += g.Size()
			fallthrough
		default:
			k.groups[g] = after
		}
	}
}

// trim drops what has expired. Then it drops what was used least recently, until the
// rest is within the limit.
func (k *kept) trim() {
	oldest := k.cache.Keys() // without those that have expired
	fresh := make(map[any]bool, len(oldest))
	for _, server := range oldest {
		fresh[server] = true
	}
	for server := range k.bulks {
		if !fresh[server] {
			k.remove(server)
		}
	}
	for _, server := range oldest {
		if k.bytes <= k.limit {
			return
		}
		k.remove(server.(Server))
	}
}

// arm starts the timer unless it runs or there is nothing to wait for.
func (k *kept) arm() {
	now := time.Now()
	if len(k.bulks) == 0 || now.Before(k.due) {
		return
	}
	wait := max(k.ttl/10, time.Second)
	k.due = now.Add(wait)
	time.AfterFunc(wait, k.expire)
}

func (k *kept) expire() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.trim()
	k.arm()
}

// reset drops everything and sets the new bounds.
func (k *kept) reset(ttl time.Duration, limit int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for server := range k.bulks {
		k.remove(server)
	}
	k.ttl, k.limit, k.due = ttl, limit, time.Time{}
}

func (k *kept) len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.bulks)
}
