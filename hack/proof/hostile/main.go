// SPDX-License-Identifier: Apache-2.0

// Hostile has mappers in heavy use while their server answers with every fault
// that the server in memory knows, in random order and in random places.
//
//	go run ./hostile [-time 10m] [-seed N] [-o results]
//
// Nothing may panic, no answer may be wrong, no call may go on for ever, and the
// memory must stay within bounds.
package main

import (
	"context"
	"flag"
	"math/rand/v2"
	"time"

	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

func main() {
	lasting := flag.Duration("time", 10*time.Minute, "how long")
	seed := flag.Uint64("seed", 0, "of faults and lookups; 0: a random one")
	out := report.Out()
	report.Main("hostile", func(ctx context.Context) error { return run(ctx, *lasting, *seed, *out) })
}

func run(ctx context.Context, lasting time.Duration, seed uint64, out string) error {
	if seed == 0 {
		seed = uint64(rand.Uint32())
	}
	begin := time.Now()
	w, err := newWorld(seed)
	if err != nil {
		return err
	}
	w.run(ctx, lasting)
	return w.write(out, lasting, time.Since(begin))
}
