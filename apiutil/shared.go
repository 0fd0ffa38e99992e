// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"time"

	"github.com/freshmapper/freshmapper/internal/share"
)

// SetSharedCache sets how long this process keeps a document after the last mapper has
// stopped using it, and about how many bytes of memory the documents of all servers may
// take together. Within these bounds, a program that makes a mapper for each piece of
// work reads the document of a server once. After that it only asks whether the document
// still holds. The least recently used document goes first. What several servers have in
// common counts once.
//
// The defaults are 10 minutes and 64 MiB. If either argument is 0 or less, nothing is
// kept. SetSharedCache drops everything kept so far, so call it when the program starts.
// It does not affect what existing mappers hold.
func SetSharedCache(keepFor time.Duration, maxBytes int64) { share.Keep(keepFor, maxBytes) }
