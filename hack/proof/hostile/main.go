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
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"time"

	"k8s.io/klog/v2"
)

type options struct {
	lasting time.Duration
	seed    uint64
	out     string
}

func main() {
	var o options
	flag.DurationVar(&o.lasting, "time", 10*time.Minute, "how long")
	flag.Uint64Var(&o.seed, "seed", 0, "of faults and lookups; 0: a random one")
	flag.StringVar(&o.out, "o", "results", "folder to write to")
	flag.Parse()
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // client-go's view of what the faults do to it
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if o.seed == 0 {
		o.seed = uint64(rand.Uint32())
	}
	begin := time.Now()
	w, err := newWorld(o.seed)
	if err != nil {
		return err
	}
	w.run(ctx, o.lasting)
	return w.write(o, time.Since(begin))
}
