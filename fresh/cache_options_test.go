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
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// While the new path cannot be listed, the cache keeps what it had. One line says so, and the cache recovers.
func TestPathThatCannotBeListed(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newChangingServer(t, inNamespaces)
		c, m := s.caching(t, cache.Options{})
		eventually(t, "the object", func() bool { return has(c, "ns") })
		heal := s.SetFault(fakeapi.Lists(""), fakeapi.Text(403, "refused"))
		_ = logged.take()
		s.changeScope(t, m, ofCluster)
		time.Sleep(time.Minute)
		if lines := logged.take("cannot follow"); len(lines) != 1 || !strings.Contains(lines[0], "ConfigMap") ||
			!strings.Contains(lines[0], "refused") || !has(c, "ns") || has(c, "") {
			t.Errorf("logged %q, want one line with the kind and the reason; has the old object: %t, the new one: %t",
				lines, has(c, "ns"), has(c, ""))
		}
		heal()
		eventually(t, "it heals", func() bool { return has(c, "") })
	})
}

// A kind that cannot be listed holds up no other kind. A caller that waits for it gets the reason, also if its
// informer is removed meanwhile, which waits for nothing. Only callers that wait make another one.
func TestKindThatCannotBeListed(t *testing.T) {
	for name, await := range map[string]func(context.Context, cache.Cache) error{
		"read": func(ctx context.Context, c cache.Cache) error {
			return c.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "n"}, &corev1.ConfigMap{})
		},
		"informer": func(ctx context.Context, c cache.Cache) error {
			_, err := c.GetInformer(ctx, &corev1.ConfigMap{})
			return err
		},
	} {
		bubble(t, name, func(t *testing.T) {
			s := newChangingServer(t, inNamespaces)
			c, _ := s.caching(t, cache.Options{})
			s.SetFault(fakeapi.At("/api/v1/configmaps"), fakeapi.Text(403, "refused"))
			other := func() {
				if began := time.Now(); c.List(t.Context(), &corev1.SecretList{}) != nil || time.Since(began) > 0 {
					t.Errorf("another kind took %v", time.Since(began))
				}
			}
			must(t, c.List(t.Context(), &corev1.SecretList{}))
			for _, isRemoved := range []bool{false, true} {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				ended := make(chan error, 1)
				go func() { ended <- await(ctx, c) }()
				time.Sleep(time.Second)
				other()
				if isRemoved {
					began := time.Now()
					if must(t, c.RemoveInformer(t.Context(), &corev1.ConfigMap{})); time.Since(began) > 0 {
						t.Errorf("to remove the informer took %v", time.Since(began))
					}
				}
				if err := <-ended; !apierrors.IsTimeout(err) || !strings.Contains(err.Error(), "refused") {
					t.Errorf("who waited got %v, want a timeout that says why (removed: %v)", err, isRemoved)
				}
			}
			must(t, c.RemoveInformer(t.Context(), &corev1.ConfigMap{}))
			synctest.Wait()
			_, _ = s.take()
			time.Sleep(time.Hour)
			if sent, _ := s.take(); len(sent) > 0 {
				t.Errorf("sent %q after its informer was removed", sent)
			}
		})
	}
}

// Where one of several namespaces can't be listed, events of the others go on, also after a switch. A switch to a
// path where fewer can be listed than before waits until it can.
func TestNamespaceThatCannotBeListed(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s, h := newChangingServer(t, inNamespaces), &tally{}
		c, m := s.caching(t, several())
		handle(t, c, "typed", h)
		h.expect(t, "at first", "ns/n other/n")
		heal := s.SetFault(fakeapi.Objects("other"), fakeapi.Text(403, "refused"))
		s.changeScope(t, m, ofCluster)
		h.expect(t, "cluster-scoped", "n")
		late := s.SetFault(fakeapi.Objects("ns"), fakeapi.Late(5*time.Second))
		s.changeScope(t, m, inNamespaces)
		if time.Sleep(3 * time.Second); !has(c, "") {
			t.Error("the cache has switched before the list of a namespace has come")
		}
		late()
		h.expect(t, "back, except for the other namespace", "ns/n")
		heal()
		h.expect(t, "in the end", "ns/n other/n")
		heal = s.SetFault(fakeapi.Objects("ns"), fakeapi.Text(403, "refused"))
		s.change(func() { s.plural, s.uid = "gizmos", "2" })
		must(t, m.Refresh(t.Context(), ""))
		_ = h.takeLog()
		time.Sleep(10 * time.Second)
		if log := h.takeLog(); len(log) > 0 {
			t.Errorf("fewer namespaces can be listed than before, and it switches: delivered %q", log)
		}
		heal()
		time.Sleep(2 * time.Minute)
		h.expect(t, "others of the same names", "ns/n other/n")
		if log := h.takeLog(); len(log) != 4 {
			t.Errorf("told %q, want two deletes and two adds", log)
		}
	})
}

// Kinds of options may come late, in whatever scope. One with namespaces of its own does not follow to the cluster,
// which is logged once, and the kind is found when it is served again.
func TestByObject(t *testing.T) {
	options := func() cache.Options {
		by := cache.ByObject{Namespaces: map[string]cache.Config{"ns": {}}}
		return cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: by}}
	}
	for scope, path := range map[string]string{inNamespaces: "/api/v1/namespaces/ns/configmaps",
		ofCluster: "/api/v1/configmaps"} {
		bubble(t, "late, "+scope, func(t *testing.T) {
			s := newChangingServer(t, "")
			c, m := s.caching(t, options())
			err := c.Get(t.Context(), client.ObjectKey{Name: "n"}, &corev1.ConfigMap{})
			if _, none := c.GetInformerForKind(t.Context(), configMap); !meta.IsNoMatchError(err) || none != nil {
				t.Errorf("before it is installed: a read got %v and an informer %v, want NoMatch and none", err, none)
			}
			_, _ = s.take()
			s.changeScope(t, m, scope)
			eventually(t, "the object", func() bool { return has(c, map[string]string{inNamespaces: "ns"}[scope]) })
			if sent, _ := s.take(); !slices.Equal(slices.Compact(sent), []string{"GET " + path}) {
				t.Errorf("sent %q, want lists and watches of %s", sent, path)
			}
		})
	}
	bubble(t, "there and back", func(t *testing.T) {
		s := newChangingServer(t, inNamespaces)
		m := s.mapper(t, apiutil.DynamicRESTMapperOptions{})
		counted, opts := outdatedMapper{unwrappingMapper{m}, &atomic.Int32{},
			func(int32) bool { return false }}, options()
		opts.Mapper = counted
		heal := s.SetFault(fakeapi.Discovery(), fakeapi.Status(503, 0))
		if _, err := newCache(s.Config(), cache.Options{HTTPClient: s.Client(),
			ByObject: opts.ByObject}); err == nil || meta.IsNoMatchError(err) {
			t.Errorf("made in an outage: %v, want the server's error", err)
		}
		heal()
		c, _ := s.caching(t, opts)
		eventually(t, "the object", func() bool { return has(c, "ns") })
		before, _ := counted.lookups.Load(), logged.take()
		s.changeScope(t, m, ofCluster)
		time.Sleep(time.Minute)
		if tries := counted.lookups.Load() - before; tries > 40 {
			t.Errorf(
				"%d lookups in a minute, want at most 40: six tries, with 1 to 30 seconds between them, and those of the reflector",
				tries)
		}
		if lines := logged.take("cannot follow"); len(lines) != 1 || !strings.Contains(lines[0], "ConfigMap") ||
			!strings.Contains(lines[0], "Namespaces") || !has(c, "ns") {
			t.Errorf("logged %q, want one line with the kind and the option; has the old object: %t", lines,
				has(c, "ns"))
		}
		s.changeScope(t, m, inNamespaces)
		eventually(t, "the object is there", func() bool { return has(c, "ns") })
	})
}

// The options of all namespaces in an entry of ByObject apply to a kind that becomes cluster-scoped: it has the new
// objects and none of the old. What they leave out is that of the entry.
func TestByObjectOfAllNamespaces(t *testing.T) {
	for want, transform := range map[string]toolscache.TransformFunc{
		"of the kind":       nil,
		"of all namespaces": annotate("of all namespaces"),
	} {
		bubble(t, "transform "+want, func(t *testing.T) {
			s, h := newChangingServer(t, inNamespaces), &tally{}
			var selected atomic.Int32
			noCopy := true
			c, m := s.caching(t, cache.Options{
				HTTPClient: &http.Client{Transport: fakeapi.Balancer(func(req *http.Request) *fakeapi.Server {
					if query := req.URL.Query(); query.Get("labelSelector") == "a=b" && query.Get("fieldSelector") == "c=d" {
						selected.Add(1)
					}
					return s.Server
				})},
				ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {
					Transform: annotate("of the kind"),
					Namespaces: map[string]cache.Config{cache.AllNamespaces: {
						LabelSelector:         labels.SelectorFromSet(labels.Set{"a": "b"}),
						FieldSelector:         fields.OneTermEqualSelector("c", "d"),
						Transform:             transform,
						UnsafeDisableDeepCopy: &noCopy,
					}},
				}},
			})
			handle(t, c, "typed", h)
			for n, scope := range []string{inNamespaces, ofCluster, inNamespaces} {
				selected.Store(0)
				s.changeScope(t, m, scope)
				h.expect(t, fmt.Sprint("step ", n), keysOf[scope])
				if n > 0 && selected.Load() == 0 {
					t.Errorf("%s: no request has the selectors", scope)
				}
				for _, annotation := range []string{want, "of the caller"} { // nothing is copied, so the caller changes the cache
					list := &corev1.ConfigMapList{}
					must(t, c.List(t.Context(), list))
					for _, item := range list.Items {
						if item.Annotations["set"] != annotation {
							t.Errorf("%s: annotations %v, want that of the transform %s", scope, item.Annotations, annotation)
						}
						item.Annotations["set"] = "of the caller"
					}
				}
			}
		})
	}
}

// After a kind has switched, one of several API servers may still be behind, and answer the document and the list. A
// third proof is asked for then, a live read of the version, and the cache does not switch back.
func TestReplicaThatIsBehind(t *testing.T) {
	virtual(t, func(t *testing.T) {
		ahead, behind, h := newChangingServer(t, inNamespaces), newChangingServer(t, inNamespaces), &tally{}
		var lags atomic.Bool
		transport := fakeapi.Balancer(func(req *http.Request) *fakeapi.Server {
			if lags.Load() && req.URL.Path != "/api/v1" {
				return behind.Server
			}
			return ahead.Server
		})
		ahead.SetForms(fakeapi.Aggregated())
		behind.SetForms(fakeapi.Aggregated())
		m, err := apiutil.NewDynamicRESTMapperWithOptions(ahead.Config(), &http.Client{Transport: transport},
			apiutil.DynamicRESTMapperOptions{})
		must(t, err)
		c, _ := ahead.caching(t, cache.Options{Mapper: m, HTTPClient: &http.Client{Transport: transport}})
		handle(t, c, "typed", h)
		h.expect(t, "at first", keysOf[inNamespaces])
		ahead.change(func() { ahead.plural = "gizmos" })
		must(t, m.Refresh(t.Context()))
		time.Sleep(5 * time.Second)
		behind.change(func() { behind.names = []string{"old"} })
		lags.Store(true)
		must(t, m.Refresh(t.Context()))
		time.Sleep(5 * time.Second)
		if keys := h.keys(); keys != keysOf[inNamespaces] {
			t.Errorf("the handler has %q, which a replica that is behind has listed", keys)
		}
	})
}

// Selectors, transforms and informers of the program's own stay. The store of what has switched is emptied.
func TestOptionsOfTheCache(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newChangingServer(t, inNamespaces)
		var made []toolscache.SharedIndexInformer
		var selected atomic.Int32
		c, m := s.caching(t, cache.Options{
			HTTPClient: &http.Client{Transport: fakeapi.Balancer(func(req *http.Request) *fakeapi.Server {
				if req.URL.Query().Get("labelSelector") == "a=b" {
					selected.Add(1)
				}
				return s.Server
			})},
			ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {
				Label: labels.SelectorFromSet(labels.Set{"a": "b"}), Transform: func(obj any) (any, error) {
					obj.(client.Object).SetAnnotations(map[string]string{"transformed": "yes"})
					return obj, nil
				}}},
			NewInformer: func(lw toolscache.ListerWatcher, obj kruntime.Object, resync time.Duration,
				x toolscache.Indexers) toolscache.SharedIndexInformer {
				made = append(made, toolscache.NewSharedIndexInformer(lw, obj, resync, x))
				return made[len(made)-1]
			},
		})
		eventually(t, "the object", func() bool { return has(c, "ns") })
		before := selected.Load()
		s.changeScope(t, m, ofCluster)
		got := &corev1.ConfigMap{}
		eventually(t, "the cache follows",
			func() bool { return c.Get(t.Context(), client.ObjectKey{Name: "n"}, got) == nil })
		time.Sleep(time.Minute)
		if got.Annotations["transformed"] != "yes" || len(made) != 2 || before == 0 || selected.Load() == before {
			t.Errorf(
				"annotations %v, want that of the transform; %d informers, want 2; %d and then %d requests with the selector",
				got.Annotations, len(made), before, selected.Load())
		}
		if old := made[0].GetStore().List(); len(old) > 0 {
			t.Errorf("the old store has %d objects, want none", len(old))
		}
	})
}

// An index does not hold up a switch: neither the context that it was added with, nor a path that cannot be listed,
// though the informers of the next instance are made after it has started.
func TestSwitchWithAnIndex(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s, h := newChangingServer(t, inNamespaces), &tally{}
		c, m := s.caching(t, cache.Options{NewInformer: func(lw toolscache.ListerWatcher, obj kruntime.Object,
			d time.Duration, x toolscache.Indexers) toolscache.SharedIndexInformer {
			for range 30000 {
				runtime.Gosched()
			}
			return toolscache.NewSharedIndexInformer(lw, obj, d, x)
		}})
		ctx, cancel := context.WithCancel(t.Context())
		must(t, c.IndexField(ctx, &corev1.ConfigMap{}, "name",
			func(obj client.Object) []string { return []string{obj.GetName()} }))
		handle(t, c, "metadata", &tally{})
		handle(t, c, "typed", h)
		cancel()
		s.changeScope(t, m, ofCluster)
		h.expect(t, "switched", keysOf[ofCluster])
		_ = logged.take()
		s.SetFault(fakeapi.At("/api/v1/gizmos"), fakeapi.Text(403, "refused"))
		s.change(func() { s.plural = "gizmos" })
		must(t, m.Refresh(t.Context(), ""))
		time.Sleep(2 * time.Minute)
		if lines := logged.take("cannot follow"); len(lines) != 1 {
			t.Errorf("logged %q, want one line", lines)
		}
	})
	virtual(t, func(t *testing.T) { // of an informer that is removed during a move, and made anew, no index stays
		s, index := newChangingServer(t, inNamespaces), func(client.Object) []string { return nil }
		c, m := s.caching(t, cache.Options{})
		handle(t, c, "metadata", &tally{})
		must(t, c.IndexField(t.Context(), &corev1.ConfigMap{}, "name", index))
		heal := s.SetFault(fakeapi.Lists(""), fakeapi.Late(3*time.Second))
		s.changeScope(t, m, ofCluster)
		time.Sleep(500 * time.Millisecond) // the next generation has the index, and lists
		must(t, c.RemoveInformer(t.Context(), &corev1.ConfigMap{}))
		_, err := c.GetInformer(t.Context(), &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
		heal()
		eventually(t, "switched", func() bool { return has(c, "") })
		must(t, errors.Join(err, c.IndexField(t.Context(), &corev1.ConfigMap{}, "name", index)))
	})
}

// A Go type may be that of several kinds. Then an object, a list and GetInformerForKind say which kind they are for.
func TestGoTypeOfSeveralKinds(t *testing.T) {
	virtual(t, func(t *testing.T) {
		thing, scheme := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}, kruntime.NewScheme()
		must(t, corev1.AddToScheme(scheme))
		scheme.AddKnownTypeWithName(thing, &corev1.ConfigMap{})
		scheme.AddKnownTypeWithName(thing.GroupVersion().WithKind("ThingList"), &corev1.ConfigMapList{})
		metav1.AddToGroupVersion(scheme, thing.GroupVersion())
		s := newChangingServer(t, inNamespaces)
		s.PutVersion(thing.Group, fakeapi.Version{Name: thing.Version, Resources: []fakeapi.Resource{{
			Name: "things", Kind: "Thing", Namespaced: true, Objects: []fakeapi.Object{{Namespace: "ns", Name: "a", UID: "7"}},
		}}})
		c, _ := s.caching(t, cache.Options{Scheme: scheme})
		want := map[schema.GroupVersionKind]string{configMap: keysOf[inNamespaces], thing: "ns/a"}
		for gvk, keys := range want {
			informer, err := c.GetInformerForKind(t.Context(), gvk)
			must(t, err)
			h := &tally{}
			_, err = informer.AddEventHandler(h)
			must(t, err)
			h.expect(t, gvk.String(), keys)
		}
		for range 2 {
			for gvk, keys := range want {
				list := caller{"typed", gvk}.list().(*corev1.ConfigMapList)
				if must(t, c.List(t.Context(), list)); len(list.Items) != len(strings.Fields(keys)) {
					t.Errorf("a list of %v has %d objects, want %s", gvk, len(list.Items), keys)
				}
			}
		}
		for kind, isUnknown := range map[string]bool{"Unknown": true, "PodExecOptions": false} {
			_, err := c.GetInformerForKind(t.Context(), corev1.SchemeGroupVersion.WithKind(kind))
			if err == nil || kruntime.IsNotRegisteredError(err) != isUnknown {
				t.Errorf("an informer of %s: %v, want an error that says whether the kind is known", kind, err)
			}
		}
	})
}

// An index that an informer has already is an error, and the cache goes on.
func TestIndexThatIsThereAlready(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newChangingServer(t, inNamespaces)
		c, m := s.caching(t, cache.Options{})
		name := func(obj client.Object) []string { return []string{obj.GetName()} }
		must(t, c.IndexField(t.Context(), &corev1.ConfigMap{}, "one", name))
		if err := c.IndexField(t.Context(), &corev1.ConfigMap{}, "one", name); err == nil {
			t.Error("an index was added twice, and there is no error")
		}
		must(t, c.IndexField(t.Context(), &corev1.ConfigMap{}, "two", name))
		s.changeScope(t, m, ofCluster)
		eventually(t, "the cache follows", func() bool { return has(c, "") })
		for _, field := range []string{"one", "two"} {
			list := &corev1.ConfigMapList{}
			if err := c.List(t.Context(), list, client.MatchingFields{field: "n"}); err != nil || len(list.Items) != 1 {
				t.Errorf("by index %q after the switch: %d objects, %v", field, len(list.Items), err)
			}
		}
	})
}

// What the caller changes in its options afterwards does not change the cache, neither for kinds that are named nor for
// others.
func TestOptionsMayBeChangedAfterwards(t *testing.T) {
	for _, isNamed := range []bool{false, true} {
		bubble(t, fmt.Sprintf("named: %t", isNamed), func(t *testing.T) {
			s := newChangingServer(t, inNamespaces)
			var withoutBookmarks atomic.Int32
			namespaces := map[string]cache.Config{"ns": {}, "other": {}}
			noCopy, bookmarks, period := false, true, 100*time.Hour
			var resync time.Duration
			opts := cache.Options{
				HTTPClient: &http.Client{Transport: fakeapi.Balancer(func(req *http.Request) *fakeapi.Server {
					if query := req.URL.Query(); query.Get("watch") != "" && query.Get("allowWatchBookmarks") != "true" {
						withoutBookmarks.Add(1)
					}
					return s.Server
				})},
				NewInformer: func(lw toolscache.ListerWatcher, obj kruntime.Object, d time.Duration,
					x toolscache.Indexers) toolscache.SharedIndexInformer {
					resync = d
					return toolscache.NewSharedIndexInformer(lw, obj, d, x)
				},
				DefaultTransform: annotate("by the transform"),
			}
			if isNamed {
				opts.ByObject = map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {
					Namespaces: namespaces, UnsafeDisableDeepCopy: &noCopy, EnableWatchBookmarks: &bookmarks,
				}}
			} else {
				opts.DefaultNamespaces, opts.SyncPeriod = namespaces, &period
				opts.DefaultUnsafeDisableDeepCopy, opts.DefaultEnableWatchBookmarks = &noCopy, &bookmarks
			}
			c, _ := s.caching(t, opts)
			delete(namespaces, "other")
			noCopy, bookmarks, period = true, false, time.Hour
			list := &corev1.ConfigMapList{}
			if must(t, c.List(t.Context(), list)); len(list.Items) != 2 {
				t.Fatalf("%d objects, want one in each of the two namespaces", len(list.Items))
			}
			list.Items[0].Annotations["set"] = "by the caller"
			again := &corev1.ConfigMapList{}
			must(t, c.List(t.Context(), again))
			for _, item := range again.Items {
				if item.Annotations["set"] != "by the transform" {
					t.Error("a caller that changes what it has read changes the cache")
				}
			}
			if !isNamed && resync < 50*time.Hour {
				t.Errorf("informers resync after %v, want about 100 hours", resync)
			}
			if n := withoutBookmarks.Load(); n > 0 {
				t.Errorf("%d watches without bookmarks", n)
			}
		})
	}
}
