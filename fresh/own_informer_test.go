// SPDX-License-Identifier: Apache-2.0

package fresh_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// hooks are called with the number of an informer that a cache makes, from 1 on, before it is made, or before something
// is added to it, which fails with the error that they return. Those that are nil are not called.
type hooks struct {
	make        func(n int)
	addHandler  func(n int, informer toolscache.SharedIndexInformer) error
	addIndexers func(n int) error
}

// options returns the options of a cache whose informers have these hooks.
func (h hooks) options(opts cache.Options) cache.Options {
	var made atomic.Int32
	opts.NewInformer = func(lw toolscache.ListerWatcher, obj kruntime.Object, resync time.Duration,
		x toolscache.Indexers) toolscache.SharedIndexInformer {
		n := int(made.Add(1))
		if h.make != nil {
			h.make(n)
		}
		return ownInformer{toolscache.NewSharedIndexInformer(lw, obj, resync, x), h, n}
	}
	return opts
}

// ownInformer is an informer with hooks.
type ownInformer struct {
	toolscache.SharedIndexInformer
	hooks hooks
	n     int
}

func (i ownInformer) AddEventHandler(
	h toolscache.ResourceEventHandler,
) (toolscache.ResourceEventHandlerRegistration, error) {
	if i.hooks.addHandler != nil {
		if err := i.hooks.addHandler(i.n, i.SharedIndexInformer); err != nil {
			return nil, err
		}
	}
	return i.SharedIndexInformer.AddEventHandler(h)
}

func (i ownInformer) AddIndexers(x toolscache.Indexers) error {
	if i.hooks.addIndexers != nil {
		if err := i.hooks.addIndexers(i.n); err != nil {
			return err
		}
	}
	return i.SharedIndexInformer.AddIndexers(x)
}

func nameOf(obj client.Object) []string { return []string{obj.GetName()} }

// A handler that is being added while its kind switches is added to the new informer, also if the old one has stopped
// before it got the handler. The mutex of a handler stops virtual time.
func TestHandlerIsAddedWhileAKindSwitches(t *testing.T) {
	bothModes(t, func(t *testing.T) {
		s := newChangingServer(t, inNamespaces)
		m := s.mapper(t, apiutil.DynamicRESTMapperOptions{})
		opts := hooks{addHandler: func(n int, informer toolscache.SharedIndexInformer) error {
			if n == 1 {
				s.changeScope(t, m, ofCluster)
				eventually(t, "the old informer has stopped", informer.IsStopped)
			}
			return nil
		}}.options(cache.Options{Mapper: m})
		c, _ := s.caching(t, opts)
		h := &tally{}
		handle(t, c, "typed", h)
		h.expect(t, "after the switch", keysOf[ofCluster])
	})
}

// If the new informer of a kind refuses a handler, the log says so, and the handler is added when the kind next
// switches.
func TestHandlerThatAnInformerRefuses(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s, h := newChangingServer(t, inNamespaces), &tally{}
		c, m := s.caching(t, hooks{addHandler: func(n int, _ toolscache.SharedIndexInformer) error {
			if n == 2 {
				return errors.New("refused")
			}
			return nil
		}}.options(cache.Options{}))
		handle(t, c, "typed", h)
		h.expect(t, "at first", keysOf[inNamespaces])
		_ = logged.take()
		s.changeScope(t, m, ofCluster)
		eventually(t, "the cache follows", func() bool { return has(c, "") })
		time.Sleep(10 * time.Second)
		if lines := logged.take("A handler could not be added", "refused", "ConfigMap"); len(lines) != 1 {
			t.Errorf("logged %q, want one line with the kind and the reason", lines)
		}
		s.change(func() { s.names = []string{"m"} })
		s.changeScope(t, m, inNamespaces)
		h.expect(t, "after the next switch", "ns/m other/m")
	})
}

// If an index cannot be added to the new informer of a kind, the cache keeps what it has, one line says why, and it
// tries again.
func TestIndexThatANewInformerRefuses(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newChangingServer(t, inNamespaces)
		c, m := s.caching(t, hooks{addIndexers: func(n int) error {
			if n == 2 {
				return errors.New("refused")
			}
			return nil
		}}.options(cache.Options{}))
		must(t, c.IndexField(t.Context(), &corev1.ConfigMap{}, "name", nameOf))
		eventually(t, "the object", func() bool { return has(c, "ns") })
		_ = logged.take()
		s.changeScope(t, m, ofCluster)
		time.Sleep(500 * time.Millisecond)
		if lines := logged.take("cannot follow"); len(lines) != 1 || !strings.Contains(lines[0], "refused") {
			t.Errorf("logged %q, want one line with the reason", lines)
		}
		if !has(c, "ns") {
			t.Error("the cache has lost what it had")
		}
		eventually(t, "the cache follows", func() bool { return has(c, "") })
		must(t, c.List(t.Context(), &corev1.ConfigMapList{}, client.MatchingFields{"name": "n"}))
	})
}

// An index that is added while a kind switches is an index of the new informer, too: whether it is added to the old one
// when the switch has ended, or while the new one lists.
func TestIndexIsAddedWhileAKindSwitches(t *testing.T) {
	byName := func(t *testing.T, c cache.Cache) {
		t.Helper()
		list := &corev1.ConfigMapList{}
		err := c.List(t.Context(), list, client.MatchingFields{"name": "n"})
		if err != nil || len(list.Items) != 1 {
			t.Errorf("by index %d objects, %v, want the one of the cluster", len(list.Items), err)
		}
	}
	bubble(t, "the switch ends before", func(t *testing.T) {
		s := newChangingServer(t, inNamespaces)
		m := s.mapper(t, apiutil.DynamicRESTMapperOptions{})
		var c cache.Cache // which the hook uses
		c, _ = s.caching(t, hooks{addIndexers: func(n int) error {
			if n == 1 {
				s.changeScope(t, m, ofCluster)
				eventually(t, "the cache follows", func() bool { return has(c, "") })
			}
			return nil
		}}.options(cache.Options{Mapper: m}))
		must(t, c.IndexField(t.Context(), &corev1.ConfigMap{}, "name", nameOf))
		byName(t, c)
	})
	bubble(t, "the new informer lists", func(t *testing.T) {
		s := newChangingServer(t, inNamespaces)
		c, m := s.caching(t, cache.Options{})
		eventually(t, "the object", func() bool { return has(c, "ns") })
		s.SetFault(fakeapi.Lists(""), fakeapi.Late(3*time.Second))
		s.changeScope(t, m, ofCluster)
		time.Sleep(time.Second)
		must(t, c.IndexField(t.Context(), &corev1.ConfigMap{}, "name", nameOf))
		eventually(t, "the cache follows", func() bool { return has(c, "") })
		byName(t, c)
	})
}

// An index that is added while the informer is removed is an index of the next informer.
func TestIndexIsAddedWhileItsInformerIsRemoved(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newChangingServer(t, inNamespaces)
		var c cache.Cache // which the hook uses
		c, _ = s.caching(t, hooks{addIndexers: func(n int) error {
			if n == 1 {
				must(t, c.RemoveInformer(t.Context(), &corev1.ConfigMap{}))
			}
			return nil
		}}.options(cache.Options{}))
		must(t, c.IndexField(t.Context(), &corev1.ConfigMap{}, "name", nameOf))
		list := &corev1.ConfigMapList{}
		err := c.List(t.Context(), list, client.MatchingFields{"name": "n"})
		if err != nil || len(list.Items) != 2 {
			t.Errorf("by index %d objects, %v, want 2", len(list.Items), err)
		}
	})
}

// A kind that was removed becomes absent at the next try if an index cannot be added to what takes the place of its
// informer. Nothing is left of the first try.
func TestRemovedKindWhoseIndexIsRefused(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s, h := newChangingServer(t, inNamespaces), &tally{}
		const absentAgain = 4 // after the first one, the first absent one, and the second one
		c, m := s.caching(t, hooks{addIndexers: func(n int) error {
			if n == absentAgain {
				return errors.New("refused")
			}
			return nil
		}}.options(optional(cache.Options{})))
		must(t, c.IndexField(t.Context(), &corev1.ConfigMap{}, "name", nameOf))
		handle(t, c, "typed", h)
		h.expect(t, "at first", keysOf[inNamespaces])
		var goroutines [2]int
		for n := range goroutines {
			_ = logged.take()
			s.changeScope(t, m, "")
			h.expect(t, "it is removed", "")
			if lines := logged.take("cannot follow"); len(lines) != n {
				t.Errorf("removal %d: logged %q, want a line if the index was refused", n, lines)
			}
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			goroutines[n] = runningGoroutines()
			s.changeScope(t, m, inNamespaces)
			h.expect(t, "it is installed again", keysOf[inNamespaces])
		}
		if goroutines[1] > goroutines[0] {
			t.Errorf("%d goroutines while it is absent again, %d the first time", goroutines[1], goroutines[0])
		}
	})
}

// A cache that ends while a kind becomes absent ends.
func TestEndWhileAKindBecomesAbsent(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newChangingServer(t, inNamespaces)
		ctx, cancel := context.WithCancel(t.Context())
		c, m := s.unstarted(t, hooks{make: func(n int) {
			if n == 2 {
				cancel()
			}
		}}.options(optional(cache.Options{})))
		ended := make(chan error, 1)
		go func() { ended <- c.Start(ctx) }()
		eventually(t, "the object", func() bool { return has(c, "ns") })
		s.changeScope(t, m, "")
		must(t, <-ended)
	})
}

// An informer that is made while its kind becomes absent does not keep it from that: after two reads, a second apart,
// the kind is absent.
func TestInformerIsMadeWhileAKindBecomesAbsent(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newChangingServer(t, inNamespaces)
		m := s.mapper(t, apiutil.DynamicRESTMapperOptions{})
		opts := optional(cache.Options{Mapper: m})
		var c cache.Cache // which the hook uses
		c, _ = s.caching(t, hooks{make: func(n int) {
			if n == 2 {
				_, err := c.GetInformer(t.Context(), caller{"metadata", configMap}.object("", ""),
					cache.BlockUntilSynced(false))
				must(t, err)
			}
		}}.options(opts))
		eventually(t, "the object", func() bool { return has(c, "ns") })
		s.changeScope(t, m, "")
		time.Sleep(1500 * time.Millisecond)
		for _, representation := range []string{"typed", "metadata"} {
			if err := c.List(t.Context(), caller{representation, configMap}.list()); !meta.IsNoMatchError(err) {
				t.Errorf("%s: %v, want NoMatch", representation, err)
			}
		}
	})
}

// The handler of errors of the options is called, by the informers of all instances, unless the program sets another
// one: then that one is.
func TestHandlersOfErrors(t *testing.T) {
	for _, sets := range []bool{false, true} {
		bubble(t, fmt.Sprintf("the program sets one: %t", sets), func(t *testing.T) {
			s := newChangingServer(t, inNamespaces)
			var ofOptions, ofProgram atomic.Int32
			c, m := s.unstarted(t, cache.Options{
				DefaultWatchErrorHandler: func(context.Context, *toolscache.Reflector, error) { ofOptions.Add(1) },
			})
			informer, err := c.GetInformer(t.Context(), &corev1.ConfigMap{})
			must(t, err)
			if sets {
				must(t, informer.(toolscache.SharedIndexInformer).SetWatchErrorHandler(
					func(*toolscache.Reflector, error) { ofProgram.Add(1) }))
			}
			start(t, c)
			for _, scope := range []string{inNamespaces, ofCluster} {
				s.changeScope(t, m, scope)
				namespace := map[string]string{inNamespaces: "ns"}[scope]
				eventually(t, "the cache follows", func() bool { return has(c, namespace) })
				time.Sleep(5 * time.Minute) // until the instance before has ended
				ofOptions.Store(0)
				ofProgram.Store(0)
				heal := s.SetFault(fakeapi.Objects("", "list", "watch"), fakeapi.Status(500, 0))
				s.EndWatches()
				time.Sleep(time.Minute)
				heal()
				if options, program := ofOptions.Load() > 0, ofProgram.Load() > 0; options == sets || program != sets {
					t.Errorf("%s: the handler of the options was called: %t, that of the program: %t", scope, options, program)
				}
			}
		})
	}
}

// A view of the cache has the errors of the cache.
func TestErrorsOfAView(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s, refused := newChangingServer(t, inNamespaces), errors.New("refused")
		c, _ := s.caching(t, hooks{
			addHandler: func(int, toolscache.SharedIndexInformer) error { return refused },
		}.options(cache.Options{}))
		reader, _ := c.(interface {
			View() (client.Reader, func(*meta.RESTMapping))
		}).View()
		view := reader.(cache.Cache)
		absent := caller{"metadata", configMap.GroupVersion().WithKind("Absent")}.object("", "")
		if _, err := view.GetInformer(t.Context(), absent); !meta.IsNoMatchError(err) {
			t.Errorf("an informer of a kind that is not served: %v, want NoMatch", err)
		}
		informer, err := view.GetInformer(t.Context(), &corev1.ConfigMap{})
		must(t, err)
		if _, err := informer.AddEventHandler(&tally{}); !errors.Is(err, refused) {
			t.Errorf("a handler that is refused: %v, want why", err)
		}
	})
}
