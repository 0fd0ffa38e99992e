// SPDX-License-Identifier: Apache-2.0

// Soak has 50 mappers of a real API server answer 5,000 lookups a second while
// CRDs come and go, and looks for what grows.
//
//	go run ./soak [-time 30m] [-mappers 50] [-rate 5000] [-o results]
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"k8s.io/klog/v2"

	"github.com/freshmapper/freshmapper/hack/proof/internal/control"
)

type options struct {
	lasting       time.Duration
	mappers, rate int
	out           string
	profiles      string
}

func main() {
	var o options
	flag.DurationVar(&o.lasting, "time", 30*time.Minute, "how long")
	flag.IntVar(&o.mappers, "mappers", 50, "how many mappers")
	flag.IntVar(&o.rate, "rate", 5000, "lookups a second, of all")
	flag.StringVar(&o.out, "o", "results", "folder to write to")
	flag.StringVar(&o.profiles, "profiles", "", "folder for heap profiles, one when warm and one at the end; empty: none")
	flag.Parse()
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	assets, err := control.Assets()
	if err != nil {
		return err
	}
	plane, err := control.Start(ctx, assets, 1)
	if err != nil {
		return err
	}
	defer func() {
		if stopped := plane.Stop(); err == nil {
			err = stopped
		}
	}()
	s, err := newSoak(plane, o)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := s.run(ctx); err != nil {
		return err
	}
	return s.write(time.Since(begin))
}
