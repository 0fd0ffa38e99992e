// SPDX-License-Identifier: Apache-2.0

package fresh_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// Caches follow a kind there and back, with their indexes and handlers. A watch that is still open at the old path
// shows them the way. A cache of several namespaces sees nothing of any other.
func TestCachesFollow(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newChangingServer(t, ofCluster)
		c := s.client(t, nil)
		all, _ := s.caching(t, cache.Options{Mapper: c.RESTMapper()})
		some, _ := s.caching(t, cache.Options{Mapper: c.RESTMapper(),
			DefaultNamespaces: map[string]cache.Config{"ns": {}, "more": {}}})
		caches := []cache.Cache{all, some}
		for _, cached := range caches {
			must(t, cached.IndexField(t.Context(), &corev1.ConfigMap{}, "name",
				func(obj client.Object) []string { return []string{obj.GetName()} }))
		}
		handle(t, some, "typed", &tally{then: func(_ string, obj client.Object) {
			if obj.GetNamespace() == "other" {
				t.Error("a cache of other namespaces has told of an object in the namespace \"other\"")
			}
		}})
		for n, test := range []struct {
			scope, namespace, elsewhere string
			objects                     []int // in each of the caches
		}{{ofCluster, "", "ns", []int{2, 1}}, {inNamespaces, "ns", "", []int{2, 1}}, {ofCluster, "", "ns",
			[]int{1, 1}}} {
			eventually(t, "both caches watch", func() bool { return s.Watches("configmaps") > 1 })
			s.change(func() { s.scope = test.scope })
			must(t, s.Tell("ADDED", "configmaps", fakeapi.Object{Namespace: "other", Name: "n"}))
			for i, cached := range caches {
				eventually(t, fmt.Sprintf("step %d: cache %d has %d objects at the path of %s", n, i, test.objects[i],
					test.scope), func() bool {
					_ = has(c, test.namespace) // for who sees nothing wrong at the path of all namespaces
					list := &corev1.ConfigMapList{}
					return has(cached, test.namespace) && has(cached, test.elsewhere) == (test.scope == ofCluster) &&
						cached.List(t.Context(), list, client.MatchingFields{"name": "n"}) == nil &&
						len(list.Items) == test.objects[i]
				})
			}
		}
	})
}

// A cache that is given no mapper makes one.
func TestCacheWithoutAMapper(t *testing.T) {
	s := newChangingServer(t, inNamespaces)
	c, err := newCache(s.Config(), cache.Options{})
	must(t, err)
	start(t, c)
	eventually(t, "the object", func() bool { return has(c, "ns") })
	s.change(func() { s.scope = ofCluster })
	eventually(t, "the cache follows", func() bool { return has(c, "") })
	if c.(interface{ NeedLeaderElection() bool }).NeedLeaderElection() {
		t.Error("the cache runs on the leader alone")
	}
}

// A second Start is an error, and the cache goes on. A caller that waits for a cache which nobody starts learns that it
// has not synced.
func TestCacheThatIsStartedTwice(t *testing.T) {
	s := newChangingServer(t, inNamespaces)
	c, _ := s.unstarted(t, cache.Options{})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if c.WaitForCacheSync(ended) {
		t.Error("a cache that was not started has synced")
	}
	start(t, c)
	c.WaitForCacheSync(t.Context())
	if err := c.Start(t.Context()); err == nil {
		t.Error("it was started twice, and there is no error")
	}
	eventually(t, "the object", func() bool { return has(c, "ns") })
}

// In a cache of several namespaces a mapper of the program's own decides, and nothing else.
func TestCacheWithAnotherMapper(t *testing.T) {
	s := newChangingServer(t, inNamespaces)
	cached := memory.NewMemCacheClient(discovery.NewDiscoveryClientForConfigOrDie(s.Config()))
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(cached)
	c, _ := s.caching(t, cache.Options{Mapper: mapper, DefaultNamespaces: map[string]cache.Config{"ns": {}}})
	must(t, c.List(t.Context(), &corev1.ConfigMapList{}))
	s.change(func() { s.scope = ofCluster })
	mapper.Reset()
	must(t, c.Get(t.Context(), client.ObjectKey{Name: "n"}, &corev1.ConfigMap{}))
}

// No caller waits for an informer of a kind that was removed: it begins empty, whichever caller found out that the
// kind was removed, and whatever else of its group fails, and has the objects when the kind is back. That costs few
// reads, also of many namespaces.
func TestInformersOfARemovedKind(t *testing.T) {
	many := cache.Options{DefaultNamespaces: map[string]cache.Config{"ns": {}}}
	for n := range 20 {
		many.DefaultNamespaces[fmt.Sprint("ns-", n)] = cache.Config{}
	}
	for name, test := range map[string]struct {
		opts                   cache.Options
		used, noticed, started bool // the kind by a client, that it has gone by the client, the cache before that
	}{
		"noticed": {cache.Options{}, true, true, true}, "not noticed": {cache.Options{}, true, false, true},
		"before Start, many namespaces": {many, true, true, false}, "before Start, never used": {cache.Options{},
			false, true, false},
	} {
		bubble(t, name, func(t *testing.T) {
			s := newChangingServer(t, inNamespaces)
			if test.noticed {
				s.PutVersion("", fakeapi.Version{Name: "v2", Stale: true})
			}
			c := s.client(t, nil)
			test.opts.Mapper = c.RESTMapper()
			cached, _ := s.unstarted(t, test.opts)
			if test.started {
				start(t, cached)
			} else {
				_, err := cached.GetInformer(t.Context(), &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
				must(t, err)
			}
			if test.used && !has(c, "ns") {
				t.Fatal("the client has no object at first")
			}
			if test.started {
				eventually(t, "the object", func() bool { return has(cached, "ns") })
			}
			s.change(func() { s.scope = "" })
			if test.noticed {
				_ = has(c, "ns")
			}
			_, _ = s.take()
			if test.started {
				must(t, cached.RemoveInformer(t.Context(), &corev1.ConfigMap{}))
			} else {
				start(t, cached)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if _, err := cached.GetInformer(ctx, &corev1.ConfigMap{}); err != nil && !meta.IsNoMatchError(err) ||
				!cached.WaitForCacheSync(ctx) {
				t.Errorf("the informer does not begin empty: %v", err)
			}
			time.Sleep(3 * time.Second)
			if _, reads := s.take(); reads > 20 {
				t.Errorf("%d reads of the served API in 3 seconds, want at most 20", reads)
			}
			s.change(func() { s.scope = inNamespaces })
			eventually(t, "the object is there again", func() bool { return has(cached, "ns") })
		})
	}
}

// An informer of a kind that was removed, and re-created, does not begin empty, neither where the server cannot
// list it, nor where the mapper has not noticed where it is.
func TestInformerOfARecreatedKind(t *testing.T) {
	for _, plural := range []string{"configmaps", "gizmos"} {
		bubble(t, plural, func(t *testing.T) {
			s := newChangingServer(t, inNamespaces)
			mapper := s.mapper(t, apiutil.DynamicRESTMapperOptions{NegativeTTL: time.Hour})
			c := s.client(t, mapper)
			must(t, c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "n"}, &corev1.ConfigMap{}))
			s.change(func() { s.scope = "" })
			for range 5 { // until the mapper may not confirm it once more
				_ = has(c, "ns")
			}
			_, _ = mapper.RESTMapping(configMap.GroupKind(), "v1") // keeps that it is gone
			s.change(func() { s.scope, s.plural = inNamespaces, plural })
			if plural == "configmaps" {
				s.SetFault(fakeapi.Lists(""), fakeapi.Status(503, 0))
			}
			cached, _ := s.caching(t, cache.Options{Mapper: mapper})
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			if _, err := cached.GetInformer(ctx, &corev1.ConfigMap{}); (err == nil) != (plural == "gizmos") {
				t.Errorf("an informer within 3 seconds: %v", err)
			}
			s.ClearFaults()
			found := &corev1.ConfigMapList{}
			if must(t, cached.List(t.Context(), found)); len(found.Items) != 2 {
				t.Errorf("%d objects in the cache, want 2", len(found.Items))
			}
		})
	}
}

// While discovery cannot be read, a path that answers 404 does not show that the kind was removed. So an informer does
// not begin empty.
func TestInformerOfAPathThatRefusesInAnOutage(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newChangingServer(t, inNamespaces)
		c, m := s.caching(t, cache.Options{})
		_, err := m.RESTMapping(configMap.GroupKind(), "v1")
		must(t, err)
		s.SetFault(fakeapi.Objects("", "list", "watch"), fakeapi.NotFound())
		s.SetFault(fakeapi.Discovery(), fakeapi.Status(503, 0))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := c.GetInformer(ctx, &corev1.ConfigMap{}); !apierrors.IsTimeout(err) {
			t.Errorf("an informer of a path that answers 404: %v, want a timeout", err)
		}
		s.ClearFaults()
		found := &corev1.ConfigMapList{}
		if must(t, c.List(t.Context(), found)); len(found.Items) != 2 {
			t.Errorf("%d objects in the cache, want 2", len(found.Items))
		}
	})
}

// Reads go on while a kind switches, and while the new list takes its time: none fails, and each finds the whole old
// set or the whole new one, also of one namespace, whether informers are made by reads or not.
func TestReadsDuringSwitches(t *testing.T) {
	for _, explicit := range []bool{false, true} {
		for name, opts := range map[string]cache.Options{"all": {}, "several": several()} {
			bubble(t, fmt.Sprintf("%s, informers are made by reads: %t", name, !explicit), func(t *testing.T) {
				s := newChangingServer(t, inNamespaces)
				s.change(func() { s.names = []string{"n", "m"} })
				opts.ReaderFailOnMissingInformer = explicit
				c, m := s.caching(t, opts)
				one, err := newClient(s.Config(), client.Options{HTTPClient: s.Client(), Mapper: m,
					Cache: &client.CacheOptions{Reader: c}})
				must(t, err)
				if err := c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "n"},
					&corev1.ConfigMap{}); explicit != errors.As(err, new(*cache.ErrResourceNotCached)) {
					t.Errorf("without an informer: %v", err)
				}
				_, err = c.GetInformer(t.Context(), &corev1.ConfigMap{})
				must(t, err)
				s.SetFault(fakeapi.Lists(""), fakeapi.Late(time.Second))
				sizes, ended := [2]map[int]int{{}, {}}, make(chan struct{})
				ctx, cancel := context.WithCancel(t.Context())
				read := func() {
					all, some := &corev1.ConfigMapList{}, &corev1.ConfigMapList{}
					a := c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "n"}, &corev1.ConfigMap{})
					b := c.Get(t.Context(), client.ObjectKey{Name: "n"}, &corev1.ConfigMap{})
					if known := b == nil || apierrors.IsNotFound(b) ||
						strings.Contains(b.Error(), "unknown namespace"); a != nil && b != nil || !known {
						t.Errorf("the object is at neither path: %v, %v", a, b)
					}
					must(t, errors.Join(c.List(t.Context(), all), newNamespaced(one, "ns").List(t.Context(), some),
						newNamespaced(one, "ns").Get(t.Context(), client.ObjectKey{Name: "n"}, &corev1.ConfigMap{})))
					sizes[0][len(all.Items)]++
					sizes[1][len(some.Items)]++
				}
				go func() {
					defer close(ended)
					for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
						read()
					}
				}()
				for _, scope := range []string{ofCluster, inNamespaces, ofCluster} {
					s.changeScope(t, m, scope)
					eventually(t, "the cache follows", func() bool { return has(c, "") == (scope == ofCluster) })
				}
				cancel()
				<-ended
				if len(sizes[0]) != 2 || sizes[0][4] < 1000 || sizes[0][2] < 1000 || len(sizes[1]) != 1 ||
					sizes[1][2] == 0 {
					t.Errorf(
						"lists by their length: %v, and of a namespace %v; want 4 or 2, many times each, and of a namespace 2",
						sizes[0], sizes[1])
				}
			})
		}
	}
}

// A kind that was removed and re-created at its path is listed as soon as the mapper knows it, however long a
// reflector pauses.
func TestKindThatIsRecreated(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s, h := newChangingServer(t, inNamespaces), &tally{}
		c, m := s.caching(t, cache.Options{})
		handle(t, c, "typed", h)
		for n := range 6 {
			s.changeScope(t, m, "")
			s.change(func() { s.names, s.uid = []string{fmt.Sprint("n", n)}, fmt.Sprint(n+2) })
			time.Sleep(time.Minute)
			s.changeScope(t, m, inNamespaces)
			time.Sleep(2 * time.Second)
			if want := fmt.Sprintf("ns/n%d other/n%[1]d", n); h.keys() != want {
				t.Errorf("2 seconds after recreation %d the handler has %q, want %q", n, h.keys(), want)
			}
		}
		s.changeScope(t, m, "")
		time.Sleep(time.Minute) // the reflector is refused, too: a watch that nobody refuses would go on without a list
		s.change(func() { s.scope = inNamespaces })
		time.Sleep(2 * time.Minute) // the reflector finds it before the mapper does
		_ = h.takeLog()
		must(t, m.Refresh(t.Context(), ""))
		time.Sleep(5 * time.Second)
		if log := h.takeLog(); len(log) > 0 {
			t.Errorf("what the reflector had listed was told again: %q", log)
		}
	})
}

// A bookmark of a watch that has outlived its kind does not show that the old objects are right: when the kind is back,
// it is listed.
func TestBookmarkOfAKindThatWasRemoved(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s, h := newChangingServer(t, ofCluster), &tally{}
		c, m := s.caching(t, cache.Options{})
		handle(t, c, "typed", h)
		h.expect(t, "at first", keysOf[ofCluster])
		s.changeScope(t, m, "") // the watch stays open
		time.Sleep(time.Second)
		must(t, s.Tell("BOOKMARK", "configmaps", fakeapi.Object{}))
		time.Sleep(time.Second)
		s.change(func() { s.names = []string{"m"} })
		s.changeScope(t, m, ofCluster)
		h.expect(t, "it is back", "m")
	})
}

// A kind that has another path for a moment, and is back before that was listed, has lost nothing: no other instance
// takes the place of the present one, and handlers get no events.
func TestKindThatIsBackBeforeTheSwitch(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s, m, h := handling(t)
		_, _ = h.takeLog(), logged.take()
		heal := s.SetFault(fakeapi.Lists(""), fakeapi.Late(5*time.Second))
		s.change(func() { s.plural = "gizmos" })
		must(t, m.Refresh(t.Context(), ""))
		time.Sleep(2 * time.Second)
		s.change(func() { s.plural = "configmaps" })
		must(t, m.Refresh(t.Context(), ""))
		heal()
		time.Sleep(time.Minute)
		if log, lines := h.takeLog(), logged.take("The cache follows"); len(log)+len(lines) > 0 {
			t.Errorf("the handler was told %q, and it logged %q; want nothing", log, lines)
		}
	})
}

// A path that has refused while the kind is served is listed again at once, however long a reflector pauses.
func TestPathThatRefusesForAMoment(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s, h := newChangingServer(t, inNamespaces), &tally{}
		c, _ := s.caching(t, cache.Options{})
		handle(t, c, "typed", h)
		for _, is := range []struct {
			fault       fakeapi.Fault
			lasts, rest time.Duration
		}{{fakeapi.Status(503, 0), 10 * time.Minute, 70 * time.Second}, {fakeapi.NotFound(), 20 * time.Millisecond,
			3 * time.Second}} {
			heal := s.SetFault(fakeapi.Objects("", "list", "watch"), is.fault)
			s.EndWatches()
			time.Sleep(is.lasts)
			heal()
			s.change(func() { s.names = []string{is.lasts.String()} })
			time.Sleep(is.rest)
		}
		if got := h.keys(); got != "ns/20ms other/20ms" {
			t.Errorf("3 seconds after a 404 the handler has %q, want the objects that there are then", got)
		}
	})
}

// A first list that is empty, because for a moment the kind was known to be removed, never takes the place of a full
// one.
func TestEmptyListTakesNoPlace(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s, h := newChangingServer(t, inNamespaces), &tally{}
		c, m := s.caching(t, cache.Options{HTTPClient: &http.Client{Transport: fakeapi.Balancer(func(req *http.Request) *fakeapi.Server {
			if strings.HasSuffix(req.URL.Path, "/gizmos") && req.URL.Query().Get("watch") == "" {
				time.Sleep(2 * time.Second)
			}
			return s.Server
		})}})
		handle(t, c, "typed", h)
		h.expect(t, "first", keysOf[inNamespaces])
		time.Sleep(time.Hour)
		_, s.plural = h.takeLog(), "gizmos"
		s.changeScope(t, m, inNamespaces)
		time.Sleep(1900 * time.Millisecond)
		s.change(func() { s.scope = "" })
		time.Sleep(150 * time.Millisecond)
		s.changeScope(t, m, inNamespaces)
		time.Sleep(10 * time.Second)
		if log := h.takeLog(); strings.Contains(strings.Join(log, ""), "delete") {
			t.Errorf("the handler was told %q, want no deletes: the objects were there all along except for 150 ms", log)
		}
	})
}

// A kind that flaps between replicas costs a new instance a second at most, each with one list, and one more of the
// reflector of the present one, which lists again after each watch that the server has refused, as upstream's does.
func TestKindThatFlaps(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newChangingServer(t, inNamespaces)
		c, m := s.caching(t, cache.Options{})
		eventually(t, "the object", func() bool { return has(c, "ns") })
		_, _ = s.take()
		began := time.Now()
		for i := range 1200 {
			s.changeScope(t, m, []string{ofCluster, inNamespaces}[i%2])
			time.Sleep(50 * time.Millisecond)
		}
		s.changeScope(t, m, ofCluster)
		eventually(t, "the cluster-scoped object", func() bool { return has(c, "") })
		lists := slices.DeleteFunc(s.TakeRequests(), func(r fakeapi.Request) bool { return r.Verb != "list" })
		took := time.Since(began) + time.Second
		if most := int(took/time.Second + took/(800*time.Millisecond)); len(lists) > most {
			t.Errorf(
				"%d lists in %v, want at most %d: one a second of new instances, and one in 0.8 seconds of the reflector",
				len(lists), took, most)
		}
	})
}

// Clients and caches do not make the mapper send requests: neither when nothing has changed, nor
// after a reset.
func TestCachesSendNoDiscoveryRequests(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newChangingServer(t, inNamespaces)
		c, m := s.caching(t, cache.Options{})
		eventually(t, "the object", func() bool { return has(c, "ns") })
		_, _ = s.take()
		m.Reset()
		time.Sleep(time.Hour)
		if sent, reads := s.take(); len(sent)+reads > 0 {
			t.Errorf("%d reads of the served API in an hour, sent %q, want nothing", reads, sent)
		}
	})
}

// Everything at once, while events come, and then nothing is left: a bubble ends when all of it has.
func TestAllAtOnce(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newChangingServer(t, inNamespaces)
		c, m := s.unstarted(t, cache.Options{})
		end := start(t, c)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var field atomic.Int64
		again := func(f func(i int)) {
			for i := 0; ctx.Err() == nil; i++ {
				f(i)
				time.Sleep(rand.N[time.Duration](10) * time.Millisecond) // so that several wake at once
			}
		}
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				again(func(int) {
					anything(ctx, c, caller{representations[rand.N(3)], configMap}.object("", ""),
						&field)
				})
			})
		}
		all.Go(func() {
			again(func(int) { must(t, s.Tell("ADDED", "configmaps", fakeapi.Object{Name: "n", UID: "1"})) })
		})
		again(func(i int) { s.changeScope(t, m, []string{ofCluster, inNamespaces, ""}[i/3%3]) })
		all.Wait()
		s.changeScope(t, m, ofCluster)
		eventually(t, "the object", func() bool { return has(c, "") })
		end()
	})
}

// anything does one of the things that a program does with a cache.
func anything(ctx context.Context, c cache.Cache, obj client.Object, field *atomic.Int64) {
	ctx, done := context.WithTimeout(ctx, time.Second)
	defer done()
	switch rand.N(8) {
	case 0:
		_ = c.RemoveInformer(ctx, obj)
	case 1, 2:
		if informer, err := c.GetInformer(ctx, obj); err == nil {
			if registered, err := informer.AddEventHandler(&tally{}); err == nil && rand.N(2) == 0 {
				_ = informer.RemoveEventHandler(registered)
			}
		}
	case 3:
		_ = c.IndexField(ctx, obj, fmt.Sprint("f", field.Add(1)), func(client.Object) []string { return nil })
	case 4:
		_ = c.WaitForCacheSync(ctx)
	default:
		_ = c.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "n"}, obj)
	}
}

// What ends during a switch ends, and what is removed then stays removed.
func TestEndDuringASwitch(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newChangingServer(t, inNamespaces)
		c, m := s.unstarted(t, cache.Options{ReaderFailOnMissingInformer: true})
		end := start(t, c)
		c.WaitForCacheSync(t.Context())
		informer, _ := handle(t, c, "typed", &tally{})
		handle(t, c, "metadata", &tally{})
		must(t, c.IndexField(t.Context(), &corev1.ConfigMap{}, "name",
			func(obj client.Object) []string { return []string{obj.GetName()} }))
		_ = logged.take()
		heal := s.SetFault(fakeapi.Lists(""), fakeapi.Status(503, 0)) // the next generation does not sync
		s.changeScope(t, m, ofCluster)
		time.Sleep(300 * time.Millisecond)
		must(t, c.RemoveInformer(t.Context(), caller{"metadata", configMap}.object("", "")))
		heal()
		eventually(t, "the cache follows", func() bool { return has(c, "") })
		err := c.Get(t.Context(), client.ObjectKey{Name: "n"}, caller{"metadata", configMap}.object("", ""))
		if !errors.As(err, new(*cache.ErrResourceNotCached)) {
			t.Errorf("the informer was removed, and a read got: %v", err)
		}
		if lines := logged.take("cannot follow"); len(lines) != 1 || !strings.Contains(lines[0], "unable to handle") {
			t.Errorf("logged %q, want one line, with the 503 of the list", lines)
		}
		s.changeScope(t, m, inNamespaces)
		eventually(t, "the cache follows back", func() bool { return !has(c, "") })
		must(t, c.List(t.Context(), &corev1.ConfigMapList{}, client.MatchingFields{"name": "n"}))
		s.SetFault(fakeapi.Lists(""), fakeapi.Status(503, 0))
		s.changeScope(t, m, ofCluster)
		time.Sleep(300 * time.Millisecond)
		end()
		if _, err := informer.AddEventHandler(&tally{}); err == nil {
			t.Error("a handler was added to an informer that has ended")
		}
	})
}

// Indexes stay when the context of their IndexField has ended. Before v0.24 controller-runtime waits in IndexField for
// the first list, with that context, which must not keep a kind from switching.
func TestIndexOutlivesItsContext(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newChangingServer(t, inNamespaces)
		c, m := s.caching(t, cache.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		for n := range 100 { // more than can be added before the new informer runs
			must(t, c.IndexField(ctx, &corev1.ConfigMap{}, fmt.Sprint("name", n),
				func(obj client.Object) []string { return []string{obj.GetName()} }))
		}
		cancel()
		_ = logged.take()
		s.changeScope(t, m, ofCluster)
		eventually(t, "the cache follows, with the indexes", func() bool {
			list := &corev1.ConfigMapList{}
			err := c.List(t.Context(), list, client.MatchingFields{"name99": "n"})
			return err == nil && len(list.Items) == 1
		})
		if lines := logged.take("cannot follow"); len(lines) > 0 {
			t.Errorf("the kind could not switch at first: %q", lines)
		}
	})
}

// Informers of two forms of a kind have nothing to do with each other: one that is made, and its index, stay if the
// other one, which was the kind's only one, is removed meanwhile.
func TestRepresentationsAreIndependent(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newChangingServer(t, inNamespaces)
		c, _ := s.caching(t, cache.Options{})
		typed, other, h := caller{"typed", configMap}.object("", ""), caller{"metadata", configMap}.object("",
			""), &tally{}
		handle(t, c, "metadata", &tally{})
		meanwhile := sync.OnceFunc(func() { must(t, c.RemoveInformer(t.Context(), other)) })
		informer, err := c.GetInformer(t.Context(), typed, func(*cache.InformerGetOptions) { meanwhile() })
		must(t, err)
		_, err = informer.AddEventHandler(h)
		must(t, err)
		h.expect(t, "the informer is made", "ns/n other/n")
		for range 500 {
			must(t, c.RemoveInformer(t.Context(), typed))
			handle(t, c, "metadata", &tally{})
			go c.RemoveInformer(t.Context(), other) //nolint:errcheck // It has none.
			must(t, c.IndexField(t.Context(), typed, "name",
				func(obj client.Object) []string { return []string{obj.GetName()} }))
			time.Sleep(time.Second)
			must(t, c.List(t.Context(), &corev1.ConfigMapList{}, client.MatchingFields{"name": "n"}))
		}
	})
}
