// SPDX-License-Identifier: Apache-2.0

package fresh_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// tally is a handler that records what it gets.
type tally struct {
	then func(what string, obj client.Object) // is called in the end; may be nil

	busy  atomic.Int32
	mu    sync.Mutex
	has   map[string]any // each object as it was told last
	log   []string
	wrong []string // what must not have been told
}

func (h *tally) note(what string, old, obj any, initial bool) {
	defer h.busy.Add(-1)
	if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	key, _ := toolscache.MetaNamespaceKeyFunc(obj)
	logged := strings.TrimSuffix(fmt.Sprintf("%s %s%s", what, key, map[bool]string{true: " initial"}[initial]), " ")
	h.mu.Lock()
	if h.busy.Add(1) > 1 {
		logged += " beside another call"
	}
	was := h.has[key]
	if h.log = append(h.log, logged); (was != nil) == (what == "add") || what == "update" && was != old ||
		h.busy.Load() > 1 {
		h.wrong = append(h.wrong, logged)
	}
	if h.has == nil {
		h.has = map[string]any{}
	}
	if h.has[key] = obj; what == "delete" {
		delete(h.has, key)
	}
	h.mu.Unlock()
	if h.then != nil {
		h.then(what, obj.(client.Object))
	}
}

func (h *tally) OnAdd(obj any, initial bool) { h.note("add", nil, obj, initial) }
func (h *tally) OnUpdate(old, obj any)       { h.note("update", old, obj, false) }
func (h *tally) OnDelete(obj any)            { h.note("delete", nil, obj, false) }

// keys are those of the objects that there are.
func (h *tally) keys() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(h.has)), " ")
}

// takeLog returns what was delivered to the handler since the last call.
func (h *tally) takeLog() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	log := h.log
	h.log = nil
	return log
}

// expect waits until there are these objects and no others, by an account without an error.
func (h *tally) expect(t testing.TB, when, want string) {
	t.Helper()
	within(func() bool { return h.keys() == want })
	h.mu.Lock()
	defer h.mu.Unlock()
	if has := slices.Sorted(maps.Keys(h.has)); strings.Join(has, " ") != want || len(h.wrong) > 0 {
		t.Fatalf("%s: the handler has %q, want %q; it was told %q, of which is wrong: %q", when, has, want, h.log,
			h.wrong)
	}
}

// keysOf are those of the objects by the scope of their kind.
var keysOf = map[string]string{inNamespaces: "ns/n other/n", ofCluster: "n"}

// handling returns a server of a namespaced kind, and the mapper and the only handler of a cache, which has the objects.
func handling(t *testing.T) (*changingServer, *apiutil.DynamicRESTMapper, *tally) {
	t.Helper()
	s := newChangingServer(t, inNamespaces)
	c, m := s.caching(t, cache.Options{})
	h := &tally{}
	handle(t, c, "typed", h)
	h.expect(t, "at first", keysOf[inNamespaces])
	return s, m, h
}

// handle adds a handler to the informer of ConfigMaps of a representation.
func handle(t testing.TB, c cache.Cache, representation string, h *tally) (cache.Informer,
	toolscache.ResourceEventHandlerRegistration) {
	t.Helper()
	informer, err := c.GetInformer(t.Context(), caller{representation, configMap}.object("", ""))
	must(t, err)
	registered, err := informer.AddEventHandler(h)
	must(t, err)
	return informer, registered
}

// Handlers of all representations get exact events through many switches, one call at a time. What is delivered to
// them is in the cache, also by an index that was added to the informer.
func TestHandlers(t *testing.T) {
	for name, opts := range map[string]cache.Options{"all": {}, "several": several()} {
		for _, representation := range representations {
			bubble(t, name+", "+representation, func(t *testing.T) {
				s := newChangingServer(t, inNamespaces)
				c, m := s.caching(t, opts)
				h := &tally{then: func(what string, obj client.Object) {
					if err := c.Get(t.Context(), client.ObjectKeyFromObject(obj),
						caller{representation, configMap}.object("", "")); what == "add" && err != nil {
						t.Errorf("told of %s/%s, and: %v", obj.GetNamespace(), obj.GetName(), err)
					}
				}}
				informer, registered := handle(t, c, representation, h)
				index := func(obj any) ([]string, error) { return []string{obj.(client.Object).GetName()}, nil }
				shared, sharing := informer.(toolscache.SharedIndexInformer)
				add := informer.AddIndexers
				if sharing {
					add = shared.GetIndexer().AddIndexers // which is the same
				}
				must(t, add(toolscache.Indexers{"own": index}))
				another, err := c.GetInformer(t.Context(), &corev1.Secret{})
				must(t, errors.Join(err, another.RemoveEventHandler(registered))) // it is not this one's
				for n, scope := range []string{inNamespaces, ofCluster, inNamespaces, ofCluster} {
					s.changeScope(t, m, scope)
					h.expect(t, fmt.Sprintf("step %d, %s", n, scope), keysOf[scope])
					eventually(t, "the handler is synced", registered.HasSynced)
					if !informer.HasSynced() || informer.IsStopped() {
						t.Errorf("step %d: the informer has synced: %t, is stopped: %t", n, informer.HasSynced(),
							informer.IsStopped())
					}
					if sharing {
						if found, err := shared.GetIndexer().ByIndex("own", "n"); err != nil ||
							len(found) != len(strings.Fields(keysOf[scope])) {
							t.Errorf("step %d: by index %v, %v", n, found, err)
						}
					} else if opts.DefaultNamespaces == nil {
						t.Error("the informer is no SharedIndexInformer")
					}
				}
				must(t, informer.RemoveEventHandler(registered))
				_ = h.takeLog()
				s.changeScope(t, m, inNamespaces)
				eventually(t, "the cache follows", func() bool { return has(c, "ns") })
				time.Sleep(time.Second)
				if log := h.takeLog(); len(log) > 0 {
					t.Errorf("removed, and told %q", log)
				}
			})
		}
	}
}

// The events of a switch: an object that is still there is an update, another one of the same name a
// delete and an add, and nothing is part of an initial list but the handler's own first.
func TestEventsOfASwitch(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s, h := newChangingServer(t, inNamespaces), &tally{}
		c, m := s.caching(t, cache.Options{})
		handle(t, c, "typed", h)
		_ = logged.take()
		for n, step := range []struct {
			change func()
			want   []string
		}{
			{func() {}, []string{"add ns/n initial", "add other/n initial"}},
			{func() { s.plural = "gizmos" }, []string{"update ns/n", "update other/n"}},
			{func() { s.plural, s.uid = "widgets", "2" }, []string{"add ns/n", "add other/n", "delete ns/n",
				"delete other/n"}},
			{func() { s.names = []string{"n", "m"} }, nil}, // nothing tells the cache
			{func() { s.plural = "gadgets" }, []string{"add ns/m", "add other/m", "update ns/n", "update other/n"}},
			{func() { s.scope = ofCluster }, []string{"add m", "add n", "delete ns/m", "delete ns/n",
				"delete other/m", "delete other/n"}},
			{func() { must(t, s.Tell("DELETED", "gadgets", fakeapi.Object{Name: "m", UID: "2"})) },
				[]string{"delete m"}},
			{func() { must(t, s.Tell("ADDED", "gadgets", fakeapi.Object{Name: "n", UID: "3"})) },
				[]string{"add n", "delete n"}},
		} {
			s.change(step.change)
			must(t, m.Refresh(t.Context(), ""))
			time.Sleep(5 * time.Second)
			if log := h.takeLog(); !slices.Equal(slices.Sorted(slices.Values(log)), step.want) || len(h.wrong) > 0 {
				t.Errorf("step %d: told %q, want %q; of all that was told is wrong: %q", n, log, step.want, h.wrong)
			}
		}
		if lines := logged.take(`"error"=`); len(lines) > 0 {
			t.Errorf("nothing has failed, and it logged %q", lines)
		}
	})
}

// An object that was deleted while no watch was open is delivered as deleted after the next list.
func TestDeletionThatNoWatchHasSeen(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s, _, h := handling(t)
		s.change(func() { s.names = []string{"m"} })
		s.SetFault(fakeapi.Objects("", "watch"), fakeapi.Times(1, fakeapi.Status(410, 0)))
		s.EndWatches()
		h.expect(t, "after the list", "ns/m other/m")
	})
}

// counting counts the watches that a reflector asks for.
type counting struct {
	toolscache.ListerWatcher
	watches *atomic.Int32
}

func (l counting) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	l.watches.Add(1)
	return l.ListerWatcher.Watch(opts) //nolint:staticcheck // Old releases have nothing else.
}

// firstListDelivered reports whether the whole first list was delivered to a handler, by whichever instance.
// Informers of several namespaces wait for that with a method that controller-runtime v0.23 does not have.
func firstListDelivered(registered toolscache.ResourceEventHandlerRegistration) bool {
	checker := reflect.ValueOf(registered).MethodByName("HasSyncedChecker")
	if !checker.IsValid() {
		return true
	}
	select {
	case <-checker.Call(nil)[0].Interface().(interface{ Done() <-chan struct{} }).Done():
		return true
	default:
		return false
	}
}

// A handler that is slow, or blocks, when its kind switches holds up no other, and gets exactly what it has not been
// told. The reflector of the old path, which lasts as long, does not retry without a pause. A handler holds a
// mutex meanwhile, which stops virtual time: tests of such have none.
func TestSlowHandlers(t *testing.T) {
	s, release := newChangingServer(t, inNamespaces), make(chan struct{})
	s.change(func() {
		for i := range 20 {
			s.names = append(s.names, fmt.Sprint("m", i))
		}
	})
	var watches atomic.Int32
	c, m := s.caching(t, cache.Options{NewInformer: func(lw toolscache.ListerWatcher, obj kruntime.Object,
		resync time.Duration, x toolscache.Indexers) toolscache.SharedIndexInformer {
		return toolscache.NewSharedIndexInformer(counting{lw, &watches}, obj, resync, x)
	}})
	stuck := &tally{then: func(string, client.Object) { <-release }}
	slow := &tally{then: func(string, client.Object) { time.Sleep(20 * time.Millisecond) }}
	quick := &tally{}
	_, registered := handle(t, c, "typed", stuck)
	handle(t, c, "typed", slow)
	handle(t, c, "typed", quick)
	eventually(t, "the quick one is told of 42 objects", func() bool { return len(strings.Fields(quick.keys())) == 42 })
	s.change(func() { s.names = []string{"n"} })
	s.changeScope(t, m, ofCluster)
	quick.expect(t, "while another blocks", "n")
	slow.expect(t, "while another blocks", "n")
	time.Sleep(2 * time.Second) // after that long a reflector tries again
	close(release)
	stuck.expect(t, "when it goes on", "n")
	eventually(t, "the whole first list is delivered", func() bool { return firstListDelivered(registered) })
	if n := watches.Load(); n > 200 {
		t.Errorf("two reflectors asked for %d watches, want a few, with pauses between them", n)
	}
}

// Once a kind has switched, a caller that waits for the end of a first list that never came waits no longer than a
// reflector pauses.
func TestFirstListThatNeverCameEnds(t *testing.T) {
	for range 24 { // the rest is random
		virtual(t, func(t *testing.T) {
			s := newChangingServer(t, inNamespaces)
			c, m := s.caching(t, cache.Options{})
			heal := s.SetFault(fakeapi.Lists(""), fakeapi.Status(503, 0))
			informer, err := c.GetInformer(t.Context(), &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
			must(t, err)
			registered, err := informer.AddEventHandler(&tally{})
			must(t, err)
			time.Sleep(10 * time.Minute)
			heal()
			s.plural = "gizmos"
			s.changeScope(t, m, inNamespaces)
			eventually(t, "the whole first list is delivered", func() bool { return firstListDelivered(registered) })
		})
	}
}

// A transform, an index and a handler may use the cache.
func TestCallbacksMayUseTheCache(t *testing.T) {
	s := newChangingServer(t, inNamespaces)
	var c cache.Cache
	use := func() {
		_ = c.List(t.Context(), &corev1.SecretList{})
		_, _ = c.GetInformer(t.Context(), &corev1.Secret{}, cache.BlockUntilSynced(false))
		_, _ = c.GetInformer(t.Context(), &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
	}
	index := func(obj client.Object) []string { use(); return []string{obj.GetName()} }
	c, m := s.unstarted(t, cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {Transform: func(obj any) (any, error) {
		use()
		return obj, nil
	}}}})
	start(t, c)
	must(t, c.IndexField(t.Context(), &corev1.ConfigMap{}, "name", index))
	var informer cache.Informer
	h := &tally{then: func(_ string, obj client.Object) {
		use()
		_ = c.Get(t.Context(), client.ObjectKeyFromObject(obj), &corev1.ConfigMap{})
		_, _ = informer.AddEventHandler(&tally{})
	}}
	informer, err := c.GetInformer(t.Context(), &corev1.ConfigMap{})
	must(t, err)
	_, err = informer.AddEventHandler(h)
	must(t, err)
	for n, scope := range []string{ofCluster, inNamespaces, ofCluster} {
		s.changeScope(t, m, scope)
		for i := range 20 {
			_, err := informer.AddEventHandler(&tally{})
			must(t, errors.Join(err, c.IndexField(t.Context(), &corev1.ConfigMap{}, fmt.Sprint(n, i), index)))
		}
		h.expect(t, scope, keysOf[scope])
		list := &corev1.ConfigMapList{}
		if err := c.List(t.Context(), list, client.MatchingFields{"name": "n"}); err != nil ||
			len(list.Items) != len(strings.Fields(keysOf[scope])) {
			t.Errorf("%s: by index %d objects, %v", scope, len(list.Items), err)
		}
	}
}

// A kind that switches before the cache starts, or before its first list succeeds, is found where it is, and all
// that wait for it go on.
func TestSwitchBeforeTheFirstList(t *testing.T) {
	for name, started := range map[string]bool{"before Start": false, "after Start": true} {
		bubble(t, name, func(t *testing.T) {
			s, h := newChangingServer(t, inNamespaces), &tally{}
			heal := s.SetFault(fakeapi.Lists(""), fakeapi.Status(503, 0))
			c, m := s.unstarted(t, cache.Options{})
			if started {
				start(t, c)
			}
			_, err := c.GetInformer(t.Context(), &corev1.Secret{}, cache.BlockUntilSynced(false))
			must(t, errors.Join(err, c.RemoveInformer(t.Context(), &corev1.Secret{})))
			informer, err := c.GetInformer(t.Context(), &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
			must(t, err)
			handle, err := informer.AddEventHandler(h)
			must(t, err)
			time.Sleep(500 * time.Millisecond)
			heal()
			s.changeScope(t, m, ofCluster)
			if !started {
				start(t, c)
			}
			if !c.WaitForCacheSync(t.Context()) {
				t.Error("the cache does not sync")
			}
			h.expect(t, "in the end", "n")
			eventually(t, "all are synced", func() bool { return handle.HasSynced() && informer.HasSynced() })
			if log := h.takeLog(); log[0] != "add n initial" {
				t.Errorf("told %q, want first: add n initial", log)
			}
		})
	}
}

// A handler's account is of its own informer, whatever another form of the kind has.
func TestRepresentationsThatDiffer(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s, other, h := newChangingServer(t, inNamespaces), newChangingServer(t, inNamespaces), &tally{}
		s.change(func() { s.names = []string{"n", "m"} })
		other.change(func() { other.plural = "gizmos" })
		c, m := s.caching(t, cache.Options{HTTPClient: &http.Client{Transport: fakeapi.Balancer(func(req *http.Request) *fakeapi.Server {
			if strings.Contains(req.Header.Get("Accept"), "PartialObjectMetadata") &&
				strings.HasSuffix(req.URL.Path, "gizmos") {
				return other.Server // a replica that is ahead
			}
			return s.Server
		})}})
		handle(t, c, "typed", &tally{})
		handle(t, c, "metadata", h)
		h.expect(t, "at first", "ns/m ns/n other/m other/n")
		s.change(func() { s.plural = "gizmos" })
		must(t, m.Refresh(t.Context(), ""))
		h.expect(t, "after the switch", "ns/n other/n")
	})
}

// A client of controller-runtime's that reads its own writes adds handlers through a view of the cache, and waits
// until they were given the resource version of a write. When another client takes its place they stay until the
// cache has switched, too, and are given the resource version of the new list, because what was written may have been
// removed. Handlers of others stay.
func TestViewsOfTheCache(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newChangingServer(t, inNamespaces)
		c, m := s.caching(t, cache.Options{})
		viewOf := func(h *tally) (leave func(*meta.RESTMapping)) {
			view, leave := c.(interface {
				View() (client.Reader, func(*meta.RESTMapping))
			}).View()
			handle(t, view.(cache.Cache), "typed", h)
			return leave
		}
		var versions, versionsOfStays, versionsOfOther sync.Map
		noteIn := func(versions *sync.Map) func(string, client.Object) {
			return func(what string, obj client.Object) {
				if what == "delete" && obj.GetName() == "" {
					versions.Store(obj.GetResourceVersion(), true)
				}
			}
		}
		leaves, late := &tally{then: noteIn(&versions)}, &tally{}
		stays, other := &tally{then: noteIn(&versionsOfStays)}, &tally{then: noteIn(&versionsOfOther)}
		leave, _, leaveLate := viewOf(leaves), viewOf(stays), viewOf(late)
		handle(t, c, "typed", other)
		leaves.expect(t, "at first", keysOf[inNamespaces])
		s.change(func() { s.scope = ofCluster })
		heal := s.SetFault(fakeapi.Lists(""), fakeapi.Late(5*time.Second))
		must(t, m.Refresh(t.Context(), ""))
		mapping, err := m.RESTMapping(configMap.GroupKind(), "v1")
		must(t, err)
		leave(mapping)
		time.Sleep(2 * time.Second)
		leaves.expect(t, "before the cache has switched", keysOf[inNamespaces])
		heal()
		other.expect(t, "of no client", keysOf[ofCluster])
		stays.expectKeys(t, "of a client that stays", keysOf[ofCluster])
		eventually(t, "of a client that has left, what it had is gone",
			func() bool { return !strings.Contains(leaves.keys(), "ns/n") })
		time.Sleep(time.Second)
		synctest.Wait()
		left := leaves.keys()
		list := caller{"typed", configMap}.list()
		must(t, s.client(t, m).List(t.Context(), list))
		for name, of := range map[string]*sync.Map{"leaves": &versions, "stays": &versionsOfStays} {
			if _, given := of.Load(list.GetResourceVersion()); !given {
				t.Errorf("the handler of a client that %s was not given the resource version of the list", name)
			}
		}
		versionsOfOther.Range(func(version, _ any) bool {
			t.Errorf("the handler of no client was given the resource version %v", version)
			return true
		})
		leaveLate(mapping) // the cache has switched before
		leave(mapping)     // again, as for another kind
		s.changeScope(t, m, inNamespaces)
		other.expect(t, "back, of no client", keysOf[inNamespaces])
		stays.expectKeys(t, "back, of a client that stays", keysOf[inNamespaces])
		if leaves.keys() != left || late.keys() != keysOf[ofCluster] {
			t.Errorf("clients that had left were told %q and %q", leaves.log, late.log)
		}
	})
}

// expectKeys is expect for a handler that also gets deletions of objects which it does not know.
func (h *tally) expectKeys(t testing.TB, when, want string) {
	t.Helper()
	if !within(func() bool { return h.keys() == want }) {
		t.Fatalf("%s: the handler has %q, want %q", when, h.keys(), want)
	}
}

// annotate returns a transform that sets an annotation.
func annotate(text string) toolscache.TransformFunc {
	return func(obj any) (any, error) {
		obj.(client.Object).SetAnnotations(map[string]string{"set": text})
		return obj, nil
	}
}

// What a program has set on an informer before it was started holds after the kind has switched, too.
func TestSettingsOfAnInformer(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newChangingServer(t, inNamespaces)
		c, m := s.unstarted(t, cache.Options{DefaultTransform: annotate("of the options")})
		informer, err := c.GetInformer(t.Context(), &corev1.ConfigMap{})
		must(t, err)
		shared := informer.(toolscache.SharedIndexInformer)
		var failed atomic.Int32
		must(t, errors.Join(shared.SetTransform(annotate("first")), shared.SetTransform(annotate("second")),
			shared.SetWatchErrorHandler(func(*toolscache.Reflector, error) { failed.Add(1) })))
		start(t, c)
		for _, scope := range []string{inNamespaces, ofCluster, inNamespaces} {
			s.changeScope(t, m, scope)
			got, key := &corev1.ConfigMap{}, client.ObjectKey{Namespace: map[string]string{inNamespaces: "ns"}[scope],
				Name: "n"}
			eventually(t, "the object", func() bool {
				return c.Get(t.Context(), key, got) == nil &&
					got.Namespace == key.Namespace
			})
			if got.Annotations["set"] != "second" {
				t.Errorf("%s: annotations %v, want those of the transform", scope, got.Annotations)
			}
			before := failed.Load()
			heal := s.SetFault(fakeapi.Objects("", "list", "watch"), fakeapi.Status(500, 0))
			s.EndWatches()
			time.Sleep(time.Minute)
			if heal(); failed.Load() == before {
				t.Errorf("%s: the handler of errors was not called", scope)
			}
		}
		if err := shared.SetTransform(annotate("third")); err == nil {
			t.Error("a transform was set on an informer that was started")
		}
	})
}

// A handler that was removed closes its ShutdownChan when its last call has ended. client-go's ShutDownEventHandler
// waits for that.
func TestShutDownOfAHandler(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newChangingServer(t, inNamespaces)
		c, _ := s.caching(t, cache.Options{})
		calls, release := make(chan struct{}, 2), make(chan struct{})
		informer, registered := handle(t, c, "typed", &tally{then: func(string, client.Object) {
			calls <- struct{}{}
			<-release
		}})
		<-calls
		must(t, errors.Join(informer.RemoveEventHandler(registered), informer.RemoveEventHandler(registered)))
		ended := registered.(interface{ ShutdownChan() <-chan struct{} }).ShutdownChan()
		select {
		case <-ended:
			t.Error("it says so while it is called")
		default:
		}
		close(release)
		<-ended
	})
}

// An informer that was removed watches no longer, although its kind has another one.
func TestInformerIsRemovedAndItsKindStays(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s, h := newChangingServer(t, inNamespaces), &tally{}
		c, _ := s.caching(t, cache.Options{})
		handle(t, c, "typed", h)
		handle(t, c, "metadata", &tally{})
		eventually(t, "both informers watch", func() bool { return s.Watches("configmaps") == 2 })
		must(t, c.RemoveInformer(t.Context(), caller{"metadata", configMap}.object("", "")))
		time.Sleep(time.Second)
		if n := s.Watches("configmaps"); n != 1 {
			t.Errorf("%d watches, want that of the informer which was not removed", n)
		}
		must(t, s.Tell("ADDED", "configmaps", fakeapi.Object{Namespace: "ns", Name: "new", UID: "9"}))
		h.expect(t, "an object is added", "ns/n ns/new other/n")
	})
}

// The indexer of an informer stays when its kind becomes namespaced, also if controller-runtime has one for each of
// several namespaces then: the program's has nothing. It has the objects when the kind is back.
func TestIndexerOfAKindThatBecomesNamespaced(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s, h := newChangingServer(t, ""), &tally{}
		c, m := s.caching(t, cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {
			Namespaces: map[string]cache.Config{cache.AllNamespaces: {}},
		}}})
		s.changeScope(t, m, ofCluster)
		informer, _ := handle(t, c, "typed", h)
		shared := informer.(toolscache.SharedIndexInformer)
		for _, scope := range []string{ofCluster, inNamespaces, ofCluster} {
			s.changeScope(t, m, scope)
			h.expect(t, scope, keysOf[scope])
			time.Sleep(5 * time.Minute) // until the instance before has ended
			want := map[string]string{ofCluster: "n"}[scope]
			if keys := strings.Join(shared.GetIndexer().ListKeys(), " "); keys != want {
				t.Errorf("%s: the indexer has %q, want %q", scope, keys, want)
			}
			if version := shared.LastSyncResourceVersion(); version == "" {
				t.Errorf("%s: no resource version", scope)
			}
		}
	})
}

// An informer that was removed takes no indexers and, when it has ended, no handlers. They do not make it again.
func TestIndexersOfARemovedInformer(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newChangingServer(t, inNamespaces)
		c, _ := s.caching(t, cache.Options{})
		informer, _ := handle(t, c, "typed", &tally{})
		must(t, c.RemoveInformer(t.Context(), &corev1.ConfigMap{}))
		synctest.Wait()
		_, _ = s.take()
		if err := informer.AddIndexers(toolscache.Indexers{"own": func(any) ([]string, error) {
			return nil,
				nil
		}}); err == nil {
			t.Error("no error")
		}
		time.Sleep(time.Minute)
		if _, err := informer.AddEventHandler(&tally{}); err == nil {
			t.Error("a handler was added to an informer that was removed")
		}
		if sent, _ := s.take(); len(sent) > 0 {
			t.Errorf("sent %q, want nothing", sent)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

// viewCounter is a cache whose views count how often clients leave them.
type viewCounter struct {
	cache.Cache
	left int
}

func (v *viewCounter) View() (client.Reader, func(*meta.RESTMapping)) {
	view, leave := v.Cache.(interface {
		View() (client.Reader, func(*meta.RESTMapping))
	}).View()
	return view, func(mapping *meta.RESTMapping) {
		v.left++
		leave(mapping)
	}
}

// A client that another one replaces leaves its view of the cache.
func TestReplacedClientLeavesItsView(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newChangingServer(t, inNamespaces)
		cached, m := s.caching(t, cache.Options{})
		views := &viewCounter{Cache: cached}
		c, err := newClient(s.Config(), client.Options{
			HTTPClient: s.Client(), Mapper: m, Cache: &client.CacheOptions{Reader: views},
		})
		must(t, err)
		typed := caller{"typed", configMap}
		must(t, c.Update(t.Context(), typed.object("ns", "n")))
		if views.left != 0 {
			t.Errorf("%d views were left before anything has changed", views.left)
		}
		s.changeScope(t, m, ofCluster)
		must(t, c.Update(t.Context(), typed.object("", "n")))
		if views.left != 1 {
			t.Errorf("%d views were left, want that of the client which was replaced", views.left)
		}
	})
}

// An object that does not fit the scope of its kind ends the watch, and a list follows: the events after it are not lost.
func TestEventsAfterOneOfAnotherScope(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s, _, h := handling(t)
		must(t, s.Tell("ADDED", "configmaps", fakeapi.Object{Name: "bad", UID: "9"}))
		time.Sleep(10 * time.Second)
		must(t, s.Tell("ADDED", "configmaps", fakeapi.Object{Namespace: "ns", Name: "new", UID: "9"}))
		time.Sleep(10 * time.Second)
		h.expectKeys(t, "10 s later", "ns/n ns/new other/n")
	})
}
