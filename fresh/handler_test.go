// SPDX-License-Identifier: Apache-2.0

package fresh_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// tally is a handler that keeps account of what it is told.
type tally struct {
	onAdd func(client.Object) // may be nil

	busy  atomic.Int32
	mu    sync.Mutex
	has   map[string]bool
	log   []string
	wrong []string // what must not have been told
}

func (h *tally) note(what string, obj any, initial bool) {
	if h.busy.Add(1) > 1 {
		h.mu.Lock()
		h.wrong = append(h.wrong, "two calls at once")
		h.mu.Unlock()
	}
	defer h.busy.Add(-1)
	if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	key, _ := toolscache.MetaNamespaceKeyFunc(obj)
	h.mu.Lock()
	if h.has == nil {
		h.has = map[string]bool{}
	}
	said := strings.TrimSuffix(fmt.Sprintf("%s %s%s", what, key, map[bool]string{true: " initial"}[initial]), " ")
	h.log = append(h.log, said)
	if h.has[key] == (what == "add") {
		h.wrong = append(h.wrong, said)
	}
	if h.has[key] = true; what == "delete" {
		delete(h.has, key)
	}
	h.mu.Unlock()
	if what == "add" && h.onAdd != nil {
		h.onAdd(obj.(client.Object))
	}
}

func (h *tally) OnAdd(obj any, initial bool) { h.note("add", obj, initial) }
func (h *tally) OnUpdate(_, obj any)         { h.note("update", obj, false) }
func (h *tally) OnDelete(obj any)            { h.note("delete", obj, false) }

// keys are those of the objects that there are.
func (h *tally) keys() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []string
	for key := range h.has {
		all = append(all, key)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// told returns what the handler was told since the last call, and what was wrong so far.
func (h *tally) told() (log, wrong []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	log, h.log = h.log, nil
	return log, h.wrong
}

// Handlers of all sorts keep exact account through many moves, one call at a time. What they are told of is in
// the cache, also by an index that was added to the informer.
func TestHandlers(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]cache.Options{"all": {}, "several": several()} {
		ctx, s := context.Background(), newMovingServer(t, inNamespaces)
		c, m := s.caching(t, opts)
		tallies, handles, informers := map[string]*tally{}, map[string]toolscache.ResourceEventHandlerRegistration{}, map[string]cache.Informer{}
		for _, sort := range sorts {
			var err error
			informers[sort], err = c.GetInformer(ctx, caller{sort, configMap}.object("", ""))
			must(t, err)
			tallies[sort] = &tally{onAdd: func(obj client.Object) {
				if err := c.Get(ctx, client.ObjectKeyFromObject(obj), caller{sort, configMap}.object("", "")); err != nil {
					t.Errorf("%s, %s: told of %s/%s, and: %v", name, sort, obj.GetNamespace(), obj.GetName(), err)
				}
			}}
			handles[sort], err = informers[sort].AddEventHandler(tallies[sort])
			must(t, err)
			must(t, informers[sort].AddIndexers(toolscache.Indexers{"own": func(obj any) ([]string, error) { return []string{obj.(client.Object).GetName()}, nil }}))
		}
		for n, scope := range []string{inNamespaces, ofCluster, inNamespaces, ofCluster} {
			s.move(t, m, scope)
			want := map[string]string{inNamespaces: "ns/n other/n", ofCluster: "n"}[scope]
			for _, sort := range sorts {
				h := tallies[sort]
				eventually(t, fmt.Sprintf("%s, %s, %d: told of %s", name, sort, n, want), func() bool { return h.keys() == want })
				eventually(t, fmt.Sprintf("%s, %s, %d: synced", name, sort, n), handles[sort].HasSynced)
				if !informers[sort].HasSynced() || informers[sort].IsStopped() {
					t.Errorf("%s, %s, %d: not synced", name, sort, n)
				}
				if shared, ok := informers[sort].(toolscache.SharedIndexInformer); ok {
					if found, err := shared.GetIndexer().ByIndex("own", "n"); err != nil || len(found) != len(strings.Fields(want)) {
						t.Errorf("%s, %s, %d: by index %v, %v", name, sort, n, found, err)
					}
				} else if opts.DefaultNamespaces == nil {
					t.Errorf("%s, %s: the informer is no SharedIndexInformer", name, sort)
				}
			}
		}
		for _, sort := range sorts {
			must(t, informers[sort].RemoveEventHandler(handles[sort]))
			if log, wrong := tallies[sort].told(); len(wrong) > 0 {
				t.Errorf("%s, %s: %q in %q", name, sort, wrong, log)
			}
		}
		s.move(t, m, inNamespaces)
		eventually(t, "the cache follows", func() bool { return has(c, "ns") })
		time.Sleep(100 * time.Millisecond)
		for _, sort := range sorts {
			if log, _ := tallies[sort].told(); len(log) > 0 {
				t.Errorf("%s, %s: removed, and told %q", name, sort, log)
			}
		}
	}
}

// What a handler is told of a move: an object that is still there is an update, another one of the same name a
// delete and an add, and nothing is part of an initial list but the handler's own first.
func TestWhatIsToldOfAMove(t *testing.T) {
	t.Parallel()
	s := newMovingServer(t, inNamespaces)
	c, m := s.caching(t, cache.Options{})
	informer, err := c.GetInformer(context.Background(), &corev1.ConfigMap{})
	must(t, err)
	h := &tally{}
	_, err = informer.AddEventHandler(h)
	must(t, err)
	for _, step := range []struct {
		change func()
		want   []string
	}{
		{func() {}, []string{"add ns/n initial", "add other/n initial"}},
		{func() { s.plural = "gizmos" }, []string{"update ns/n", "update other/n"}},
		{func() { s.plural, s.uid = "widgets", "2" }, []string{"add ns/n", "add other/n", "delete ns/n", "delete other/n"}},
		{func() { s.names = []string{"n", "m"} }, nil}, // nothing tells the cache
		{func() { s.plural = "gadgets" }, []string{"add ns/m", "add other/m", "update ns/n", "update other/n"}},
		{func() { s.scope = ofCluster }, []string{"add m", "add n", "delete ns/m", "delete ns/n", "delete other/m", "delete other/n"}},
	} {
		s.change(step.change)
		must(t, m.Refresh(context.Background(), ""))
		var log, wrong []string
		eventually(t, fmt.Sprintf("told %q", step.want), func() bool {
			more, bad := h.told()
			log, wrong = append(log, more...), bad
			return len(log) >= len(step.want)
		})
		slices.Sort(log)
		if !slices.Equal(log, step.want) || len(wrong) > 0 {
			t.Errorf("told %q (wrong: %q), want %q", log, wrong, step.want)
		}
	}
}

// A handler that is slow, or blocks, when its kind moves holds up no other, and is told exactly what it has not
// been told.
func TestSlowHandlers(t *testing.T) {
	s := newMovingServer(t, inNamespaces)
	for i := range 20 {
		s.names = append(s.names, fmt.Sprint("m", i))
	}
	c, m := s.caching(t, cache.Options{})
	informer, err := c.GetInformer(context.Background(), &corev1.ConfigMap{})
	must(t, err)
	release := make(chan struct{})
	stuck := &tally{onAdd: func(client.Object) { <-release }}
	slow := &tally{onAdd: func(client.Object) { time.Sleep(20 * time.Millisecond) }}
	quick := &tally{}
	for _, h := range []*tally{stuck, slow, quick} {
		_, err = informer.AddEventHandler(h)
		must(t, err)
	}
	eventually(t, "the quick one is told", func() bool { return len(strings.Fields(quick.keys())) == 42 })
	s.change(func() { s.names = []string{"n"} })
	s.move(t, m, ofCluster)
	for name, h := range map[string]*tally{"quick": quick, "slow": slow} {
		eventually(t, "the "+name+" one is told while another blocks", func() bool { return h.keys() == "n" })
	}
	close(release)
	eventually(t, "the stuck one is told", func() bool { return stuck.keys() == "n" })
	for name, h := range map[string]*tally{"quick": quick, "slow": slow, "stuck": stuck} {
		if log, wrong := h.told(); len(wrong) > 0 {
			t.Errorf("%s: %q in %q", name, wrong, log)
		}
	}
}

// A transform, an index and a handler may use the cache.
func TestCallbacksMayUseTheCache(t *testing.T) {
	t.Parallel()
	ctx, s := context.Background(), newMovingServer(t, inNamespaces)
	var c cache.Cache
	use := func() {
		_ = c.List(ctx, &corev1.SecretList{})
		_, _ = c.GetInformer(ctx, &corev1.Secret{}, cache.BlockUntilSynced(false))
		_, _ = c.GetInformer(ctx, &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
	}
	var ready sync.WaitGroup
	ready.Add(1)
	c, m := s.caching(t, cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {Transform: func(obj any) (any, error) {
		ready.Wait()
		use()
		return obj, nil
	}}}})
	ready.Done()
	must(t, c.IndexField(ctx, &corev1.ConfigMap{}, "name", func(obj client.Object) []string {
		use()
		return []string{obj.GetName()}
	}))
	informer, err := c.GetInformer(ctx, &corev1.ConfigMap{})
	must(t, err)
	h := &tally{onAdd: func(obj client.Object) {
		use()
		_ = c.Get(ctx, client.ObjectKeyFromObject(obj), &corev1.ConfigMap{})
		_, _ = informer.AddEventHandler(&tally{})
	}}
	_, err = informer.AddEventHandler(h)
	must(t, err)
	for _, scope := range []string{ofCluster, inNamespaces, ofCluster} {
		s.move(t, m, scope)
		for range 20 {
			if _, err := informer.AddEventHandler(&tally{}); err != nil {
				t.Error(err)
			}
			must(t, c.IndexField(ctx, &corev1.ConfigMap{}, fmt.Sprint(time.Now().UnixNano()), func(client.Object) []string { use(); return nil }))
		}
		want := map[string]string{inNamespaces: "ns/n other/n", ofCluster: "n"}[scope]
		eventually(t, "told of "+want, func() bool { return h.keys() == want })
		list := &corev1.ConfigMapList{}
		if err := c.List(ctx, list, client.MatchingFields{"name": "n"}); err != nil || len(list.Items) != len(strings.Fields(want)) {
			t.Errorf("%s: by index %d objects, %v", scope, len(list.Items), err)
		}
	}
}

// A kind that moves before the cache starts, or before its first list succeeds, is found where it is, and all
// that wait for it go on.
func TestMoveBeforeTheFirstList(t *testing.T) {
	t.Parallel()
	for name, started := range map[string]bool{"before Start": false, "after Start": true} {
		ctx, s := context.Background(), newMovingServer(t, inNamespaces)
		s.change(func() { s.refuses["list"] = 503 })
		c, m := s.unstarted(t)
		if started {
			start(t, c)
		}
		informer, err := c.GetInformer(ctx, &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
		must(t, err)
		h := &tally{}
		handle, err := informer.AddEventHandler(h)
		must(t, err)
		time.Sleep(500 * time.Millisecond)
		s.change(func() { clear(s.refuses) })
		s.move(t, m, ofCluster)
		if !started {
			start(t, c)
		}
		if !c.WaitForCacheSync(ctx) {
			t.Errorf("%s: the cache does not sync", name)
		}
		eventually(t, name+": told", func() bool { return h.keys() == "n" && handle.HasSynced() && informer.HasSynced() })
		if log, wrong := h.told(); len(wrong) > 0 || log[0] != "add n initial" {
			t.Errorf("%s: told %q (wrong: %q)", name, log, wrong)
		}
	}
}

// A client of upstream's that reads its own writes adds handlers through a view of the cache. When another client
// takes its place, they are removed, and those of others stay.
func TestViewsOfTheCache(t *testing.T) {
	ctx, s := context.Background(), newMovingServer(t, inNamespaces)
	c, m := s.caching(t, cache.Options{})
	var tallies []*tally
	var leave []func(schema.GroupVersionKind)
	for range 2 {
		view, l := c.(interface {
			View() (client.Reader, func(schema.GroupVersionKind))
		}).View()
		i, err := view.(cache.Cache).GetInformer(ctx, &corev1.ConfigMap{})
		must(t, err)
		tallies, leave = append(tallies, &tally{}), append(leave, l)
		_, err = i.AddEventHandler(tallies[len(tallies)-1])
		must(t, err)
	}
	for _, h := range tallies {
		eventually(t, "both are told", func() bool { return h.keys() != "" })
	}
	leave[0](configMap)
	leave[1](configMap.GroupKind().WithVersion("v2"))
	s.move(t, m, ofCluster)
	eventually(t, "the one that stays is told", func() bool { return tallies[1].keys() == "n" })
	if keys := tallies[0].keys(); keys == "n" {
		t.Errorf("the one that has left is told, and has %q", keys)
	}
}

// forgets is what package latekinds asks of a cache whose informers stay right while their kind is absent.
type forgets interface{ ForgetKind(schema.GroupVersionKind) }

// What a kind had that two reads have found absent is forgotten, and told to be gone. Nothing is while the kind is
// served. What comes back is told as new, in any scope.
func TestForgottenKind(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]cache.Options{"all": {}, "several": several()} {
		s := newMovingServer(t, inNamespaces)
		c, m := s.caching(t, opts)
		informer, err := c.GetInformer(context.Background(), &corev1.ConfigMap{})
		must(t, err)
		h := &tally{}
		_, err = informer.AddEventHandler(h)
		must(t, err)
		for n, scope := range []string{inNamespaces, ofCluster, inNamespaces, inNamespaces} {
			s.move(t, m, scope)
			want := map[string]string{inNamespaces: "ns/n other/n", ofCluster: "n"}[scope]
			eventually(t, fmt.Sprintf("%s, %d: told of %s", name, n, want), func() bool { return h.keys() == want })
			c.(forgets).ForgetKind(configMap)
			c.(forgets).ForgetKind(configMap.GroupVersion().WithKind("Secret"))
			if h.keys() != want {
				t.Errorf("%s, %d: forgotten while it is served", name, n)
			}
			s.move(t, m, "")
			c.(forgets).ForgetKind(configMap)
			eventually(t, fmt.Sprintf("%s, %d: told that all is gone", name, n), func() bool { return h.keys() == "" })
			list := &corev1.ConfigMapList{}
			if must(t, c.List(context.Background(), list)); len(list.Items) > 0 {
				t.Errorf("%s, %d: the cache still has %d objects", name, n, len(list.Items))
			}
			s.change(func() { s.uid += "0" })
		}
		if log, wrong := h.told(); len(wrong) > 0 {
			t.Errorf("%s: %q in %q", name, wrong, log)
		}
	}
}
