// SPDX-License-Identifier: Apache-2.0

package fresh_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/follow"
)

// registeredTally is a handler with its registration.
type registeredTally struct {
	*tally
	representation string
	inf            cache.Informer
	reg            toolscache.ResourceEventHandlerRegistration
}

var (
	lives     = flag.Int("lives", 40, "random lives of an optional kind")
	firstLife = flag.Uint64("life", 1, "the seed of the first one: -lives 1 -life N runs one again")
)

// An optional kind is installed, removed and changed at random, while handlers, indexes and informers come and go and
// the server fails. In the end each handler has exactly the objects that there are, and nothing is left of what was
// removed.
func TestRandomLivesOfAnOptionalKind(t *testing.T) {
	for seed := *firstLife; seed < *firstLife+uint64(*lives); seed++ {
		bubble(t, fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 7))
			scopes := []string{"", inNamespaces, ofCluster}
			s := newChangingServer(t, scopes[r.IntN(3)])
			var log []string
			note := func(f string, a ...any) { log = append(log, fmt.Sprintf(f, a...)) }
			defer func() {
				if t.Failed() {
					t.Log(strings.Join(log, "\n"))
				}
			}()
			c, m := s.unstarted(t, optional(cache.Options{}))
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Hour)
			defer cancel()
			var handlers []*registeredTally
			uid := 1
			began := false
			var heals []func()
			base := 0
			steps := 12 + r.IntN(20)
			for step := range steps {
				if !began && r.IntN(3) == 0 {
					note("start")
					start(t, c)
					began = true
					synctest.Wait()
					base = runningGoroutines()
				}
				representation := representations[r.IntN(3)]
				switch n := r.IntN(20); {
				case n < 6:
					scope, plural := scopes[r.IntN(3)], []string{"configmaps", "maps"}[r.IntN(2)]
					names := [][]string{{"n"}, {"n", "m"}, {}}[r.IntN(3)]
					end := r.IntN(4) > 0
					note("%d change %q %q %v endwatches %t", step, scope, plural, names, end)
					if scope == s.scope && plural == s.plural {
						// The cache would not learn of others: the server sends no events.
						names = s.names
					} else {
						uid++
						end = true // the server has deleted the CRD, which ends its watches
					}
					s.change(func() { s.scope, s.plural, s.names, s.uid = scope, plural, names, fmt.Sprint(uid) })
					if end {
						s.EndWatches()
					}
				case n < 9 && len(handlers) < 8:
					note("%d handler %s", step, representation)
					wait, stop := context.WithTimeout(ctx, 5*time.Second)
					inf, err := c.GetInformer(wait, caller{representation, configMap}.object("", ""),
						cache.BlockUntilSynced(began))
					stop()
					if err != nil {
						note("   %v", err)
						break
					}
					h := &registeredTally{tally: &tally{}, representation: representation, inf: inf}
					h.reg, err = inf.AddEventHandler(h)
					must(t, err)
					handlers = append(handlers, h)
				case n == 9 && len(handlers) > 0:
					i := r.IntN(len(handlers))
					note("%d remove handler %s", step, handlers[i].representation)
					must(t, handlers[i].inf.RemoveEventHandler(handlers[i].reg))
					handlers = slices.Delete(handlers, i, i+1)
				case n == 10:
					note("%d remove informer %s", step, representation)
					must(t, c.RemoveInformer(ctx, caller{representation, configMap}.object("", "")))
					handlers = slices.DeleteFunc(handlers,
						func(h *registeredTally) bool { return h.representation == representation })
				case n == 11:
					note("%d index %s", step, representation)
					// controller-runtime v0.23 waits for the first list
					wait, stop := context.WithTimeout(ctx, 5*time.Second)
					err := c.IndexField(wait, caller{representation, configMap}.object("", ""),
						fmt.Sprint("i", step), func(o client.Object) []string { return []string{o.GetName()} })
					stop()
					if err != nil {
						note("   %v", err)
					}
				case n == 12:
					note("%d refresh: %v", step, m.Refresh(ctx, ""))
				case n == 13:
					note("%d reset", step)
					m.Reset()
				case n < 17:
					what := r.IntN(5)
					matcher := map[int]string{0: "all", 1: "discovery", 2: "objects", 3: "lists",
						4: "lists ns"}[what]
					fault := []fakeapi.Fault{fakeapi.Status(503, 0), fakeapi.Text(403, "no"),
						fakeapi.Status(429, 1), fakeapi.Status(500, 0), fakeapi.Refused(), fakeapi.NotFound(),
						fakeapi.Late(3 * time.Second), fakeapi.ResetMidBody()}[r.IntN(8)]
					note("%d fault %s %v", step, matcher, fault)
					switch what {
					case 0:
						heals = append(heals, s.SetFault(fakeapi.All(), fault))
					case 1:
						heals = append(heals, s.SetFault(fakeapi.Discovery(), fault))
					case 2:
						heals = append(heals, s.SetFault(fakeapi.Objects(""), fault))
					case 3:
						heals = append(heals, s.SetFault(fakeapi.Lists(""), fault))
					case 4:
						heals = append(heals, s.SetFault(fakeapi.Lists("ns"), fault))
					}
				case n == 17 && len(heals) > 0:
					note("%d heal", step)
					for _, heal := range heals {
						heal()
					}
					heals = nil
				case n == 18 && began:
					wait, stop := context.WithTimeout(ctx, 5*time.Second)
					err := c.List(wait, caller{representation, configMap}.list())
					stop()
					note("%d list %s: %v", step, representation, err)
				case n == 19:
					note("%d end watches", step)
					s.EndWatches()
				}
				d := []time.Duration{0, 10 * time.Millisecond, 500 * time.Millisecond, time.Second,
					1500 * time.Millisecond, 5 * time.Second, 35 * time.Second, 3 * time.Minute}[r.IntN(8)]
				note("   sleep %v", d)
				time.Sleep(d)
			}
			for _, heal := range heals {
				heal()
			}
			if !began {
				start(t, c)
				time.Sleep(time.Second)
			}
			note("end: scope %q plural %q names %v", s.scope, s.plural, s.names)
			s.change(func() {})
			s.EndWatches()
			must(t, m.Refresh(ctx, ""))
			time.Sleep(6 * time.Minute)
			var want []string
			for _, ns := range map[string][]string{inNamespaces: {"ns/", "other/"}, ofCluster: {""}}[s.scope] {
				for _, name := range s.names {
					want = append(want, ns+name)
				}
			}
			slices.Sort(want)
			for i, h := range handlers {
				h.mu.Lock()
				wrong := slices.Clone(h.wrong)
				l := slices.Clone(h.log)
				h.mu.Unlock()
				if h.keys() != strings.Join(want, " ") || len(wrong) > 0 {
					t.Errorf("handler %d (%s) has %q, want %q; wrong %q; log %q", i, h.representation, h.keys(),
						want, wrong, l)
				}
				if !h.inf.HasSynced() || h.inf.IsStopped() {
					t.Errorf("handler %d synced %t stopped %t", i, h.inf.HasSynced(), h.inf.IsStopped())
				}
				list := caller{h.representation, configMap}.list()
				wait, stop := context.WithTimeout(ctx, 5*time.Second)
				err := c.List(wait, list)
				stop()
				if (s.scope == "") != meta.IsNoMatchError(err) || s.scope != "" &&
					(err != nil || meta.LenList(list) != len(want)) {
					t.Errorf("list of %s: %d, %v", h.representation, meta.LenList(list), err)
				}
			}
			w := follow.Of(m, follow.WaitUntilRead).Waiting()
			if s.scope != "" && len(w) > 0 {
				t.Errorf("waiting %v", w)
			}
			if s.scope == "" && len(handlers) > 0 && len(w) != 1 {
				t.Errorf("waiting %v", w)
			}
			for _, representation := range representations {
				must(t, c.RemoveInformer(ctx, caller{representation, configMap}.object("", "")))
			}
			time.Sleep(3 * time.Minute)
			synctest.Wait()
			if w := follow.Of(m, follow.WaitUntilRead).Waiting(); len(w) > 0 {
				t.Errorf("after removal waiting %v", w)
			}
			if now := runningGoroutines(); base > 0 && now > base {
				t.Errorf("%d goroutines, %d at first", now, base)
			}
			if n := s.Watches("configmaps") + s.Watches("maps"); n > 0 {
				t.Errorf("%d watches", n)
			}
		})
	}
}
