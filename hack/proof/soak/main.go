// SPDX-License-Identifier: Apache-2.0

// Soak has 50 mappers of a real API server answer 5,000 lookups a second while
// CRDs come and go, and looks for what grows.
//
//	go run ./soak [-time 30m] [-mappers 50] [-rate 5000] [-o results]
package main

import (
	"context"
	"errors"
	"flag"
	"time"

	"github.com/freshmapper/freshmapper/hack/control"
	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

type options struct {
	lasting       time.Duration
	mappers, rate int
	profiles      string
}

func main() {
	var o options
	flag.DurationVar(&o.lasting, "time", 30*time.Minute, "how long")
	flag.IntVar(&o.mappers, "mappers", 50, "how many mappers")
	flag.IntVar(&o.rate, "rate", 5000, "lookups a second, of all")
	flag.StringVar(&o.profiles, "profiles", "", "folder for heap profiles, one when warm and one at the end; empty: none")
	out := report.Out()
	report.Main("soak", func(ctx context.Context) error { return run(ctx, o, *out) })
}

func run(ctx context.Context, o options, out string) (err error) {
	assets, err := control.Assets()
	if err != nil {
		return err
	}
	plane, err := control.Start(ctx, assets, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plane.Stop()) }()
	s, err := newSoak(plane, o)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := s.run(ctx); err != nil {
		return err
	}
	return s.write(out, time.Since(begin))
}
