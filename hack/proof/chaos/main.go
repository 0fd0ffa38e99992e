// SPDX-License-Identifier: Apache-2.0

// Chaos kills real API servers and their etcd while a mapper is in heavy use, and
// holds it to what DESIGN.md promises.
//
//	go run ./chaos [-kills 100] [-etcd 20] [-seed N] [-o results]
//
// For the first half of the kills the mapper talks to one API server; for the
// second half to two, through a proxy that sends each request to the next of them,
// dead or alive.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/freshmapper/freshmapper/hack/control"
	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

type options struct {
	kills, etcd int
	seed        uint64
}

func main() {
	var o options
	flag.IntVar(&o.kills, "kills", 100, "how often an API server is killed")
	flag.IntVar(&o.etcd, "etcd", 20, "how often etcd is killed")
	flag.Uint64Var(&o.seed, "seed", 0, "of the load and the kills; 0: a random one")
	out := report.Out()
	report.Main("chaos", func(ctx context.Context) error { return run(ctx, o, *out) })
}

func run(ctx context.Context, o options, out string) error {
	if o.seed == 0 {
		o.seed = uint64(rand.Uint32())
	}
	assets, err := control.Assets()
	if err != nil {
		return err
	}
	begin := time.Now()
	var found findings
	for n, servers := range []int{1, 2} {
		part := options{kills: half(o.kills, n), etcd: half(o.etcd, n), seed: o.seed + uint64(n)}
		if part.kills+part.etcd == 0 {
			continue
		}
		fmt.Fprintf(os.Stderr, "%d API servers: %d kills of one, %d of etcd\n", servers, part.kills, part.etcd)
		if err := runPart(ctx, assets, servers, part, &found); err != nil {
			found.broken.Add("the run ended early: %v", err)
			break
		}
	}
	return found.write(o, out, time.Since(begin))
}

// half splits n in two.
func half(n, part int) int { return (n + 1 - part) / 2 }

// runPart runs the load against a control plane of its own, and kills.
func runPart(ctx context.Context, assets string, servers int, o options, found *findings) (err error) {
	plane, err := control.Start(ctx, assets, servers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plane.Stop()) }()
	c, err := newCluster(ctx, plane)
	if err != nil {
		return err
	}
	leaked := c.leaks()
	l, err := newLoad(c, o.seed, found)
	if err != nil {
		return err
	}
	l.start(ctx)
	err = l.kill(ctx, o)
	l.stop()
	c.close()
	if left := leaked(); left != nil {
		found.broken.Add("goroutines are left: %v", left)
	}
	return err
}
