// SPDX-License-Identifier: Apache-2.0

package fresh_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/freshmapper/freshmapper/apiutil"
)

// Nor does a write reach them that names its namespace otherwise: through two clients for namespaces, or in the
// object or the selector of a DeleteAllOf.
func TestWritesThatNameTheirNamespace(t *testing.T) {
	s := newMovingServer(t, inNamespaces)
	c, writes := s.client(t, nil), caller{"unstructured", configMap}.requests()
	must(t, writes["Get"](c, "ns", "n"))
	s.change(func() { s.scope = ofCluster })
	refresh(t, c)
	_ = s.clusterWide()
	two := newNamespaced(newNamespaced(c, ""), "ns")
	writes["the object names it"] = func(client.Client, string, string) error {
		return c.DeleteAllOf(t.Context(), caller{"typed", configMap}.object("ns", ""))
	}
	writes["the selector names it"] = func(client.Client, string, string) error {
		return c.DeleteAllOf(t.Context(), &corev1.ConfigMap{}, client.MatchingFields{"metadata.namespace": "ns"})
	}
	for what, write := range writes {
		if err, sent := write(two, "", "n"), s.clusterWide(); len(sent) > 0 {
			t.Errorf("%s: %v after %q, want nothing sent", what, err, sent)
		}
	}
}

// A write for a namespace is never sent without it: while the kind is known as cluster-scoped, controller-runtime's
// client of a namespace leaves the namespace out, and then the kind may turn out to be namespaced. A second try is
// sent to the namespace.
func TestWritesKeepTheirNamespace(t *testing.T) {
	for _, sort := range sorts {
		for what, write := range (caller{sort, configMap}).requests() {
			if !strings.HasPrefix(what, "Namespaced.") {
				continue
			}
			s := newMovingServer(t, inNamespaces)
			c := s.client(t, nil)
			must(t, c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "n"}, caller{sort, configMap}.object("", "")))
			s.change(func() { s.scope = ofCluster })
			refresh(t, c)
			s.change(func() { s.scope = inNamespaces }) // the mapper has not noticed
			_, _ = s.take()
			err := write(c, "ns", "n")
			sent, _ := s.take()
			if len(sent) > 0 || !apierrors.IsConflict(err) {
				t.Errorf("%s, %s: %v, and sent %q; want a conflict and nothing sent", sort, what, err, sent)
			}
			must(t, write(c, "ns", "n"))
			if sent, _ = s.take(); len(sent) != 1 || !strings.Contains(sent[0], "/namespaces/ns/") {
				t.Errorf("%s, %s: sent %q, want one request for the namespace", sort, what, sent)
			}
		}
	}
}

// A Get of a subresource through a client for a namespace reaches that namespace, as a Get of the object does, also
// if the kind is known as cluster-scoped and has become namespaced.
func TestSubResourceGetKeepsItsNamespace(t *testing.T) {
	for _, sort := range []string{"typed", "unstructured"} {
		s := newMovingServer(t, inNamespaces)
		c := s.client(t, nil)
		s.change(func() { s.scope = ofCluster })
		refresh(t, c)
		calls := caller{sort, configMap}
		must(t, c.Get(t.Context(), client.ObjectKey{Name: "n"}, calls.object("", "")))
		s.change(func() { s.scope = inNamespaces }) // the mapper has not noticed
		_, _ = s.take()
		obj := calls.object("", "n")
		must(t, newNamespaced(c, "ns").SubResource("status").Get(t.Context(), obj, calls.object("", "")))
		sent, _ := s.take()
		if len(sent) == 0 || !strings.Contains(sent[len(sent)-1], "/namespaces/ns/configmaps/n/status") {
			t.Errorf("%s: sent %q, want a last request for the namespace", sort, sent)
		}
		if obj.GetNamespace() != "" {
			t.Errorf("%s: the caller's object has got the namespace %q", sort, obj.GetNamespace())
		}
	}
}

// A namespace that the client for one puts into the context counts for that request, also if what wraps the client
// sends a copy or lists into another list, and not for what it asks for meanwhile.
func TestNamespaceOfTheContext(t *testing.T) {
	s := newMovingServer(t, inNamespaces)
	cached, m := s.caching(t, cache.Options{})
	for name, options := range map[string]*client.CacheOptions{"cached": {Reader: cached}, "live": nil} {
		c, err := newWithWatch(s.Config(), client.Options{HTTPClient: s.Client(), Mapper: m, Cache: options})
		must(t, err)
		other, all := &corev1.ConfigMapList{}, &corev1.ConfigMapList{}
		around := interceptor.NewClient(c, interceptor.Funcs{Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			must(t, errors.Join(inner.List(ctx, other, client.InNamespace("other")), inner.List(ctx, all)))
			return inner.Get(ctx, key, obj, opts...)
		}})
		must(t, newNamespaced(around, "ns").Get(t.Context(), client.ObjectKey{Name: "n"}, &corev1.ConfigMap{}))
		if len(other.Items) != 1 || other.Items[0].Namespace != "other" || len(all.Items) != 2 {
			t.Errorf("%s: %d objects in the other namespace, %d in all", name, len(other.Items), len(all.Items))
		}
		one := newNamespaced(interceptor.NewClient(c, interceptor.Funcs{
			Delete: func(ctx context.Context, inner client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
				return inner.Delete(ctx, obj.DeepCopyObject().(client.Object), opts...)
			},
			List: func(ctx context.Context, inner client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				page := &corev1.ConfigMapList{}
				must(t, inner.List(ctx, other, client.InNamespace("other")))
				err := inner.List(ctx, page, opts...)
				page.DeepCopyInto(list.(*corev1.ConfigMapList))
				return err
			},
		}), "ns")
		s.move(t, m, ofCluster)
		_ = s.clusterWide()
		if err, sent := one.Delete(t.Context(), caller{"typed", configMap}.object("", "n")), s.clusterWide(); err == nil || len(sent) > 0 {
			t.Errorf("%s: %v, and sent %q, want an error and nothing sent", name, err, sent)
		}
		if err := one.Get(t.Context(), client.ObjectKey{Name: "n"}, (*corev1.ConfigMap)(nil)); err == nil {
			t.Error("nothing was read into nil")
		}
		s.change(func() { s.scope = inNamespaces }) // the mapper has not noticed
		list := &corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"}}
		if name == "live" && (one.List(t.Context(), list, client.InNamespace("other")) != nil || len(list.Items) != 1 || list.Items[0].Namespace != "ns") {
			t.Errorf("the list of one namespace has %d objects, want 1", len(list.Items))
		}
		s.move(t, m, inNamespaces)
		eventually(t, "the cache is back", func() bool { return has(cached, "ns") })
		must(t, one.List(t.Context(), list))
		if len(list.Items) != 1 || list.Items[0].Namespace != "ns" || len(other.Items) != 1 || other.Items[0].Namespace != "other" {
			t.Errorf("%s: %d objects in the namespace, %d in the other one", name, len(list.Items), len(other.Items))
		}
	}
}

// A mapper takes a kind in lower case, too: so do clients, and what is known of the kind holds for both.
func TestKindInLowerCase(t *testing.T) {
	for _, sort := range []string{"unstructured", "metadata"} {
		s := newMovingServer(t, inNamespaces)
		m := s.mapper(t, apiutil.DynamicRESTMapperOptions{})
		c := s.client(t, m)
		lower := caller{sort, configMap.GroupVersion().WithKind("configmap")}.object("ns", "n")
		must(t, c.Get(t.Context(), client.ObjectKeyFromObject(lower), lower))
		s.move(t, m, ofCluster)
		_ = s.clusterWide()
		if err, sent := c.Delete(t.Context(), caller{sort, configMap}.object("ns", "n")), s.clusterWide(); err == nil || len(sent) > 0 {
			t.Errorf("%s: %v, and sent %q, want an error and nothing sent", sort, err, sent)
		}
		s.move(t, m, inNamespaces)
		must(t, c.Get(t.Context(), client.ObjectKeyFromObject(lower), caller{sort, configMap}.object("", "")))
		s.change(func() { s.kind = "Configmap" }) // this is another kind
		must(t, m.Refresh(t.Context(), ""))
		_, _ = s.take()
		err := c.Delete(t.Context(), caller{sort, configMap}.object("ns", "n"))
		if sent, _ := s.take(); err == nil || len(sent) > 0 {
			t.Errorf("%s: %v, and sent %q, want an error and nothing sent", sort, err, sent)
		}
	}
}
