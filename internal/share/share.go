// SPDX-License-Identifier: Apache-2.0

package share

import (
	"crypto/sha256"
	"slices"
	"sync"
	"time"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Key is a hash over received bytes.
type Key [sha256.Size]byte

// KeyOf hashes bytes as they were received. form keeps apart encodings whose
// bytes might mean different things.
func KeyOf(form string, data []byte) Key {
	h := sha256.New()
	h.Write([]byte(form))
	h.Write([]byte{0})
	h.Write(data)
	return Key(h.Sum(nil))
}

var (
	groups pool[Key, snapshot.Group]
	lists  pool[Key, snapshot.List]
	bulks  pool[Server, Bulk]
	recent hold
)

// Group returns the group that key's bytes decode to. It calls decode only if
// no mapper of the process uses that group now.
func Group(key Key, decode func() (*snapshot.Group, error)) (*snapshot.Group, error) {
	if g := groups.get(key); g != nil {
		return g, nil
	}
	g, err := decode()
	if err != nil {
		return nil, err
	}
	return groups.put(key, g, false), nil
}

// List returns the list of those groups of an aggregated document whose keys are
// given in the same order. last, which may be nil, is the list that it follows on.
func List(all []*snapshot.Group, keys []Key, last *snapshot.List) *snapshot.List {
	h := sha256.New()
	for i := range keys {
		h.Write(keys[i][:])
	}
	key := Key(h.Sum(nil))
	if l := lists.get(key); l != nil {
		return l
	}
	return lists.put(key, last.Next(all, true), false)
}

// Document is what was read from one of the two bulk paths.
type Document struct {
	ETag   string // empty if the server sent none
	Groups []*snapshot.Group
	Keys   []Key // of Groups; none if the document was not the aggregated one
}

// Bulk is what one bulk read of a server found. It is immutable.
type Bulk struct {
	Core, Named Document // of /api and of /apis
	List        *snapshot.List
}

// Recall returns the last bulk document read from server, if it is still around.
func Recall(server Server) *Bulk {
	if !server.known() {
		return nil
	}
	return bulks.get(server)
}

// Remember offers b to the next mapper of the same server.
func Remember(server Server, b *Bulk) {
	if server.known() {
		recent.add(bulks.put(server, b, true))
	}
}

const (
	holdFor  = time.Minute
	holdMost = 8
)

// hold keeps the last few bulk documents for a while, so that a program that
// makes a mapper, drops it and makes the next one does not start from nothing.
type hold struct {
	mu    sync.Mutex
	bulks []held // the one used last at the end, at most holdMost
	added uint64
}

type held struct {
	number uint64 // what its timer knows it by
	bulk   *Bulk
}

func (h *hold) add(b *Bulk) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, other := range h.bulks {
		if other.bulk == b { // its time is not prolonged: it merely goes a little early
			h.bulks = append(slices.Delete(h.bulks, i, i+1), other)
			return
		}
	}
	h.added++
	h.bulks = append(h.bulks, held{h.added, b})
	if len(h.bulks) > holdMost {
		h.bulks = slices.Delete(h.bulks, 0, 1)
	}
	number := h.added // not b, which the timer would keep alive when it has long been replaced
	time.AfterFunc(holdFor, func() { h.drop(number) })
}

func (h *hold) drop(number uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bulks = slices.DeleteFunc(h.bulks, func(other held) bool { return other.number == number })
}
