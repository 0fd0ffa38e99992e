// SPDX-License-Identifier: Apache-2.0

package fresh_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/follow"
)

// A role may list a kind and not watch it. Then the kind is listed, and does not count as waiting.
func TestListAllowedWatchForbidden(t *testing.T) {
	for name, opts := range map[string]cache.Options{"all": {}, "several": several()} {
		bubble(t, name, func(t *testing.T) {
			s := newChangingServer(t, "")
			c, m := s.caching(t, optional(opts))
			s.SetFault(fakeapi.Objects("", "watch"), fakeapi.Status(403, 0))
			s.SetFault(fakeapi.Objects("", "list"), fakeapi.Late(200*time.Millisecond))
			h := &tally{}
			handle(t, c, "typed", h)
			s.changeScope(t, m, inNamespaces)
			h.expect(t, "installed", keysOf[inNamespaces])
		})
		bubble(t, name+" from start", func(t *testing.T) {
			s := newChangingServer(t, inNamespaces)
			c, _ := s.caching(t, optional(opts))
			s.SetFault(fakeapi.Objects("", "watch"), fakeapi.Status(403, 0))
			s.SetFault(fakeapi.Objects("", "list"), fakeapi.Late(200*time.Millisecond))
			_ = logged.take()
			h := &tally{}
			handle(t, c, "typed", h)
			h.expect(t, "installed", keysOf[inNamespaces])
			if l := logged.take("Waiting"); len(l) > 0 {
				t.Errorf("%q", l)
			}
		})
	}
}

var failures atomic.Int64

// Nothing is logged again and again while an optional kind may not be listed, neither by the cache nor by client-go.
func TestLogOfForbidden(t *testing.T) {
	before := utilruntime.ErrorHandlers
	defer func() { utilruntime.ErrorHandlers = before }()
	for name, opts := range map[string]cache.Options{"all": {}, "several": several()} {
		bubble(t, name, func(t *testing.T) {
			s := newChangingServer(t, inNamespaces)
			c, _ := s.caching(t, optional(opts))
			allow := s.SetFault(fakeapi.Objects("", "list", "watch"), fakeapi.Status(403, 0))
			utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{func(_ context.Context, err error, msg string,
				_ ...any) {
				failures.Add(1)
			}}
			handle(t, c, "typed", &tally{})
			time.Sleep(time.Minute)
			_ = logged.take()
			failures.Store(0)
			time.Sleep(time.Hour)
			if n := failures.Load(); n > 0 {
				t.Errorf("client-go logged %d errors in an hour", n)
			}
			if lines := logged.take(); len(lines) > 0 {
				t.Errorf("said %d lines in an hour, such as %q", len(lines), lines[0])
			}
			allow()
			// nothing is left unsynced, for which a goroutine of controller-runtime's would wait
			time.Sleep(time.Minute)
		})
	}
}

// A cache that has ended waits for no kind.
func TestWaitingOfACacheThatHasEnded(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newChangingServer(t, "")
		c, m := s.unstarted(t, optional(cache.Options{}))
		end := start(t, c)
		handle(t, c, "typed", &tally{})
		time.Sleep(time.Minute)
		end()
		if w := follow.Of(m, follow.WaitUntilRead).Waiting(); len(w) > 0 {
			t.Errorf("waits for %v", w)
		}
		must(t, c.RemoveInformer(t.Context(), &corev1.ConfigMap{}))
		_, err := c.GetInformer(t.Context(), &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
		must(t, err)
		if w := follow.Of(m, follow.WaitUntilRead).Waiting(); len(w) > 0 {
			t.Errorf("an informer was made after the end, and the cache waits for %v", w)
		}
	})
}

// A kind that the mapper takes for removed, and of which no live read shows that, does not become absent, until one
// does.
func TestRemovalThatIsNotConfirmed(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newChangingServer(t, inNamespaces)
		c, m := s.unstarted(t, optional(cache.Options{}))
		_, err := c.GetInformer(t.Context(), &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
		must(t, err)
		s.changeScope(t, m, "")
		heal := s.SetFault(fakeapi.Discovery(), fakeapi.Status(503, 0))
		start(t, c)
		time.Sleep(time.Minute)
		if w := follow.Of(m, follow.WaitUntilRead).Waiting(); len(w) > 0 {
			t.Errorf("discovery cannot be read, and the cache waits for %v", w)
		}
		heal()
		time.Sleep(time.Minute)
		if w := follow.Of(m, follow.WaitUntilRead).Waiting(); len(w) != 1 {
			t.Errorf("waits for %v, want the kind that was removed", w)
		}
	})
}

// Absent kinds of one version and of several are found within 31 seconds, and so is their removal, in each form of
// discovery.
func TestRepresentationsOfAbsentKinds(t *testing.T) {
	for name, forms := range map[string]fakeapi.Forms{"aggregated": fakeapi.Aggregated(), "legacy": fakeapi.Legacy(),
		"v2beta1": fakeapi.V2Beta1Only()} {
		for _, several := range []bool{false, true} {
			for _, withDoc := range []bool{false, true} {
				bubble(t, fmt.Sprint(name, several, withDoc), func(t *testing.T) {
					s := newChangingServer(t, inNamespaces)
					forms.NoWatchList = strings.Contains(t.Name(), listMode)
					s.SetForms(forms)
					opts := cache.Options{ByObject: map[client.Object]cache.ByObject{}}
					var absent []client.Object
					kinds := []schema.GroupVersionKind{{Group: "a.example.com", Version: "v1", Kind: "Widget"}}
					if several {
						kinds = append(kinds, schema.GroupVersionKind{Group: "b.example.com", Version: "v1",
							Kind: "Widget"}, schema.GroupVersionKind{Group: "a.example.com", Version: "v2",
							Kind: "Widget"})
					}
					for _, gvk := range kinds {
						obj := &metav1.PartialObjectMetadata{}
						obj.SetGroupVersionKind(gvk)
						opts.ByObject[obj] = cache.ByObject{}
						absent = append(absent, obj)
					}
					c, m := s.caching(t, opts)
					if withDoc {
						must(t, m.Refresh(t.Context()))
					}
					var hs []*tally
					for _, obj := range absent {
						inf, err := c.GetInformer(t.Context(), obj)
						must(t, err)
						h := &tally{}
						hs = append(hs, h)
						_, err = inf.AddEventHandler(h)
						must(t, err)
					}
					time.Sleep(5*time.Minute + 7*time.Second)
					widget := fakeapi.Resource{Name: "widgets", Kind: "Widget", Namespaced: true,
						Objects: []fakeapi.Object{{Namespace: "ns", Name: "n", UID: "1"}}}
					for i, gvk := range kinds {
						s.PutVersion(gvk.Group, fakeapi.Version{Name: gvk.Version,
							Resources: []fakeapi.Resource{widget}})
						_, _ = s.take()
						time.Sleep(31 * time.Second)
						_, reads := s.take()
						if hs[i].keys() != "ns/n" {
							t.Errorf("%v not found within 31 s, %d reads", gvk, reads)
						}
					}
					for i, gvk := range kinds {
						s.RemoveVersion(gvk.Group, gvk.Version)
						s.EndWatches()
						time.Sleep(31 * time.Second)
						if hs[i].keys() != "" {
							t.Errorf("%v not gone within 31 s", gvk)
						}
					}
				})
			}
		}
	}
}

// Two caches of one mapper share what they ask, whenever each of them began.
func TestTwoCachesOneMapper(t *testing.T) {
	for phase := time.Second; phase < 30*time.Second; phase += 4 * time.Second {
		virtual(t, func(t *testing.T) {
			s := newChangingServer(t, "")
			a, m := s.caching(t, optional(cache.Options{}))
			opts := optional(cache.Options{})
			opts.Mapper = m
			time.Sleep(phase)
			b, _ := s.caching(t, opts)
			ha, hb := &tally{}, &tally{}
			handle(t, a, "typed", ha)
			time.Sleep(phase)
			handle(t, b, "metadata", hb)
			time.Sleep(time.Minute)
			_, _ = s.take()
			time.Sleep(10 * time.Minute)
			if sent, reads := s.take(); len(sent) > 0 || reads > 20 {
				t.Errorf("phase %v: %d reads, %q", phase, reads, sent)
			}
			s.change(func() { s.scope = inNamespaces })
			time.Sleep(31 * time.Second)
			if ha.keys() != keysOf[inNamespaces] || hb.keys() != keysOf[inNamespaces] {
				t.Errorf("phase %v: %q %q", phase, ha.keys(), hb.keys())
			}
		})
	}
}

// Two API servers disagree for a while about whether a kind is served. Once they agree, all handlers have what there
// is.
func TestReplicas(t *testing.T) {
	for _, scopes := range [][2]string{{"", inNamespaces}, {"", ofCluster}, {inNamespaces, ""}} {
		bubble(t, fmt.Sprint(scopes), func(t *testing.T) {
			a, b := newChangingServer(t, scopes[0]), newChangingServer(t, scopes[0])
			opts := optional(cache.Options{})
			hc := *a.Client()
			hc.Transport = fakeapi.RoundRobin(a.Server, b.Server)
			opts.HTTPClient = &hc
			m, err := apiutil.NewDynamicRESTMapper(a.Config(), opts.HTTPClient)
			must(t, err)
			opts.Mapper = m
			c, _ := a.caching(t, opts)
			hs := []*tally{{}, {}, {}}
			for i, representation := range representations {
				handle(t, c, representation, hs[i])
			}
			time.Sleep(time.Minute)
			a.change(func() { a.scope = scopes[1] })
			a.EndWatches()
			time.Sleep(20 * time.Second)
			b.change(func() { b.scope = scopes[1] })
			b.EndWatches()
			time.Sleep(time.Minute)
			for _, h := range hs {
				h.expect(t, "both", keysOf[scopes[1]])
			}
		})
	}
}

// A cache waits with a mapper that wraps ours, too.
func TestWrappedMapper(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newChangingServer(t, "")
		m := s.mapper(t, apiutil.DynamicRESTMapperOptions{})
		opts := optional(cache.Options{})
		opts.Mapper = unwrappingMapper{unwrappingMapper{m}}
		c, _ := s.caching(t, opts)
		h := &tally{}
		handle(t, c, "typed", h)
		_, _ = s.take()
		time.Sleep(10 * time.Minute)
		if sent, reads := s.take(); len(sent) > 0 || reads > 20 {
			t.Errorf("%d reads, %q", reads, sent)
		}
		for _, scope := range []string{inNamespaces, "", ofCluster, "", inNamespaces, ofCluster} {
			s.change(func() { s.scope = scope })
			s.EndWatches()
			h.expect(t, scope, keysOf[scope])
		}
	})
}

// A read of an absent kind without an informer is NoMatch, and finds the kind as soon as it is served.
func TestReadsWithoutInformer(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newChangingServer(t, "")
		opts := optional(cache.Options{})
		opts.ReaderFailOnMissingInformer = true
		c, m := s.caching(t, opts)
		err := c.List(t.Context(), &corev1.ConfigMapList{})
		var notCached *cache.ErrResourceNotCached
		if !errors.As(err, &notCached) {
			t.Errorf("got %v", err)
		}
		one, err := newClient(s.Config(), client.Options{HTTPClient: s.Client(), Mapper: m,
			Cache: &client.CacheOptions{Reader: c, Unstructured: true}})
		must(t, err)
		h := &tally{}
		handle(t, c, "typed", h)
		for _, representation := range representations {
			err := one.List(t.Context(), caller{representation, configMap}.list())
			if !meta.IsNoMatchError(err) {
				t.Errorf("%s: %v", representation, err)
			}
			err = one.Get(t.Context(), client.ObjectKey{Name: "n"}, caller{representation, configMap}.object("", ""))
			if !meta.IsNoMatchError(err) {
				t.Errorf("%s: %v", representation, err)
			}
		}
		s.change(func() { s.scope = inNamespaces })
		h.expect(t, "there", keysOf[inNamespaces])
		must(t, one.List(t.Context(), &corev1.ConfigMapList{}))
		s.change(func() { s.scope = "" })
		s.EndWatches()
		h.expect(t, "gone", "")
		if err := one.List(t.Context(), &corev1.ConfigMapList{}); !meta.IsNoMatchError(err) {
			t.Errorf("gone: %v", err)
		}
	})
}

// A kind that may not be listed is removed, installed again, and may be listed then.
func TestForbiddenAndRemoved(t *testing.T) {
	for name, opts := range map[string]cache.Options{"all": {}, "several": several()} {
		bubble(t, name, func(t *testing.T) {
			s := newChangingServer(t, inNamespaces)
			c, m := s.caching(t, optional(opts))
			ns := ""
			if name == "several" {
				ns = "other"
			}
			allow := s.SetFault(fakeapi.Objects(ns, "list", "watch"), fakeapi.Status(403, 0))
			hs := []*tally{{}, {}, {}}
			handle(t, c, "typed", hs[0])
			time.Sleep(time.Minute)
			handle(t, c, "metadata", hs[1])
			for _, scope := range []string{"", inNamespaces, "", inNamespaces, ""} {
				s.change(func() { s.scope = scope })
				time.Sleep(70 * time.Second)
				why := follow.Of(m, follow.WaitUntilRead).Waiting()[configMap]
				if meta.IsNoMatchError(why) != (scope == "") || why == nil {
					t.Errorf("%q: waits because %v", scope, why)
				}
				err := c.List(t.Context(), &corev1.ConfigMapList{})
				if meta.IsNoMatchError(err) != (scope == "") || err == nil {
					t.Errorf("%q: List %v", scope, err)
				}
			}
			allow()
			s.change(func() { s.scope = inNamespaces })
			time.Sleep(31 * time.Second)
			handle(t, c, "unstructured", hs[2])
			for _, h := range hs {
				h.expect(t, "in the end", keysOf[inNamespaces])
			}
			if w := follow.Of(m, follow.WaitUntilRead).Waiting(); len(w) > 0 {
				t.Errorf("waits for %v", w)
			}
		})
	}
}

// An initial watch may end before its bookmark, or hang: the objects come all the same.
func TestHalfAStream(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newChangingServer(t, "")
		c, m := s.caching(t, optional(cache.Options{}))
		h := &tally{}
		handle(t, c, "typed", h)
		heal := s.SetFault(fakeapi.Lists(""), fakeapi.ResetMidBody())
		s.changeScope(t, m, inNamespaces)
		time.Sleep(2 * time.Minute)
		heal()
		h.expect(t, "healed", keysOf[inNamespaces])
		time.Sleep(5 * time.Second) // after a watch of less than a second client-go lists
		heal = s.SetFault(fakeapi.Lists(""), fakeapi.Timeout())
		s.change(func() { s.scope = "" })
		s.EndWatches()
		h.expect(t, "removed while lists hang", "")
		s.changeScope(t, m, ofCluster)
		time.Sleep(2 * time.Minute)
		s.changeScope(t, m, "")
		time.Sleep(time.Minute)
		heal()
		s.changeScope(t, m, ofCluster)
		h.expect(t, "again", keysOf[ofCluster])
	})
}

// A kind that may be listed at first, and then no longer, is not quiet: client-go's error is logged, as in any cache.
func TestKindThatBecomesForbiddenIsLogged(t *testing.T) {
	before := utilruntime.ErrorHandlers
	t.Cleanup(func() { utilruntime.ErrorHandlers = before })
	var forbidden atomic.Int32
	utilruntime.ErrorHandlers = append(slices.Clone(before), func(_ context.Context, err error, _ string, _ ...any) {
		if apierrors.IsForbidden(err) { // before v0.34 client-go does not wrap it
			forbidden.Add(1)
		}
	})
	virtual(t, func(t *testing.T) {
		s, h := newChangingServer(t, inNamespaces), &tally{}
		c, _ := s.caching(t, optional(cache.Options{}))
		handle(t, c, "typed", h)
		h.expect(t, "at first", keysOf[inNamespaces])
		forbidden.Store(0)
		s.SetFault(fakeapi.Objects("", "list", "watch"), fakeapi.Status(403, 0))
		s.EndWatches()
		time.Sleep(time.Minute)
		if forbidden.Load() == 0 {
			t.Error("a kind that was listed is forbidden, and no error is logged")
		}
	})
}
