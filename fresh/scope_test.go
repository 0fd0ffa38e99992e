// SPDX-License-Identifier: Apache-2.0

package fresh_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/freshmapper/freshmapper/apiutil"
)

// behind answers discovery, while it lies, as an API server does that has not noticed that ConfigMaps are in
// namespaces.
type behind struct{ lies *atomic.Bool }

func (b behind) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err == nil && b.lies.Load() && req.URL.Path == "/api/v1" {
		body, _ := io.ReadAll(resp.Body)
		text := strings.Replace(string(body), `"singularName":"configmap","namespaced":true`, `"singularName":"configmap","namespaced":false`, 1)
		resp.Body, resp.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
		resp.Header.Del("Content-Length")
	}
	return resp, err
}

// What is listed or watched for a namespace, live or from a cache, is never what is in others, also while
// discovery is behind: that is an error then.
func TestReadsOfANamespaceWhileDiscoveryIsBehind(t *testing.T) {
	ctx := context.Background()
	for _, sort := range sorts {
		s, list := newMovingServer(t, ofCluster), caller{sort, configMap}.list()
		lies := &atomic.Bool{}
		m, err := apiutil.NewDynamicRESTMapperWithOptions(s.config(), &http.Client{Transport: behind{lies}}, apiutil.DynamicRESTMapperOptions{})
		must(t, err)
		c, err := newWithWatch(s.config(), client.Options{HTTPClient: s.Client(), Mapper: m})
		must(t, err)
		cached, err := newCache(s.config(), cache.Options{HTTPClient: s.Client(), Mapper: m, DefaultNamespaces: map[string]cache.Config{"ns": {}}})
		must(t, err)
		start(t, cached)
		must(t, c.List(ctx, list))
		lies.Store(true)
		s.change(func() { s.scope = inNamespaces })
		one := list.DeepCopyObject().(client.ObjectList)
		for name, err := range map[string]error{
			"by option": c.List(ctx, list, client.InNamespace("ns")), "by client": newNamespaced(c, "ns").List(ctx, one),
		} {
			if err == nil {
				t.Errorf("%s, %s: no error", sort, name)
			}
		}
		watching, err := c.Watch(ctx, list, client.InNamespace("ns"))
		must(t, err)
		s.change(func() { s.watched = s.object("other", "n") })
		if event := <-watching.ResultChan(); event.Type != watch.Error {
			t.Errorf("%s: the watch of a namespace tells %v", sort, event)
		}
		if event, more := <-watching.ResultChan(); more {
			t.Errorf("%s: and then %v", sort, event)
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		if err := cached.List(short, list); err == nil && meta.LenList(list) > 0 {
			t.Errorf("%s: the cache of a namespace has %d objects", sort, meta.LenList(list))
		}
		cancel()
	}
}

// A client for a namespace reads the whole old set of it from a cache, or the whole new one, while the mapper knows
// the other scope already.
func TestCachedListOfANamespaceDuringAMove(t *testing.T) {
	ctx := context.Background()
	for _, scopes := range [][]string{{inNamespaces, ofCluster}, {ofCluster, inNamespaces}} {
		s := newMovingServer(t, scopes[0])
		cached, m := s.caching(t, cache.Options{})
		c, err := newClient(s.config(), client.Options{HTTPClient: s.Client(), Mapper: m, Cache: &client.CacheOptions{Reader: cached}})
		must(t, err)
		list, old, lists := &corev1.ConfigMapList{}, map[string]string{inNamespaces: "ns"}[scopes[0]], 0
		must(t, newNamespaced(c, "ns").List(ctx, list))
		s.change(func() { s.slow = 300 * time.Millisecond })
		s.move(t, m, scopes[1])
		eventually(t, "the new set", func() bool {
			must(t, newNamespaced(c, "ns").List(ctx, list))
			must(t, newNamespaced(c, "ns").Get(ctx, client.ObjectKey{Name: "n"}, &corev1.ConfigMap{}))
			lists++
			if len(list.Items) != 1 {
				t.Fatalf("%v: %d objects", scopes, len(list.Items))
			}
			return list.Items[0].Namespace != old
		})
		if lists < 3 {
			t.Errorf("%v: the move was over after %d lists", scopes, lists)
		}
	}
}

// later is a mapper that says that ConfigMaps are cluster-wide, from its nth lookup on.
type later struct {
	honest
	lookups, n atomic.Int32
}

func (m *later) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	mapping, err := m.honest.RESTMapping(gk, versions...)
	if n := m.n.Load(); err == nil && n > 0 && m.lookups.Add(1) >= n {
		mapping.Scope = meta.RESTScopeRoot
	}
	return mapping, err
}

// No write for a namespace reaches a kind that has become cluster-wide: not the second try of one, not through two
// clients for namespaces, and not a DeleteAllOf whose object or selector names the namespace.
func TestWritesForANamespace(t *testing.T) {
	ctx := context.Background()
	refused := func(what string, s *movingServer, err error) {
		t.Helper()
		if sent := s.clusterWide(); len(sent) > 0 {
			t.Errorf("%s: %v after %q", what, err, sent)
		}
	}
	for what, write := range (caller{"unstructured", configMap}).requests() {
		if isRead(what) || what == "DeleteAllOf" {
			continue
		}
		for n := range int32(4) {
			s, mapper := newMovingServer(t, inNamespaces), &later{}
			c := s.client(t, func(m meta.RESTMapper) meta.RESTMapper { mapper.honest = honest{m}; return mapper })
			must(t, write(c, "ns", "n"))
			s.change(func() { s.plural = "gizmos" })
			mapper.n.Store(n + 1)
			_, _ = s.take()
			refused(what, s, write(c, "ns", "n"))
		}
		if strings.HasPrefix(what, "Namespaced.") {
			continue
		}
		s := newMovingServer(t, inNamespaces)
		c := s.client(t, bare)
		must(t, write(c, "ns", "n"))
		s.move(t, c.RESTMapper().(*apiutil.DynamicRESTMapper), ofCluster)
		_, _ = s.take()
		refused(what+", through two", s, write(newNamespaced(newNamespaced(c, ""), "ns"), "", "n"))
		refused("the object names it", s, c.DeleteAllOf(ctx, caller{"typed", configMap}.object("ns", "")))
		refused("the selector names it", s, c.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.MatchingFields{"metadata.namespace": "ns"}))
	}
}

// A read of a kind that is gone returns nothing of the kind that has its resource now.
func TestReadOfAKindThatIsReplaced(t *testing.T) {
	for _, sort := range sorts {
		s := newMovingServer(t, inNamespaces)
		c, get := s.client(t, bare), caller{sort, configMap}.requests()["Get"]
		must(t, get(c, "ns", "n"))
		s.change(func() { s.kind = "Another" })
		must(t, c.RESTMapper().(*apiutil.DynamicRESTMapper).Refresh(context.Background(), ""))
		if err := get(c, "ns", "n"); err == nil {
			t.Errorf("%s: no error", sort)
		}
	}
}

// A namespace that the client for one puts into the context counts for that request, and not for what a wrapper of
// the program asks for meanwhile.
func TestNamespaceOfTheContext(t *testing.T) {
	s := newMovingServer(t, inNamespaces)
	cached, m := s.caching(t, cache.Options{})
	for name, options := range map[string]*client.CacheOptions{"cached": {Reader: cached}, "live": nil} {
		c, err := newWithWatch(s.config(), client.Options{HTTPClient: s.Client(), Mapper: m, Cache: options})
		must(t, err)
		other, all := &corev1.ConfigMapList{}, &corev1.ConfigMapList{}
		around := interceptor.NewClient(c, interceptor.Funcs{Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			must(t, errors.Join(inner.List(ctx, other, client.InNamespace("other")), inner.List(ctx, all)))
			return inner.Get(ctx, key, obj, opts...)
		}})
		must(t, newNamespaced(around, "ns").Get(context.Background(), client.ObjectKey{Name: "n"}, &corev1.ConfigMap{}))
		if len(other.Items) != 1 || other.Items[0].Namespace != "other" || len(all.Items) != 2 {
			t.Errorf("%s: %d objects in the other namespace, %d in all", name, len(other.Items), len(all.Items))
		}
	}
}

// Who waits for a kind that can't be listed ends when its informer is removed, and makes no other one.
func TestRemovedWhileItIsAwaited(t *testing.T) {
	for name, await := range map[string]func(cache.Cache) error{
		"read": func(c cache.Cache) error {
			return c.Get(context.Background(), client.ObjectKey{Namespace: "ns", Name: "n"}, &corev1.ConfigMap{})
		},
		"informer": func(c cache.Cache) error {
			_, err := c.GetInformer(context.Background(), &corev1.ConfigMap{})
			return err
		},
	} {
		s := newMovingServer(t, inNamespaces)
		s.change(func() { s.refuses["list"] = http.StatusForbidden })
		c, _ := s.caching(t, cache.Options{})
		ended := make(chan error, 1)
		go func() { ended <- await(c) }()
		eventually(t, "a list", s.asked)
		must(t, c.RemoveInformer(context.Background(), &corev1.ConfigMap{}))
		if err := <-ended; !apierrors.IsTimeout(err) || !strings.Contains(err.Error(), "removed") {
			t.Errorf("%s: %v", name, err)
		}
		time.Sleep(100 * time.Millisecond)
		_, _ = s.take()
		time.Sleep(2 * time.Second)
		if sent, _ := s.take(); len(sent) > 0 {
			t.Errorf("%s: sent %q after it was removed", name, sent)
		}
	}
}

// asked reports whether there was a request for objects since the last call.
func (s *movingServer) asked() bool {
	sent, _ := s.take()
	return len(sent) > 0
}
