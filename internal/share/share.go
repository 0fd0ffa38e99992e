// SPDX-License-Identifier: Apache-2.0

// Package share lets the mappers of one process keep one copy of equal groups, and of
// equal lists of groups.
//
// This is safe among servers that do not trust one another, and nobody has to be trusted
// for it: the key of a group is a SHA-256 hash that is computed here over the bytes
// received, and the key of a list is the hash of the keys of its groups. What a server
// claims about its document, such as an ETag, is never a key. Equal bytes decode to equal
// groups, so it does not matter who sent them first.
//
// All pointers are weak: a value goes once no mapper uses it. Go 1.23 has no weak
// pointers, so there nothing is shared.
//
// This package holds the only package-level state of the module. Values are immutable.
// The registries of them have a lock each, which is held for map operations only.
package share

import (
	"crypto/sha256"

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

// KeyOfAll hashes keys, in their order.
func KeyOfAll(keys ...Key) Key {
	h := sha256.New()
	for i := range keys {
		h.Write(keys[i][:])
	}
	return Key(h.Sum(nil))
}

var (
	groups pool[Key, snapshot.Group]
	lists  pool[Key, snapshot.List]
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
	return groups.put(key, g), nil
}

// List returns the list of the groups of an aggregated document. key is the hash of
// all groups. last is the previous list, or nil.
func List(all []*snapshot.Group, key Key, last *snapshot.List) *snapshot.List {
	if l := lists.get(key); l != nil {
		return l
	}
	return lists.put(key, last.Next(all, true))
}

// Document is the groups that were read from one of the two bulk paths.
type Document struct {
	Groups []*snapshot.Group
	Key    Key // of the keys of Groups; zero if this is not the aggregated document
}

// Aggregated reports whether the document has the resources of every version. An empty
// document has.
func (d *Document) Aggregated() bool { return d.Key != Key{} || len(d.Groups) == 0 }
