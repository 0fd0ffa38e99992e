// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"time"

	"github.com/freshmapper/freshmapper/internal/share"
)

// SetSharedCache sets how long this process keeps documents that mappers have read,
// after no mapper uses them any more, and about how many bytes of memory they may take
// for all servers together. Within these bounds a program that makes a mapper for each
// piece of work reads a server once. Then it only asks whether that still holds. The
// document that was used least recently goes first. What several servers have in
// common counts once.
//
// The defaults are 10 minutes and 64 MiB. If either is 0 or less, nothing is kept. The
// call drops what was kept so far, so call it when the program starts. It does not
// affect what existing mappers hold.
func SetSharedCache(keepFor time.Duration, maxBytes int64) { share.Keep(keepFor, maxBytes) }
