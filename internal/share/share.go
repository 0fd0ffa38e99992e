// SPDX-License-Identifier: Apache-2.0

// Package share lets the mappers of one process keep one copy of equal groups, and of equal documents.
//
// This is safe among servers that do not trust one another, and nobody has to be trusted for it: the key of a group
// is a SHA-256 hash that is computed here over the bytes received, and the key of a document is the hash of the keys
// of its groups. What a server claims about its document, such as an ETag, is never a key. Equal bytes decode to
// equal groups, so it does not matter who sent them first.
//
// All pointers are weak: a value is freed when no mapper uses it any more. Go 1.23 has no weak pointers, so there
// nothing is shared.
//
// This package has the only data that mappers share. The other package-level variable is the hook follow.FollowedOf,
// which is set once when a program starts. Values are immutable. Each registry has a lock, which is held for map
// operations only.
package share

import (
	"crypto/sha256"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Key is a hash over received bytes.
type Key [sha256.Size]byte

// KeyOf hashes bytes, as they were received or of other keys. kind says what they are: equal bytes might mean different
// things in two encodings.
func KeyOf(kind string, data []byte) Key {
	h := sha256.New()
	h.Write([]byte(kind))
	h.Write([]byte{0})
	h.Write(data)
	return Key(h.Sum(nil))
}

// What mappers of the process use now. Groups are keyed by their own bytes, and documents by the keys of their groups,
// in order.
var (
	Groups    pool[snapshot.Group]
	Documents pool[snapshot.Document]
)
