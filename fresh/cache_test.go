// SPDX-License-Identifier: Apache-2.0

package fresh_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
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
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/freshmapper/freshmapper/apiutil"
)

// several are the options of a cache of two namespaces.
func several() cache.Options {
	return cache.Options{DefaultNamespaces: map[string]cache.Config{"ns": {}, "other": {}}}
}

// has reports whether a cache has the ConfigMap "n".
func has(c client.Reader, namespace string) bool {
	return c.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: "n"}, &corev1.ConfigMap{}) == nil
}

// Caches follow a kind there and back, with their indexes and handlers. A watch that is
// still open at the old path shows them the way. A cache of several namespaces sees nothing
// of any other.
func TestCachesFollow(t *testing.T) {
	t.Parallel()
	ctx, s := context.Background(), newMovingServer(t, ofCluster)
	c := s.client(t, bare)
	all, _ := s.caching(t, cache.Options{Mapper: c.RESTMapper()})
	some, _ := s.caching(t, cache.Options{Mapper: c.RESTMapper(), DefaultNamespaces: map[string]cache.Config{"ns": {}, "more": {}}})
	caches := []cache.Cache{all, some}
	for _, cached := range caches {
		must(t, cached.IndexField(ctx, &corev1.ConfigMap{}, "name", func(obj client.Object) []string { return []string{obj.GetName()} }))
	}
	informer, err := caches[1].GetInformer(ctx, &corev1.ConfigMap{})
	must(t, err)
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
		if namespace := obj.(client.Object).GetNamespace(); namespace == "other" {
			t.Error("an object in another namespace")
		}
	}})
	must(t, err)
	for n, test := range []struct {
		scope, namespace string
		objects          []int // in each of the caches
	}{{ofCluster, "", []int{2, 1}}, {inNamespaces, "ns", []int{2, 2}}, {ofCluster, "", []int{1, 1}}} {
		eventually(t, "the caches watch", func() bool { return s.watches.Load() > 1 })
		s.change(func() { s.scope, s.watched = test.scope, s.object("other", "n")+strings.Repeat(" ", n) })
		for i, cached := range caches {
			eventually(t, fmt.Sprintf("step %d of cache %d", n, i), func() bool {
				_ = caller{"typed", configMap}.requests()["Get"](c, test.namespace, "n") // for who sees nothing wrong at the path of all namespaces
				list := &corev1.ConfigMapList{}
				elsewhere := cached.Get(ctx, client.ObjectKey{Namespace: map[string]string{"": "ns"}[test.namespace], Name: "n"}, &corev1.ConfigMap{})
				return (elsewhere == nil) == (test.scope == ofCluster) && cached.Get(ctx, client.ObjectKey{Namespace: test.namespace, Name: "n"}, &corev1.ConfigMap{}) == nil &&
					cached.List(ctx, list, client.MatchingFields{"name": "n"}) == nil && len(list.Items) == test.objects[i]
			})
		}
	}
}

// In a cache of several namespaces a mapper of the program's own decides, and nothing else.
func TestCacheWithAnotherMapper(t *testing.T) {
	ctx, s := context.Background(), newMovingServer(t, inNamespaces)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovery.NewDiscoveryClientForConfigOrDie(s.config())))
	c, _ := s.caching(t, cache.Options{Mapper: mapper, DefaultNamespaces: map[string]cache.Config{"ns": {}}})
	must(t, c.List(ctx, &corev1.ConfigMapList{}))
	s.change(func() { s.scope = ofCluster })
	mapper.Reset()
	must(t, c.Get(ctx, client.ObjectKey{Name: "n"}, &corev1.ConfigMap{}))
}

// An informer that is made while its kind goes is empty, and has the objects when the kind is
// back. Nobody waits for an informer that cannot get any, whoever else found out that the kind is gone,
// and whatever else of its group fails.
func TestInformerOfAKindThatGoes(t *testing.T) {
	t.Parallel()
	for _, noticed := range []bool{false, true} {
		s := newMovingServer(t, inNamespaces)
		s.change(func() { s.sick = noticed })
		c, get := s.client(t, bare), caller{"typed", configMap}.requests()["Get"]
		cached, _ := s.caching(t, cache.Options{Mapper: c.RESTMapper()})
		found := func() bool {
			return cached.Get(context.Background(), client.ObjectKey{Namespace: "ns", Name: "n"}, &corev1.ConfigMap{}) == nil
		}
		eventually(t, "the object is in the cache", found)
		s.change(func() { s.scope = "" })
		must(t, cached.RemoveInformer(context.Background(), &corev1.ConfigMap{}))
		if noticed {
			_ = get(c, "ns", "n")
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		_, err := cached.GetInformer(ctx, &corev1.ConfigMap{})
		if cancel(); err != nil && !meta.IsNoMatchError(err) {
			t.Errorf("noticed: %t: %v", noticed, err)
		}
		s.change(func() { s.scope = inNamespaces })
		eventually(t, "the object is there again", found)
	}
}

// An informer of a kind that was gone, and is back, begins empty neither where the server cannot
// list it, nor where the mapper has not noticed where it is.
func TestInformerOfAKindThatIsBack(t *testing.T) {
	t.Parallel()
	for _, plural := range []string{"configmaps", "gizmos"} {
		s := newMovingServer(t, inNamespaces)
		mapper := s.mapper(t, apiutil.DynamicRESTMapperOptions{NegativeTTL: time.Hour})
		c, get := s.client(t, func(meta.RESTMapper) meta.RESTMapper { return mapper }), caller{"typed", configMap}.requests()["Get"]
		must(t, get(c, "ns", "n"))
		s.change(func() { s.scope = "" })
		for range 5 { // until the mapper may not confirm it once more
			_ = get(c, "ns", "n")
		}
		_, _ = mapper.RESTMapping(configMap.GroupKind(), "v1") // keeps that it is gone
		refuses := map[string]int{"configmaps": http.StatusServiceUnavailable}[plural]
		s.change(func() { s.scope, s.plural, s.refuses["list"] = inNamespaces, plural, refuses })
		cached, _ := s.caching(t, cache.Options{Mapper: c.RESTMapper()})
		cached.WaitForCacheSync(context.Background()) // it has started
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		_, err := cached.GetInformer(ctx, &corev1.ConfigMap{})
		if cancel(); (err == nil) != (refuses == 0) {
			t.Errorf("%s: %v", plural, err)
		}
		s.change(func() { clear(s.refuses) })
		found := &corev1.ConfigMapList{}
		must(t, cached.List(context.Background(), found))
		if len(found.Items) != 2 {
			t.Errorf("%s: %d objects in the cache, want 2", plural, len(found.Items))
		}
	}
}

// Likewise if its informers start after that, whether their client has used the kind or never. They
// cost few reads.
func TestInformersThatStartAfterTheirKind(t *testing.T) {
	t.Parallel()
	for _, used := range []bool{false, true} {
		s := newMovingServer(t, inNamespaces)
		c, get := s.client(t, bare), caller{"typed", configMap}.requests()["Get"]
		namespaces := map[string]cache.Config{"ns": {}}
		for n := range map[bool]int{true: 20}[used] {
			namespaces[fmt.Sprint("ns-", n)] = cache.Config{}
		}
		cached, err := newCache(s.config(), cache.Options{HTTPClient: s.Client(), Mapper: c.RESTMapper(), DefaultNamespaces: namespaces})
		must(t, err)
		_, err = cached.GetInformer(context.Background(), &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
		must(t, err)
		if used {
			must(t, get(c, "ns", "n"))
		}
		s.change(func() { s.scope = "" })
		_ = get(c, "ns", "n")
		_, _ = s.take()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		go func() { _ = cached.Start(ctx) }()
		if !cached.WaitForCacheSync(ctx) {
			t.Errorf("used: %t: the informers do not begin empty", used)
		}
		time.Sleep(3 * time.Second)
		if _, reads := s.take(); reads > 20 {
			t.Errorf("used: %t: %d reads of the served API", used, reads)
		}
		s.change(func() { s.scope = inNamespaces })
		eventually(t, "the object is there", func() bool {
			return cached.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "n"}, &corev1.ConfigMap{}) == nil
		})
	}
}

// A removed informer leaves no goroutine, even if events come at that moment.
func TestRemovedInformersEnd(t *testing.T) {
	ctx, s := context.Background(), newMovingServer(t, ofCluster)
	c, _ := s.caching(t, cache.Options{})
	s.change(func() { s.floods, s.watched = true, s.object("", "n") })
	before := wrapped() // other tests leave some
	for range 60 {
		_, err := c.GetInformer(ctx, &corev1.ConfigMap{})
		must(t, err)
		must(t, c.RemoveInformer(ctx, &corev1.ConfigMap{}))
	}
	eventually(t, "no goroutine of a watch is left", func() bool { return wrapped() <= before })
}

// wrapped counts the goroutines of watches around a watch.
func wrapped() int {
	stacks := make([]byte, 32<<20)
	all := string(stacks[:runtime.Stack(stacks, true)])
	return strings.Count(all, "filteredWatch).loop(") + strings.Count(all, "drained.Stop.func")
}

// Reads go on while a kind moves: none fails, and each finds the old objects or the new ones, whether informers
// are made by reads or not.
func TestReadsDuringMoves(t *testing.T) {
	t.Parallel()
	for _, explicit := range []bool{false, true} {
		for name, opts := range map[string]cache.Options{"all": {}, "several": several()} {
			s := newMovingServer(t, inNamespaces)
			opts.ReaderFailOnMissingInformer = explicit
			c, m := s.caching(t, opts)
			ctx, cancel := context.WithCancel(context.Background())
			if explicit {
				eventually(t, "the cache has started", func() bool {
					var absent *cache.ErrResourceNotCached
					return errors.As(c.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "n"}, &corev1.ConfigMap{}), &absent)
				})
				_, err := c.GetInformer(ctx, &corev1.ConfigMap{})
				must(t, err)
			}
			eventually(t, "the list", func() bool { return c.List(ctx, &corev1.ConfigMapList{}) == nil })
			var all sync.WaitGroup
			for range 4 {
				all.Add(1)
				go func() {
					defer all.Done()
					for ctx.Err() == nil {
						list := &corev1.ConfigMapList{}
						a := c.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "n"}, &corev1.ConfigMap{})
						b := c.Get(ctx, client.ObjectKey{Name: "n"}, &corev1.ConfigMap{})
						err := c.List(ctx, list)
						if known := b == nil || apierrors.IsNotFound(b) || strings.Contains(b.Error(), "unknown namespace"); ctx.Err() == nil && (a != nil && b != nil || !known || err != nil || len(list.Items) == 0) {
							t.Errorf("%s, explicit: %t: %v, %v, %v, %d objects", name, explicit, a, b, err, len(list.Items))
							return
						}
					}
				}()
			}
			for _, scope := range []string{ofCluster, inNamespaces, ofCluster} {
				s.move(t, m, scope)
				eventually(t, "the cache follows", func() bool { return has(c, "") == (scope == ofCluster) })
			}
			cancel()
			all.Wait()
		}
	}
}

// A list that takes its time is the whole old or the whole new set.
func TestListsDuringASlowMove(t *testing.T) {
	t.Parallel()
	s := newMovingServer(t, inNamespaces)
	s.names = nil
	for i := range 50 {
		s.names = append(s.names, fmt.Sprint("n", i))
	}
	c, m := s.caching(t, cache.Options{})
	eventually(t, "the list", func() bool { return c.List(context.Background(), &corev1.ConfigMapList{}) == nil })
	s.change(func() { s.slow = 2 * time.Second })
	s.move(t, m, ofCluster)
	sizes := map[int]bool{}
	eventually(t, "the new set", func() bool {
		list := &corev1.ConfigMapList{}
		must(t, c.List(context.Background(), list))
		sizes[len(list.Items)] = true
		return len(list.Items) == 50
	})
	if len(sizes) != 2 || !sizes[100] {
		t.Errorf("lists of these lengths: %v", sizes)
	}
}

// A kind that is gone and back at the same path is listed as soon as the mapper knows it, each time.
func TestKindThatIsRecreated(t *testing.T) {
	t.Parallel()
	s := newMovingServer(t, inNamespaces)
	c, m := s.caching(t, cache.Options{})
	informer, err := c.GetInformer(context.Background(), &corev1.ConfigMap{})
	must(t, err)
	h := &tally{}
	_, err = informer.AddEventHandler(h)
	must(t, err)
	for n := range 6 {
		eventually(t, fmt.Sprint("told of object ", n), func() bool { return strings.Contains(h.keys(), fmt.Sprint("ns/n", n)) == (n > 0) && h.keys() != "" })
		s.move(t, m, "")
		s.change(func() { s.names, s.uid = []string{fmt.Sprint("n", n+1)}, fmt.Sprint(n+2) })
		time.Sleep(2 * time.Second) // a reflector's pauses grow meanwhile
		began := time.Now()
		s.move(t, m, inNamespaces)
		eventually(t, "told of the new one", func() bool { return strings.Contains(h.keys(), fmt.Sprint("ns/n", n+1)) })
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("after %d recreations it took %v", n+1, took)
		}
	}
}

// A kind that flaps between replicas costs a new generation a second at most, each with one list. The reflector of
// the present one lists again after each watch that the server has refused, as upstream's does.
func TestKindThatFlaps(t *testing.T) {
	t.Parallel()
	s := newMovingServer(t, inNamespaces)
	c, m := s.caching(t, cache.Options{})
	eventually(t, "the object", func() bool { return has(c, "ns") })
	before, began := s.listed(), time.Now()
	for i := 0; time.Since(began) < 4*time.Second; i++ {
		s.move(t, m, []string{ofCluster, inNamespaces}[i%2])
		time.Sleep(50 * time.Millisecond)
	}
	s.move(t, m, ofCluster)
	eventually(t, "the cluster-wide object", func() bool { return has(c, "") })
	if lists, most := s.listed()-before, 2+2*int(time.Since(began)/time.Second); lists > most {
		t.Errorf("%d lists, want at most %d", lists, most)
	}
}

func (s *movingServer) listed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists
}

// A mapper that nobody else uses is not asked by those who follow it: neither when nothing has changed, nor
// after a reset.
func TestFollowersAskNothing(t *testing.T) {
	s := newMovingServer(t, inNamespaces)
	c, m := s.caching(t, cache.Options{})
	eventually(t, "the object", func() bool { return has(c, "ns") })
	_, _ = s.take()
	m.Reset()
	m.ResetGroup("")
	time.Sleep(500 * time.Millisecond)
	if sent, reads := s.take(); len(sent)+reads > 0 {
		t.Errorf("%d reads of the served API, sent %q", reads, sent)
	}
}

// Everything at once, and then nothing is left.
func TestAllAtOnce(t *testing.T) {
	before := runtime.NumGoroutine()
	s := newMovingServer(t, inNamespaces)
	s.change(func() { s.floods, s.watched = true, s.object("", "n") })
	c, m := s.unstarted(t)
	end := start(t, c)
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
	defer cancel()
	var all sync.WaitGroup
	var field atomic.Int64
	for range 6 {
		all.Add(1)
		go func() {
			defer all.Done()
			for ctx.Err() == nil {
				anything(ctx, c, caller{sorts[rand.N(3)], configMap}.object("", ""), &field)
			}
		}()
	}
	for i := 0; ctx.Err() == nil; i++ {
		s.move(t, m, []string{ofCluster, inNamespaces, ""}[i%3])
		time.Sleep(50 * time.Millisecond)
	}
	all.Wait()
	s.change(func() { s.floods, s.watched = false, "" })
	s.move(t, m, ofCluster)
	eventually(t, "the object", func() bool {
		one, done := context.WithTimeout(context.Background(), time.Second)
		defer done()
		return c.Get(one, client.ObjectKey{Name: "n"}, &corev1.ConfigMap{}) == nil
	})
	end()
	s.CloseClientConnections()
	s.Close()
	eventually(t, fmt.Sprint("as many goroutines as before: ", before), func() bool { return runtime.NumGoroutine() <= before+3 })
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

func (s *movingServer) unstarted(t testing.TB) (cache.Cache, *apiutil.DynamicRESTMapper) {
	m := s.mapper(t, apiutil.DynamicRESTMapperOptions{})
	c, err := newCache(s.config(), cache.Options{HTTPClient: s.Client(), Mapper: m})
	must(t, err)
	return c, m
}

// What ends during a move ends, and what is removed then stays removed.
func TestEndDuringAMove(t *testing.T) {
	ctx, s := context.Background(), newMovingServer(t, inNamespaces)
	m := s.mapper(t, apiutil.DynamicRESTMapperOptions{})
	c, err := newCache(s.config(), cache.Options{HTTPClient: s.Client(), Mapper: m, ReaderFailOnMissingInformer: true})
	must(t, err)
	end := start(t, c)
	c.WaitForCacheSync(ctx)
	for _, sort := range []string{"typed", "metadata"} {
		_, err := c.GetInformer(ctx, caller{sort, configMap}.object("", ""))
		must(t, err)
	}
	s.change(func() { s.refuses["list"] = http.StatusServiceUnavailable }) // the next generation does not sync
	s.move(t, m, ofCluster)
	time.Sleep(300 * time.Millisecond)
	must(t, c.RemoveInformer(ctx, caller{"metadata", configMap}.object("", "")))
	s.change(func() { clear(s.refuses) })
	eventually(t, "the cache follows", func() bool { return has(c, "") })
	var absent *cache.ErrResourceNotCached
	if err := c.Get(ctx, client.ObjectKey{Name: "n"}, caller{"metadata", configMap}.object("", "")); !errors.As(err, &absent) {
		t.Errorf("removed, but: %v", err)
	}
	s.change(func() { s.refuses["list"] = http.StatusServiceUnavailable })
	s.move(t, m, inNamespaces)
	time.Sleep(300 * time.Millisecond)
	end()
}
