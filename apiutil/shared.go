// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"time"

	"github.com/freshmapper/freshmapper/internal/share"
)

// SetSharedCache sets for how long this process keeps what mappers have read after
// no mapper uses it any more, and how many bytes of memory that may take up, about,
// for all servers together. Within the bound a program that makes a mapper for each
// piece of work reads a server once, and asks from then on whether that still holds.
// What was used least recently goes first; what several servers have in common
// counts once.
//
// Without this call it is 10 minutes and 64 MiB. Either as 0 or less keeps nothing.
// What was kept so far is dropped: call it when the program starts. What mappers
// hold that are still there is not affected.
func SetSharedCache(keepFor time.Duration, maxBytes int64) { share.Keep(keepFor, maxBytes) }
