// SPDX-License-Identifier: Apache-2.0

package share

import (
	"crypto/sha256"
	"iter"
	"time"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Key is a hash over received bytes.
type Key [sha256.Size]byte

// KeyOf hashes bytes as they were received. form names their encoding: equal bytes
// might mean different things in two encodings.
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
	recent = newKept(DefaultKeepFor, DefaultKeepBytes)
)

// Group returns the group of key. It calls decode only if no mapper of the process uses
// that group now.
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

// KeyOfAll hashes keys, in their order.
func KeyOfAll(keys ...Key) Key {
	h := sha256.New()
	for i := range keys {
		h.Write(keys[i][:])
	}
	return Key(h.Sum(nil))
}

// List returns the list of the groups of an aggregated document. key is the hash of
// all groups. last is the previous list, or nil.
func List(all []*snapshot.Group, key Key, last *snapshot.List) *snapshot.List {
	if l := lists.get(key); l != nil {
		return l
	}
	return lists.put(key, last.Next(all, true), false)
}

// Document is what was read from one of the two bulk paths.
type Document struct {
	ETag   string // empty if the server sent none
	Caller Key    // of the credentials that it was sent to; zero if the user named the caller
	Groups []*snapshot.Group
	Key    Key // of the keys of Groups; zero if this is not the aggregated document
}

// Aggregated reports whether the document has the resources of every version. An empty
// document has.
func (d *Document) Aggregated() bool { return d.Key != Key{} || len(d.Groups) == 0 }

// Bulk is what one bulk read of a server found. It is immutable.
type Bulk struct {
	Core, Named Document // of /api and of /apis
	List        *snapshot.List
}

// groups iterates over the groups of both documents.
func (b *Bulk) groups() iter.Seq[*snapshot.Group] {
	return func(yield func(*snapshot.Group) bool) {
		for _, groups := range [][]*snapshot.Group{b.Core.Groups, b.Named.Groups} {
			for _, g := range groups {
				if !yield(g) {
					return
				}
			}
		}
	}
}

// ownSize returns about how many bytes b takes besides its groups: for their places in
// the list, and in the index of what is kept.
func (b *Bulk) ownSize() int64 {
	const fixed, perGroup = 1 << 10, 96
	return fixed + perGroup*int64(len(b.Core.Groups)+len(b.Named.Groups))
}

// size returns about how many bytes b takes with its groups.
func (b *Bulk) size() int64 {
	size := b.ownSize()
	for g := range b.groups() {
		size += g.Size()
	}
	return size
}

// Recall returns the last bulk document that this caller of a server has read, or nil if
// it is gone.
func Recall(server Server) *Bulk {
	if !server.known() {
		return nil
	}
	if b := recent.get(server); b != nil {
		return b
	}
	return bulks.get(server)
}

// Remember offers b to the next mapper of the same caller. If b is no news, it does not
// replace another document, because another mapper may have read something newer.
func Remember(server Server, b *Bulk, news bool) {
	if !server.known() {
		return
	}
	if other := Recall(server); other != nil && !news {
		b = other
	}
	recent.put(server, bulks.put(server, b, true))
}

// Keep sets how long documents are kept after their last use, and how many bytes of them
// at most. It drops everything kept so far.
func Keep(ttl time.Duration, limit int64) { recent.reset(ttl, limit) }
