// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"time"
)

const (
	settleEvery  = 10 // kills
	convergesFor = 90 * time.Second
	watchesFor   = 60 * time.Second // after kill upon kill a watch is opened again after half a minute
)

// kill kills API servers and etcd in random order, one at a time, and starts each
// again up to a second later.
func (l *load) kill(ctx context.Context, o options) error {
	r := l.random(2000)
	victims := make([]bool, o.kills+o.etcd) // true: etcd
	for n := range o.etcd {
		victims[n] = true
	}
	r.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
	time.Sleep(2 * time.Second)
	for n, etcd := range victims {
		if err := l.killOne(ctx, r, etcd); err != nil {
			return err
		}
		if n%settleEvery == settleEvery-1 || n == len(victims)-1 {
			if err := l.converge(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *load) killOne(ctx context.Context, r *rand.Rand, etcd bool) error {
	plane := l.c.plane
	victim, what := plane.Servers[r.IntN(len(plane.Servers))], fmt.Sprintf("API server, %d", len(plane.Servers))
	if etcd {
		victim, what = plane.Etcd, "etcd"
	}
	killed := time.Now()
	victim.Kill()
	time.Sleep(time.Duration(r.Int64N(int64(time.Second))))
	if err := victim.Start(); err != nil {
		return err
	}
	for _, s := range plane.Servers {
		if err := s.AwaitReady(ctx); err != nil {
			return err
		}
	}
	h := heal{what: what, down: time.Since(killed)}
	ready := time.Now()
	healthy := func() bool {
		status := l.m.Status()
		return l.m.Healthz(nil) == nil && status.UnhealthySince.IsZero() && status.LastSuccess.After(ready)
	}
	var ok bool
	if h.healthy, ok = within(ctx, ready, 2*(interval+grace), healthy); !ok || h.healthy > interval+grace {
		l.found.broken.Add("not healthy %v after readyz (%s): %v", h.healthy, what, l.m.Status().LastError)
	}
	l.found.heals = append(l.found.heals, h)
	fmt.Fprintf(os.Stderr, "%s %s: down for %.1f s, healthy after %.2f s\n",
		time.Now().UTC().Format(time.TimeOnly), what, h.down.Seconds(), h.healthy.Seconds())
	time.Sleep(time.Duration(r.Int64N(int64(2 * time.Second))))
	return ctx.Err()
}

// within waits for something, and returns how long after begin it came.
func within(ctx context.Context, begin time.Time, most time.Duration, yes func() bool) (time.Duration, bool) {
	for {
		ok, took := yes(), time.Since(begin)
		if ok || took > most || ctx.Err() != nil {
			return took, ok
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// converge has the API stand still, and waits until all servers and all
// subscribers agree on it, and until the mapper watches again.
func (l *load) converge(ctx context.Context) error {
	if took, ok := within(ctx, time.Now(), watchesFor, func() bool { return l.m.Status().Watching }); ok {
		l.found.watching = append(l.found.watching, took)
	} else if ctx.Err() == nil {
		l.found.broken.Add("not watching %v after the last kill", took)
	}
	l.churning.Lock()
	defer l.churning.Unlock()
	time.Sleep(time.Second) // what is under way on the servers
	begin := time.Now()
	took, ok := within(ctx, begin, convergesFor, func() bool {
		for n := range l.c.truths {
			truth, err := l.c.truth(n)
			if err != nil {
				return false
			}
			for _, v := range l.views {
				if !v.is(truth) {
					return false
				}
			}
		}
		return true
	})
	if !ok {
		if ctx.Err() == nil {
			l.found.broken.Add("subscribers do not know after %v what is served", took)
		}
		return ctx.Err()
	}
	l.found.converged = append(l.found.converged, took)
	fmt.Fprintf(os.Stderr, "subscribers converged after %.2f s\n", took.Seconds())
	return ctx.Err()
}
