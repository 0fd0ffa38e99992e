// SPDX-License-Identifier: Apache-2.0

package fresh_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crhandler "sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// optional returns options that name ConfigMaps in ByObject.
func optional(opts cache.Options) cache.Options {
	opts.ByObject = map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {}}
	return opts
}

// controller is what a controller has of one source.Kind: the queue that its handler fills.
type controller struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// watchKind starts a source.Kind as a controller does, and waits until it has synced.
func watchKind(t *testing.T, ctx context.Context, c cache.Cache, obj client.Object) controller {
	t.Helper()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(queue.ShutDown)
	kind := source.Kind(c, obj, &crhandler.TypedEnqueueRequestForObject[client.Object]{})
	must(t, kind.Start(ctx, queue))
	wait, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	must(t, kind.WaitForSync(wait))
	return controller{queue}
}

// requests returns how many requests are in the queue, and takes them.
func (c controller) requests() (n int) {
	for ; c.Len() > 0; n++ {
		item, _ := c.Get()
		c.Done(item)
	}
	return n
}

// A kind that the options name may be absent when a controller starts. It may be installed, removed, and installed
// again with another scope and plural, and a plain source.Kind sees all of that. Nobody refreshes the mapper.
func TestAbsentKind(t *testing.T) {
	for name, opts := range map[string]cache.Options{"all": {}, "several": several()} {
		for _, representation := range representations {
			bubble(t, name+", "+representation, func(t *testing.T) {
				s := newChangingServer(t, "")
				c, m := s.caching(t, optional(opts))
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				controller := watchKind(t, ctx, c, caller{representation, configMap}.object("", ""))
				h := &tally{}
				handle(t, c, representation, h)
				get := func(ns string) error {
					return c.Get(ctx, client.ObjectKey{Namespace: ns, Name: "n"},
						caller{representation, configMap}.object("", ""))
				}
				synctest.Wait()
				goroutines := runningGoroutines()
				for n, step := range []struct{ scope, plural string }{
					{"", ""}, {inNamespaces, "configmaps"}, {"", ""}, {ofCluster, "configmaps"},
					{"", ""}, {inNamespaces, "maps"},
					{ofCluster, "maps"}, {"", ""}, {ofCluster, "maps"}, {inNamespaces, "configmaps"}, {"", ""},
				} {
					when := fmt.Sprintf("step %d, %s", n, step)
					s.change(func() { s.scope, s.plural = step.scope, step.plural })
					s.EndWatches() // as a server does when it deletes a CRD, without which no scope changes
					if n == 6 || n == 9 {
						// it was back before a watch told: a lookup of the program finds out
						must(t, m.Refresh(ctx, ""))
					}
					began := time.Now()
					h.expect(t, when, keysOf[step.scope])
					if took := time.Since(began); took > 31*time.Second {
						t.Errorf("%s: noticed after %v, want 30 seconds at most", when, took)
					}
					time.Sleep(2 * time.Second)
					if queued := controller.requests(); (queued == 0) != (n == 0) {
						t.Errorf("%s: %d requests for the controller", when, queued)
					}
					err := get(map[string]string{inNamespaces: "ns"}[step.scope])
					if step.scope == "" && !meta.IsNoMatchError(err) || step.scope != "" && err != nil {
						t.Errorf("%s: Get: %v", when, err)
					}
					err = c.List(ctx, caller{representation, configMap}.list())
					if (step.scope == "") != meta.IsNoMatchError(err) {
						t.Errorf("%s: List: %v", when, err)
					}
					if !c.WaitForCacheSync(ctx) {
						t.Errorf("%s: the cache does not sync", when)
					}
					if log := h.takeLog(); n > 0 && strings.Contains(strings.Join(log, " "), "initial") {
						t.Errorf("%s: told %q, want nothing of an initial list", when, log)
					}
				}
				time.Sleep(3 * time.Minute)
				synctest.Wait()
				if now := runningGoroutines(); now > goroutines {
					t.Errorf("%d goroutines in the end, %d at first", now, goroutines)
				}
			})
		}
	}
}

// An absent kind costs what it takes to ask whether it is served, and nothing else; many of them share that. While
// watches tell of changes of the API nothing is asked.
func TestCostOfAbsentKinds(t *testing.T) {
	for name, test := range map[string]struct {
		kinds, most int // requests in ten minutes
		opts        apiutil.DynamicRESTMapperOptions
	}{
		"one kind":             {1, 20, apiutil.DynamicRESTMapperOptions{}},
		"twenty in 20 groups":  {20, 2 * 20, apiutil.DynamicRESTMapperOptions{}},
		"twenty, with watches": {20, 2, apiutil.DynamicRESTMapperOptions{WatchAPIs: true}},
	} {
		bubble(t, name, func(t *testing.T) {
			s := newChangingServer(t, inNamespaces)
			s.SetForms(fakeapi.Aggregated())
			for _, group := range []string{"apiextensions.k8s.io", "apiregistration.k8s.io"} {
				resource := map[string]fakeapi.Resource{
					"apiextensions.k8s.io":   {Name: "customresourcedefinitions", Kind: "CustomResourceDefinition"},
					"apiregistration.k8s.io": {Name: "apiservices", Kind: "APIService"},
				}[group]
				s.PutVersion(group, fakeapi.Version{Name: "v1", Resources: []fakeapi.Resource{resource}})
			}
			m := s.mapper(t, test.opts)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go m.Start(ctx) //nolint:errcheck // It is called once.
			opts := cache.Options{Mapper: m, ByObject: map[client.Object]cache.ByObject{}}
			var absent []client.Object
			for n := range test.kinds {
				obj := &metav1.PartialObjectMetadata{}
				obj.SetGroupVersionKind(schema.GroupVersionKind{Group: fmt.Sprint("g", n), Version: "v1",
					Kind: "Widget"})
				opts.ByObject[obj] = cache.ByObject{}
				absent = append(absent, obj)
			}
			c, _ := s.caching(t, opts)
			for _, obj := range absent {
				informer, err := c.GetInformer(t.Context(), obj)
				must(t, err)
				if !informer.HasSynced() {
					t.Errorf("the informer of %v has not synced", obj.GetObjectKind())
				}
				time.Sleep(700 * time.Millisecond)
			}
			time.Sleep(time.Minute)
			_, _ = s.take()
			time.Sleep(10 * time.Minute)
			sent, reads := s.take()
			sent = slices.DeleteFunc(sent, func(request string) bool { // of the mapper's own watches
				return strings.HasSuffix(request, "/customresourcedefinitions") ||
					strings.HasSuffix(request, "/apiservices")
			})
			if len(sent) > 0 || reads > test.most {
				t.Errorf("%d reads of discovery in 10 minutes, want at most %d; sent %q, want nothing", reads,
					test.most, sent)
			}
		})
	}
}

// With WatchAPIs a kind is found about a second after it was installed.
func TestAbsentKindWithWatches(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newChangingServer(t, "")
		s.PutVersion("apiextensions.k8s.io", fakeapi.Version{Name: "v1",
			Resources: []fakeapi.Resource{{Name: "customresourcedefinitions", Kind: "CustomResourceDefinition"}}})
		s.PutVersion("apiregistration.k8s.io", fakeapi.Version{Name: "v1",
			Resources: []fakeapi.Resource{{Name: "apiservices", Kind: "APIService"}}})
		m := s.mapper(t, apiutil.DynamicRESTMapperOptions{WatchAPIs: true})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go m.Start(ctx) //nolint:errcheck // It is called once.
		opts := optional(cache.Options{})
		opts.Mapper = m
		c, _ := s.caching(t, opts)
		h := &tally{}
		handle(t, c, "typed", h)
		time.Sleep(time.Minute)
		s.change(func() { s.scope = inNamespaces })
		must(t, s.Tell("ADDED", "customresourcedefinitions", fakeapi.Object{Name: "configmaps"}))
		time.Sleep(2 * time.Second)
		h.expect(t, "2 seconds after the event", keysOf[inNamespaces])
	})
}

// An index may be added while the kind is absent. An outage is no absence.
func TestIndexAndOutageOfAnAbsentKind(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newChangingServer(t, "")
		c, _ := s.caching(t, optional(cache.Options{}))
		must(t, c.IndexField(t.Context(), &corev1.ConfigMap{}, "own",
			func(o client.Object) []string { return []string{o.GetName()} }))
		h := &tally{}
		handle(t, c, "typed", h)
		byIndex := func() error {
			return c.List(t.Context(), &corev1.ConfigMapList{},
				client.MatchingFields{"own": "n"})
		}
		if err := byIndex(); !meta.IsNoMatchError(err) {
			t.Errorf("absent, by index: %v, want NoMatch", err)
		}
		s.change(func() { s.scope = inNamespaces })
		h.expect(t, "it is installed", keysOf[inNamespaces])
		must(t, byIndex())
		for name, fault := range map[string]fakeapi.Fault{"503": fakeapi.Status(503, 0),
			"no connection": fakeapi.Refused(), "403": fakeapi.Text(403, "no")} {
			heal := s.SetFault(fakeapi.All(), fault)
			s.EndWatches()
			time.Sleep(10 * time.Minute)
			h.expect(t, "during an outage, "+name, keysOf[inNamespaces])
			must(t, byIndex())
			heal()
			time.Sleep(2 * time.Minute)
			h.expect(t, "after an outage, "+name, keysOf[inNamespaces])
		}
		if log := strings.Join(h.takeLog(), " "); strings.Contains(log, "delete") {
			t.Errorf("told %q, want no delete", log)
		}
	})
}

// A kind that the options do not name has the errors of controller-runtime, with the same text.
func TestAbsentKindThatIsNotNamed(t *testing.T) {
	for name, opts := range map[string]cache.Options{"all": {}, "several": several()} {
		bubble(t, name, func(t *testing.T) {
			s := newChangingServer(t, "")
			c, m := s.caching(t, opts)
			ofStock := opts
			ofStock.HTTPClient, ofStock.Mapper = s.Client(), m
			stock, err := cache.New(s.Config(), ofStock)
			must(t, err)
			start(t, stock)
			index := func(client.Object) []string { return nil }
			for what, call := range map[string]func(cache.Cache) error{
				"Get": func(c cache.Cache) error {
					return c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "n"}, &corev1.ConfigMap{})
				},
				"GetInformer": func(c cache.Cache) error {
					_, err := c.GetInformer(t.Context(), &corev1.ConfigMap{})
					return err
				},
				"IndexField": func(c cache.Cache) error {
					return c.IndexField(t.Context(), &corev1.ConfigMap{}, "name", index)
				},
			} {
				if err, want := call(c), call(stock); !meta.IsNoMatchError(err) || err.Error() != want.Error() {
					t.Errorf("%s: %q, want NoMatch with the text %q", what, err, want)
				}
			}
		})
	}
}

// A kind that may not be listed waits as one that is not served does: others go on, the log has one line with the
// reason, and a read returns it. Once it may be listed it is.
func TestAbsentKindThatIsForbidden(t *testing.T) {
	for name, opts := range map[string]cache.Options{"all": {}, "several": several()} {
		bubble(t, name, func(t *testing.T) {
			s := newChangingServer(t, inNamespaces)
			c, _ := s.caching(t, optional(opts))
			allow := s.SetFault(fakeapi.Objects("", "list", "watch"), fakeapi.Text(403, "refused"))
			_ = logged.take()
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			controller := watchKind(t, ctx, c, &corev1.ConfigMap{})
			h := &tally{}
			handle(t, c, "typed", h)
			if !c.WaitForCacheSync(ctx) {
				t.Error("the cache does not sync")
			}
			time.Sleep(time.Minute)
			_, _ = s.take()
			time.Sleep(10 * time.Minute)
			lists := 0
			for _, r := range s.TakeRequests() {
				if r.Verb == "list" {
					lists++
				}
			}
			if most := 20 * max(1, len(opts.DefaultNamespaces)); lists > most {
				t.Errorf("%d lists in 10 minutes, want at most %d", lists, most)
			}
			err := c.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "n"}, &corev1.ConfigMap{})
			if !apierrors.IsForbidden(err) || meta.IsNoMatchError(err) {
				t.Errorf("a read got %v, want the server's 403", err)
			}
			if lines := logged.take("Waiting for a kind"); len(lines) != 1 || !strings.Contains(lines[0], "refused") {
				t.Errorf("logged %q, want one line with the reason", lines)
			}
			allow()
			time.Sleep(31 * time.Second)
			h.expect(t, "half a minute after it may be listed", keysOf[inNamespaces])
			if controller.requests() == 0 {
				t.Error("no request for the controller")
			}
			s.SetFault(fakeapi.Objects("", "list", "watch"), fakeapi.Text(403, "refused"))
			s.EndWatches()
			time.Sleep(10 * time.Minute)
			h.expect(t, "what was listed stays", keysOf[inNamespaces])
		})
	}
}

// The cache logs one line when it begins to wait for a kind, with the versions that are served, and one when it is
// served.
func TestLogOfAnAbsentKind(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newChangingServer(t, "")
		s.SetForms(fakeapi.Aggregated())
		s.PutVersion("", fakeapi.Version{Name: "v1beta1",
			Resources: []fakeapi.Resource{{Name: "configmaps", Kind: "ConfigMap", Namespaced: true}}})
		c, _ := s.caching(t, optional(cache.Options{}))
		_ = logged.take()
		for range 3 {
			handle(t, c, "typed", &tally{})
			time.Sleep(10 * time.Minute)
		}
		if lines := logged.take(); len(lines) != 1 || !strings.Contains(lines[0], "Waiting for a kind") ||
			!strings.Contains(lines[0], "v1beta1") {
			t.Errorf("logged %q, want one line, with the version that is served", lines)
		}
		s.change(func() { s.scope = inNamespaces })
		time.Sleep(time.Minute)
		lines := slices.DeleteFunc(logged.take(), func(line string) bool {
			return strings.Contains(line, "served APIs changed") // the mapper of a patched build logs that, too
		})
		if len(lines) != 1 || !strings.Contains(lines[0], "is served") {
			t.Errorf("logged %q, want one line", lines)
		}
	})
}

// An informer of an absent kind can be removed. Then nothing is asked for it.
func TestRemoveInformerOfAnAbsentKind(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newChangingServer(t, "")
		c, _ := s.unstarted(t, optional(cache.Options{}))
		synctest.Wait()
		goroutines := runningGoroutines() + 1 // that of Start
		start(t, c)
		handle(t, c, "typed", &tally{})
		must(t, c.RemoveInformer(t.Context(), &corev1.ConfigMap{}))
		time.Sleep(time.Minute)
		synctest.Wait()
		if now := runningGoroutines(); now > goroutines {
			t.Errorf("%d goroutines after the informer was removed, want %d", now, goroutines)
		}
		_, _ = s.take()
		time.Sleep(10 * time.Minute)
		if sent, reads := s.take(); len(sent)+reads > 0 {
			t.Errorf("%d reads, sent %q, want nothing", reads, sent)
		}
		s.change(func() { s.scope = inNamespaces })
		h := &tally{}
		handle(t, c, "typed", h)
		h.expect(t, "it is installed", keysOf[inNamespaces])
	})
}

// A kind that is absent before the cache starts is found after that.
func TestAbsentBeforeStart(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s, h := newChangingServer(t, ""), &tally{}
		c, _ := s.unstarted(t, optional(cache.Options{}))
		informer, err := c.GetInformer(t.Context(), &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
		must(t, err)
		_, err = informer.AddEventHandler(h)
		must(t, errors.Join(err, c.IndexField(t.Context(), &corev1.ConfigMap{}, "own",
			func(o client.Object) []string { return []string{o.GetName()} })))
		time.Sleep(time.Minute)
		start(t, c)
		if !c.WaitForCacheSync(t.Context()) || !informer.HasSynced() {
			t.Error("the cache does not sync")
		}
		s.change(func() { s.scope = ofCluster })
		time.Sleep(31 * time.Second)
		h.expect(t, "it is installed", keysOf[ofCluster])
	})
}

// held is a tally that waits, at the first of what, until release is closed.
func held(what string) (h *tally, waits, release chan struct{}) {
	waits, release = make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() { close(waits) })
	return &tally{then: func(told string, _ client.Object) {
		if told == what {
			first()
			<-release
		}
	}}, waits, release
}

// A kind is removed while its handlers are busy. What the informer has still to tell, an update, must not bring
// objects back. While deletions are delivered to the handler the server fails, and all are delivered. A handler holds
// a mutex meanwhile, which stops virtual time.
func TestKindIsRemovedWhileHandlersAreBusy(t *testing.T) {
	for _, what := range []string{"update", "delete"} {
		bothModes(t, func(t *testing.T) {
			s := newChangingServer(t, inNamespaces)
			c, m := s.caching(t, optional(cache.Options{}))
			h, waits, release := held(what)
			handle(t, c, "typed", h)
			h.expect(t, "at first", keysOf[inNamespaces])
			if what == "update" {
				for range 2 {
					must(t, s.Tell("ADDED", "configmaps", fakeapi.Object{Namespace: "ns", Name: "n", UID: "1"}))
				}
				<-waits
			}
			s.changeScope(t, m, "")
			if what == "delete" {
				<-waits
			} else {
				time.Sleep(3 * time.Second) // until it is absent
			}
			heal := s.SetFault(fakeapi.Discovery(), fakeapi.Status(503, 0))
			if err := m.Refresh(t.Context(), ""); err == nil {
				t.Error("the outage is none")
			}
			close(release)
			time.Sleep(time.Second)
			heal()
			must(t, m.Refresh(t.Context(), ""))
			h.expect(t, what+": the kind is removed", "")
		})
	}
}

// A kind that was removed has no objects, also if a list that began before ends after that.
func TestListThatIsUnderWayWhenAKindIsRemoved(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s, slow := newChangingServer(t, inNamespaces), atomic.Bool{}
		opts := optional(cache.Options{})
		opts.HTTPClient = &http.Client{Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
			resp, err := s.Client().Transport.RoundTrip(req)
			if slow.Load() && fakeapi.Lists("")(req) && strings.HasSuffix(req.URL.Path, "/configmaps") {
				time.Sleep(10 * time.Second)
			}
			return resp, err
		})}
		c, m := s.caching(t, opts)
		slow.Store(true)
		_, err := c.GetInformer(t.Context(), &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
		must(t, err)
		time.Sleep(3 * time.Second)
		slow.Store(false)
		s.changeScope(t, m, "")
		time.Sleep(time.Hour)
		list, h := &corev1.ConfigMapList{}, &tally{}
		if err := c.List(t.Context(), list); !meta.IsNoMatchError(err) {
			t.Errorf("an hour later the cache has %d objects, %v", len(list.Items), err)
		}
		handle(t, c, "typed", h)
		h.expect(t, "a handler is added", "")
		s.change(func() { s.scope = inNamespaces }) // the mapper is not told
		time.Sleep(31 * time.Second)
		h.expect(t, "the kind is served again", keysOf[inNamespaces])
	})
}

// A kind becomes cluster-scoped so soon after it was removed that no request fails, because the path of all
// namespaces is the same. In a program that only reads its cache the first object tells, by a list or by an event,
// and until the cache has switched no object of the new scope is beside those of the old one.
func TestScopeThatChangesWithoutAnError(t *testing.T) {
	for name, remain := range map[string]bool{"objects are there": false, "none is at first": true} {
		bubble(t, name, func(t *testing.T) {
			s, h := newChangingServer(t, inNamespaces), &tally{}
			c, _ := s.caching(t, cache.Options{})
			handle(t, c, "typed", h)
			h.expect(t, "at first", keysOf[inNamespaces])
			s.change(func() {
				s.scope = ofCluster
				if remain {
					s.names = nil
				}
			})
			time.Sleep(time.Minute)
			if remain {
				s.change(func() { s.names = []string{"n"} })
				must(t, s.Tell("ADDED", "configmaps", fakeapi.Object{Name: "n", UID: "1"}))
			}
			time.Sleep(10 * time.Second)
			h.expect(t, "it is cluster-scoped", keysOf[ofCluster])
			if list := (&corev1.ConfigMapList{}); c.List(t.Context(), list) != nil || len(list.Items) != 1 {
				t.Errorf("the cache has %d objects, want 1", len(list.Items))
			}
		})
	}
	bubble(t, "beside objects of the old scope", func(t *testing.T) {
		s, h := newChangingServer(t, inNamespaces), &tally{}
		c, _ := s.caching(t, cache.Options{})
		handle(t, c, "typed", h)
		h.expect(t, "at first", keysOf[inNamespaces])
		must(t, s.Tell("ADDED", "configmaps", fakeapi.Object{Name: "m", UID: "1"})) // of a replica that is ahead
		time.Sleep(time.Minute)
		h.expect(t, "an object of another scope", keysOf[inNamespaces])
	})
	bubble(t, "beside nothing", func(t *testing.T) {
		s, h := newChangingServer(t, inNamespaces), &tally{}
		s.change(func() { s.names = nil })
		c, _ := s.caching(t, cache.Options{})
		handle(t, c, "typed", h)
		for _, name := range []string{"k", "m"} {
			must(t, s.Tell("ADDED", "configmaps", fakeapi.Object{Name: name, UID: "1"}))
			time.Sleep(time.Second)
		}
		h.expect(t, "discovery says that the kind is namespaced, and no object is in a namespace", "k m")
	})
}

// runningGoroutines counts the goroutines that have a stack. runtime.NumGoroutine also counts those that are about to
// end.
func runningGoroutines() int {
	stacks := make([]byte, 1<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "\n\ngoroutine ")
}

// A kind that becomes absent long after the cache has started is polled for, too, and so is one that does so again.
func TestKindThatBecomesAbsentLater(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s, h := newChangingServer(t, inNamespaces), &tally{}
		c, _ := s.caching(t, optional(cache.Options{}))
		handle(t, c, "typed", h)
		h.expect(t, "at first", keysOf[inNamespaces])
		for range 2 {
			time.Sleep(10 * time.Minute)
			s.change(func() { s.scope = "" })
			s.EndWatches()
			h.expect(t, "the kind is removed", "")
			time.Sleep(10 * time.Minute)
			s.change(func() { s.scope = inNamespaces })
			h.expect(t, "the kind is installed again, and nobody looks it up", keysOf[inNamespaces])
		}
	})
}

// A kind that the options do not name is never absent: when it is removed, reads find nothing and have no error, as in
// controller-runtime.
func TestRemovedKindThatIsNotNamed(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s, h := newChangingServer(t, inNamespaces), &tally{}
		c, m := s.caching(t, cache.Options{})
		stock, err := cache.New(s.Config(), cache.Options{HTTPClient: s.Client(), Mapper: m})
		must(t, err)
		start(t, stock)
		handle(t, c, "typed", h)
		h.expect(t, "at first", keysOf[inNamespaces])
		must(t, stock.List(t.Context(), &corev1.ConfigMapList{}))
		for _, namespace := range []string{"ns", "other"} { // a server that removes a CRD deletes its objects first
			must(t, s.Tell("DELETED", "configmaps", fakeapi.Object{Namespace: namespace, Name: "n", UID: "1"}))
		}
		h.expect(t, "the objects are deleted", "")
		time.Sleep(time.Second) // so that both caches have seen it
		s.change(func() { s.scope = "" })
		s.EndWatches()
		time.Sleep(10 * time.Minute)
		for name, c := range map[string]cache.Cache{"ours": c, "controller-runtime's": stock} {
			list := &corev1.ConfigMapList{}
			if err := c.List(t.Context(), list); err != nil || len(list.Items) > 0 {
				t.Errorf("%s: a list of a removed kind: %d objects, %v; want none, and no error", name, len(list.Items), err)
			}
			err := c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "n"}, &corev1.ConfigMap{})
			if !apierrors.IsNotFound(err) {
				t.Errorf("%s: a read of a removed kind: %v, want NotFound", name, err)
			}
		}
	})
}
