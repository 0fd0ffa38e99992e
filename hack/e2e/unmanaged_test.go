// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"
)

const (
	maxAge          = 30 * time.Second // of a mapper without options
	unmanagedWithin = maxAge + 5*time.Second
	unmanagedGiveUp = maxAge + 15*time.Second
	missGroups      = 4
)

// missMost bounds what the gets may cost beyond themselves if they took this long:
// one read of each group, and the two requests of each MaxAge that a mapper in use
// makes in any case. A slow machine takes longer than the replay asks for.
func missMost(took time.Duration) int {
	return 2*missGroups + 2*(1+int(took/maxAge))
}

// gadget is what the programs work with.
var gadget = Kind{Group: "unmanaged.example.com", Kind: "Gadget", Versions: []string{"v1"}}

// TestUnmanaged is about programs with a mapper of their own, in which nobody is
// told of a 404 and nobody starts anything.
func TestUnmanaged(t *testing.T) {
	t.Parallel() // most of the time it waits for MaxAge to pass
	p := &plain{environment: newEnvironment(t, "unmanaged"), gateways: map[*side]*Gateway{}}
	t.Run("S7", p.unmanaged)
	t.Run("NotFound", func(t *testing.T) { p.misses(t, "NotFound", 1000, 6*time.Second) })
	t.Run("NotFound-minute", func(t *testing.T) { p.misses(t, "NotFound-minute", 10000, time.Minute) }) // by night
}

func (p *plain) unmanaged(t *testing.T) {
	r := p.replay(t, "S7", "a kind comes back cluster-wide under a mapper and a dynamic client")
	p.served(r, gadget, "gadgets")
	p.startWith(r, func(s *side) []string {
		return []string{"serve", "-kind", "Gadget.v1." + gadget.Group, "-class", s.class()}
	})
	p.marked(r, gadget, false)
	p.gone(r, gadget, "gadgets")
	cluster := gadget
	cluster.Cluster = true
	p.served(r, cluster, "gadgets")
	p.marked(r, cluster, true)
	p.gone(r, cluster, "gadgets")
	r.judge(false)
}

// marked is reconciled with the time that a mapper without options may take.
func (p *plain) marked(r *replay, kind Kind, counts bool) {
	r.t.Helper()
	p.await(r, kind, "gadgets", counts, limits{within: unmanagedWithin, giveUp: unmanagedGiveUp})
}

// misses counts the requests for objects that do not exist.
func (p *plain) misses(t *testing.T, name string, gets int, over time.Duration) {
	r := p.replay(t, name, fmt.Sprintf("%d Gets of objects that do not exist, of %d groups, in %v", gets, missGroups, over))
	p.startWith(r, func(*side) []string {
		return []string{"miss", "-gets", fmt.Sprint(gets), "-over", over.String()}
	})
	for _, s := range r.sides {
		ready, err := s.process.stdout.ReadString('\n')
		if ready != "ready\n" {
			t.Fatalf("%s: printed %q and not that it is ready: %v", s.result.Build, ready, err)
		}
	}
	r.both("gets of what is absent", func(s *side) (Step, error) {
		begun := time.Now()
		if _, err := s.process.ask(""); err != nil { // it answers when it is done
			return Step{}, err
		}
		all := p.gateways[s].Calls(begun, func(Call) bool { return true })
		beyond := len(p.gateways[s].Calls(begun, Call.isDiscovery))
		s.result.Healed = len(all)-beyond == gets && beyond <= missMost(time.Since(begun))
		s.result.Tries, s.result.Requests, s.result.Millis = 1, beyond, millisSince(begun)
		return Step{Outcome: fmt.Sprintf("%d requests", len(all)), OK: s.result.Healed, Requests: beyond}, nil
	})
	r.judge(true)
}
