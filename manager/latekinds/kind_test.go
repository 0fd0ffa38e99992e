// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package latekinds_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/manager/latekinds"
)

// world is a cluster whose server may serve Widgets, which are ConfigMaps for the scheme.
type world struct {
	cluster.Cluster
	server  *fakeapi.Server
	mapper  meta.RESTMapper
	cache   cache.Cache
	informs *informs
	scheme  *runtime.Scheme
}

func (w *world) GetCache() cache.Cache          { return w.cache }
func (w *world) GetRESTMapper() meta.RESTMapper { return w.mapper }
func (w *world) GetScheme() *runtime.Scheme     { return w.scheme }

// inWorlds runs test in virtual time, with a cache that follows its kinds and with one that does not.
func inWorlds(t *testing.T, test func(t *testing.T, w *world)) {
	if !strings.Contains(fmt.Sprintf("%+v", event.CreateEvent{}), "IsInInitialList") {
		t.Skip("the reflector of controller-runtime v0.20's client-go does not rest in virtual time")
	}
	for _, keeps := range []bool{false, true} {
		t.Run(fmt.Sprintf("keeps=%t", keeps), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{server: fakeapi.New(fakeapi.Typical(1, 1, 1)...), scheme: runtime.NewScheme()}
				w.scheme.AddKnownTypeWithName(widget, &corev1.ConfigMap{})
				var err error
				w.mapper, err = apiutil.NewDynamicRESTMapperWithOptions(w.server.Config(), w.server.Client(), apiutil.DynamicRESTMapperOptions{})
				must(t, err)
				w.informs = &informs{mapper: w.mapper, objects: cachetesting.NewFakeControllerSource()}
				w.cache = w.informs
				if keeps {
					w.cache = keeping{w.informs}
				}
				test(t, w)
				w.informs.end()
				w.informs.vanish()
				for _, objects := range w.informs.past {
					objects.Shutdown()
				}
				w.informs.objects.Shutdown()
				time.Sleep(10 * time.Minute) // what nobody waits for ends by its timeouts
			})
		})
	}
}

// serve makes the server serve Widgets, with objects of these names.
func (w *world) serve(namespaced bool, names ...string) {
	for _, name := range names {
		w.informs.objects.Add(object(name))
	}
	w.server.PutVersion(widget.Group, fakeapi.Version{Name: widget.Version, Resources: []fakeapi.Resource{{Name: "widgets", Kind: widget.Kind, Namespaced: namespaced}}})
}

// withdraw makes the server forget Widgets and their objects, and no watch tells of it.
func (w *world) withdraw() {
	w.server.Remove(widget.Group)
	if w.cache == cache.Cache(w.informs) {
		w.informs.vanish()
	}
}

func object(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

// informs is a cache with at most one informer at a time.
type informs struct {
	cache.Cache
	mapper  meta.RESTMapper
	refuses error // each list

	mu               sync.Mutex
	objects          *cachetesting.FakeControllerSource
	past             []*cachetesting.FakeControllerSource
	informer         toolscache.SharedIndexInformer // nil: none
	stop             chan struct{}
	gets             int // of informers that were new
	removed, forgets int
	indexes          []string // of the present informer
}

func (c *informs) GetInformer(ctx context.Context, obj client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	i, err := c.present()
	if err == nil && !toolscache.WaitForCacheSync(ctx.Done(), i.HasSynced) {
		err = errors.New("failed waiting for the informer to sync")
	}
	return i, err
}

func (c *informs) present() (toolscache.SharedIndexInformer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.informer != nil {
		return c.informer, nil
	}
	if _, err := c.mapper.RESTMapping(widget.GroupKind(), widget.Version); err != nil {
		return nil, err
	}
	c.gets++
	lw := &toolscache.ListWatch{
		ListFunc: func(o metav1.ListOptions) (runtime.Object, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.refuses != nil {
				return nil, c.refuses
			}
			return c.objects.List(o)
		},
		WatchFunc: c.objects.Watch,
	}
	c.informer, c.stop, c.indexes = toolscache.NewSharedIndexInformer(lists{lw}, &corev1.ConfigMap{}, 0, nil), make(chan struct{}), nil
	_ = c.informer.SetWatchErrorHandler(func(*toolscache.Reflector, error) {}) // client-go's own sleeps by the clock of the process
	go c.informer.Run(c.stop)
	return c.informer, nil
}

// vanish replaces the objects by none, behind the informer.
func (c *informs) vanish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.past = append(c.past, c.objects)
	c.objects = cachetesting.NewFakeControllerSource()
}

func (c *informs) RemoveInformer(context.Context, client.Object) error {
	c.removed++
	c.end()
	return nil
}

func (c *informs) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.informer != nil {
		close(c.stop)
		c.informer = nil
	}
}

func (c *informs) IndexField(_ context.Context, _ client.Object, field string, _ client.IndexerFunc) error {
	if _, err := c.present(); err != nil {
		return err
	}
	if slices.Contains(c.indexes, field) {
		return fmt.Errorf("indexer conflict: %s", field)
	}
	c.indexes = append(c.indexes, field)
	return nil
}

func (c *informs) WaitForCacheSync(ctx context.Context) bool {
	return toolscache.WaitForCacheSync(ctx.Done(), func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.informer == nil || c.informer.HasSynced()
	})
}

// keeping is such a cache that follows its kinds, as that of package fresh does.
type keeping struct{ *informs }

func (c keeping) ForgetKind(schema.GroupVersionKind) {
	c.forgets++
	c.mu.Lock()
	old := c.informer
	c.mu.Unlock()
	for _, obj := range old.GetStore().List() {
		c.objects.Delete(obj.(runtime.Object))
	}
}

// account keeps what a handler is told.
type account struct{ log }

// take returns what was told since the last call, sorted.
func (a *account) take() string {
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	told := a.lines
	a.lines = nil
	slices.Sort(told)
	return strings.Join(told, ", ")
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func (a *account) handler(w *world) handler.TypedEventHandler[*corev1.ConfigMap, reconcile.Request] {
	return handler.TypedFuncs[*corev1.ConfigMap, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*corev1.ConfigMap], _ queue) {
			initial := strings.Contains(fmt.Sprintf("%+v", e), "IsInInitialList:true") // v0.20 of controller-runtime has no such field
			a.add("", map[bool]string{true: "initial ", false: "create "}[initial]+e.Object.Name)
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*corev1.ConfigMap], _ queue) {
			a.add("", "update "+e.ObjectNew.Name)
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*corev1.ConfigMap], _ queue) {
			w.informs.mu.Lock()
			informer := w.informs.informer
			w.informs.mu.Unlock()
			if informer != nil {
				// A reconcile that begins now would read it, and nothing would begin another.
				if _, left, _ := informer.GetStore().Get(e.Object); left {
					a.add("", "the cache still has "+e.Object.Name)
				}
			}
			a.add("", "delete "+e.Object.Name)
		},
	}
}

// started starts a source, and returns what waits for its sync.
func started(t *testing.T, ctx context.Context, s *latekinds.Source[*corev1.ConfigMap, reconcile.Request]) (sync func(time.Duration) error) {
	t.Helper()
	must(t, s.Start(ctx, nil))
	return func(within time.Duration) error {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		return s.WaitForSync(ctx)
	}
}

// settled is longer than a mapper on its own takes to notice a change, and to confirm it.
const settled = 80 * time.Second

func wantTold(t *testing.T, a *account, when, want string) {
	t.Helper()
	if got := a.take(); got != want {
		t.Errorf("%s: told %q, want %q", when, got, want)
	}
}

// A kind comes after the source was started, goes without a word of a watch, and comes back, time after time.
func TestOptionalKindComesAndGoes(t *testing.T) {
	inWorlds(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(context.Background())
		var told account
		s := latekinds.Kind(w, &corev1.ConfigMap{}, told.handler(w), predicate.NewTypedPredicateFuncs(func(o *corev1.ConfigMap) bool { return o.Name != "hidden" }))
		s.IndexField("spec.x", nil)
		must(t, s.Readyz(nil)) // no controller runs it
		sync := started(t, ctx, s)
		must(t, sync(time.Second))
		if err := s.Readyz(nil); err == nil || !strings.Contains(err.Error(), widget.String()) || gauge(t, "absent", widget.Kind) != 1 {
			t.Errorf("while the kind is absent: ready: %v, the gauge is %v", err, gauge(t, "absent", widget.Kind))
		}
		_, keeps := w.cache.(keeping)
		for i := range 4 {
			w.serve(i%2 == 0, "a", "b", "hidden")
			time.Sleep(settled)
			how := map[bool]string{true: "initial", false: "create"}[i == 0]
			wantTold(t, &told, fmt.Sprint("come ", i), how+" a, "+how+" b")
			if err := s.Readyz(nil); err != nil || gauge(t, "absent", widget.Kind) != 0 || !slices.Equal(w.informs.indexes, []string{"spec.x"}) {
				t.Errorf("while it is served: ready: %v, the gauge is %v, indexes %q", err, gauge(t, "absent", widget.Kind), w.informs.indexes)
			}
			w.informs.objects.Modify(object("a"))
			w.informs.objects.Delete(object("b"))
			wantTold(t, &told, "changed", "delete b, update a")
			w.withdraw()
			time.Sleep(settled)
			wantTold(t, &told, fmt.Sprint("gone ", i), "delete a")
		}
		if want := map[bool][3]int{false: {4, 4, 0}, true: {1, 0, 4}}[keeps]; [3]int{w.informs.gets, w.informs.removed, w.informs.forgets} != want {
			t.Errorf("%d informers, %d removed, %d times forgotten; want %d", w.informs.gets, w.informs.removed, w.informs.forgets, want)
		}
		cancel()
		synctest.Wait()
		w.serve(true, "late")
		time.Sleep(settled)
		wantTold(t, &told, "after its end", "")
		if err := s.Readyz(nil); err != nil || gauge(t, "absent", widget.Kind) != 0 {
			t.Errorf("no controller runs it, and ready: %v, the gauge is %v", err, gauge(t, "absent", widget.Kind))
		}
	})
}

// In an outage the source is neither synced nor told of deletes. A kind that is served and cannot be listed
// fails the start, as with upstream's source.
func TestOptionalKindInAnOutage(t *testing.T) {
	inWorlds(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		var told account
		s := latekinds.Kind(w, &corev1.ConfigMap{}, told.handler(w))
		restore := w.server.SetFault(fakeapi.All(), fakeapi.Refused())
		sync := started(t, ctx, s)
		if err := sync(2 * time.Minute); err == nil || !strings.Contains(err.Error(), "timed out waiting for cache to be synced") {
			t.Errorf("in an outage the source is synced: %v", err)
		}
		w.serve(true, "a")
		restore()
		must(t, sync(settled))
		told.take()
		for name, fault := range map[string]fakeapi.Fault{"refused": fakeapi.Refused(), "a gateway's 404": fakeapi.LostRoute(), "500": fakeapi.Status(http.StatusInternalServerError, 0)} {
			restore = w.server.SetFault(fakeapi.All(), fault)
			time.Sleep(10 * time.Minute)
			wantTold(t, &told, name, "")
			restore()
		}
		w.informs.objects.Add(object("b"))
		wantTold(t, &told, "after the outages", "create b")
	})
	inWorlds(t, func(t *testing.T, w *world) {
		w.informs.refuses = errors.New("forbidden")
		w.serve(true, "a")
		s := latekinds.Kind(w, &corev1.ConfigMap{}, (&account{}).handler(w))
		if err := started(t, t.Context(), s)(2 * time.Minute); err == nil || !strings.Contains(err.Error(), "*v1.ConfigMap") || s.Readyz(nil) == nil {
			t.Errorf("the kind is served and cannot be listed; the source is synced: %v, the program is ready: %v", err, s.Readyz(nil))
		}
	})
}

// Two sources of a kind share an informer, which only one of them removes. One that has ended starts again.
func TestSourcesOfAKindShareIt(t *testing.T) {
	inWorlds(t, func(t *testing.T, w *world) {
		all := t.Context()
		var first, second account
		a, b := latekinds.Kind(w, &corev1.ConfigMap{}, first.handler(w)), latekinds.Kind(w, &corev1.ConfigMap{}, second.handler(w)).IndexField("x", nil)
		ctx, stop := context.WithCancel(all)
		must(t, started(t, all, a)(time.Second))
		must(t, started(t, ctx, b)(time.Second))
		w.serve(true, "a")
		time.Sleep(settled)
		first.take()
		second.take()
		stop()
		time.Sleep(time.Second)
		w.informs.objects.Add(object("b"))
		wantTold(t, &first, "one has ended", "create b")
		wantTold(t, &second, "it has ended", "")
		must(t, started(t, all, b)(time.Second))
		if got := strings.ReplaceAll(second.take(), "initial", "create"); got != "create a, create b" {
			t.Errorf("started again: told %q", got)
		}
		w.withdraw()
		time.Sleep(settled)
		wantTold(t, &first, "gone", "delete a, delete b")
		wantTold(t, &second, "gone", "delete a, delete b")
		if n := w.informs.removed + w.informs.forgets; n != 1 {
			t.Errorf("the informer was removed %d times", n)
		}
	})
}

// A kind that went in the moment between two looks does not keep a controller from starting.
func TestOptionalKindThatGoesAtTheStart(t *testing.T) {
	inWorlds(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.serve(true)
		_, err := w.mapper.RESTMapping(widget.GroupKind(), widget.Version)
		must(t, err)
		w.server.Remove(widget.Group) // the mapper still knows it
		var told account
		must(t, started(t, ctx, latekinds.Kind(w, &corev1.ConfigMap{}, told.handler(w)))(2*time.Minute))
		w.serve(true, "a")
		time.Sleep(settled)
		if told.take() == "" {
			t.Error("told nothing")
		}
	})
}

func TestStartSaysWhatIsMissing(t *testing.T) {
	var told account
	empty, known := &world{scheme: runtime.NewScheme()}, &world{scheme: runtime.NewScheme(), mapper: meta.NewDefaultRESTMapper(nil)}
	must(t, corev1.AddToScheme(known.scheme))
	for want, s := range map[string]*latekinds.Source[*corev1.ConfigMap, reconcile.Request]{
		"one of them is nil":                latekinds.Kind(empty, &corev1.ConfigMap{}, nil),
		"find the kind of *v1.ConfigMap":    latekinds.Kind(empty, &corev1.ConfigMap{}, told.handler(empty)),
		"needs a cluster, an object and a ": latekinds.Kind(nil, &corev1.ConfigMap{}, told.handler(empty)),
		"can't wait for kind ConfigMap":     latekinds.Kind(known, &corev1.ConfigMap{}, told.handler(empty)),
	} {
		if err := s.Start(t.Context(), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Start returned %v, want %q", err, want)
		}
	}
}

// lists is what can't list by a watch.
type lists struct{ *toolscache.ListWatch }

func (lists) IsWatchListSemanticsUnSupported() bool { return true }
