// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	freshutil "github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/fresh"
)

// TestScopeChanges holds what docs/scope-changes.md says of a kind that becomes cluster-scoped: what calls that name a
// namespace do with a client of fresh, with a client that only has our RESTMapper, and with either after a restart.
func TestScopeChanges(t *testing.T) {
	t.Parallel()
	server, cfg := startServer(t.Context(), t)
	httpClient, err := rest.HTTPClientFor(cfg)
	must(t, err)
	s := &stock{T: t, server: server, cfg: cfg, http: httpClient, group: "scope.example.com"}
	kind, becomes := s.kind("Widget", "v1"), clusterScoped(s.kind("Widget", "v1"))
	newMapper := func() *freshutil.DynamicRESTMapper {
		mapper, err := freshutil.NewDynamicRESTMapperWithOptions(cfg, httpClient, freshutil.DynamicRESTMapperOptions{})
		must(t, err)
		return mapper
	}
	newFresh := func(mapper meta.RESTMapper) client.Client {
		c, err := fresh.NewClient(cfg, client.Options{HTTPClient: httpClient, Mapper: mapper})
		must(t, err)
		return c
	}
	metadata := func() *metav1.PartialObjectMetadata {
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(kind.gvk())
		object.SetNamespace(metav1.NamespaceDefault)
		object.SetName("one")
		return object
	}
	writes := func(c client.Client) map[string]error {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`))
		return map[string]error{
			"Create":             c.Create(t.Context(), kind.object("default/new")),
			"Patch":              c.Patch(t.Context(), kind.object("default/one"), patch),
			"Delete":             c.Delete(t.Context(), kind.object("default/one")),
			"Delete of metadata": c.Delete(t.Context(), metadata()),
			"DeleteAllOf":        c.DeleteAllOf(t.Context(), kind.object(""), client.InNamespace("default")),
		}
	}
	ensure := func(names ...string) {
		for _, name := range names {
			if !s.exists(becomes, name) {
				s.make(becomes, name)
			}
		}
	}

	s.install(kind)
	s.make(kind, "one")
	followed := newMapper()
	running := newFresh(followed)
	cached, err := fresh.NewCache(cfg, cache.Options{HTTPClient: httpClient, Mapper: followed})
	must(t, err)
	run(t, cached)
	must(t, await(t.Context(), "the cache", func() (bool, error) {
		err := s.get(cached, kind, "default/one")
		return err == nil, err
	}))
	mapper := newMapper()
	alone := s.client(mapper)
	for _, c := range []client.Client{running, alone} {
		must(t, s.get(c, kind, "default/one"), c.List(t.Context(), kind.list()))
	}
	s.replace(kind, becomes)
	ensure("one")

	// A client of fresh refuses each write, and its reads find the cluster-scoped objects.
	for name, err := range writes(running) {
		if !apierrors.IsNotFound(err) {
			t.Errorf("fresh, %s: %v; want NotFound", name, err)
		}
	}
	ensure("new") // nobody made it
	object := kind.object("")
	must(t, running.Get(t.Context(), key("default/one"), object))
	if object.GetNamespace() != "" {
		t.Errorf("fresh, Get: an object of namespace %q; want the cluster-scoped one", object.GetNamespace())
	}
	list := kind.list()
	must(t, running.List(t.Context(), list, client.InNamespace("default")))
	if len(list.Items) != 2 {
		t.Errorf("fresh, List in a namespace: %d objects; want all of the cluster", len(list.Items))
	}
	eventually(t, "a Get in a namespace from the cache finds the cluster-scoped object", func() bool {
		object := kind.object("")
		return cached.Get(t.Context(), key("default/one"), object) == nil && object.GetNamespace() == ""
	})
	must(t, cached.List(t.Context(), list, client.InNamespace("default")))
	if len(list.Items) != 0 {
		t.Errorf("fresh, List in a namespace from the cache: %d objects; want none", len(list.Items))
	}
	nothing := func() error { return nil }
	_, err = controllerutil.CreateOrUpdate(t.Context(), running, kind.object("default/absent"), nothing)
	if !apierrors.IsNotFound(err) {
		t.Errorf("fresh, CreateOrUpdate of what is not there: %v; want NotFound", err)
	}
	_, err = controllerutil.CreateOrUpdate(t.Context(), running, kind.object("default/one"), nothing)
	s.says(err, "cannot mutate object name and/or object namespace")
	namespaced, err := running.IsObjectNamespaced(kind.object(""))
	must(t, err)
	if namespaced {
		t.Error("fresh, IsObjectNamespaced: true; want the new scope")
	}
	must(t, running.Delete(t.Context(), object)) // what was read has no namespace

	// With the RESTMapper alone a client that had the kind keeps the old path. What asks the mapper has the new scope.
	must(t, mapper.Refresh(t.Context()))
	ensure("one", "new")
	for name, err := range writes(alone) {
		if name == "Delete of metadata" {
			must(t, err)
			continue
		}
		s.says(err, "the server could not find the requested resource")
	}
	s.says(s.get(alone, kind, "default/one"), "the server could not find the requested resource")
	s.says(alone.List(t.Context(), kind.list(), client.InNamespace("default")), "the server could not find the requested resource")
	eventually(t, "the end of the object that the request for metadata has deleted", func() bool { return !s.exists(becomes, "one") })
	ensure("one")

	// After a restart nothing is refused.
	for name, c := range map[string]client.Client{"fresh": newFresh(newMapper()), "RESTMapper alone": s.client(newMapper())} {
		ensure("one", "new")
		must(t, c.Delete(t.Context(), kind.object("default/one")))
		eventually(t, name+", restarted: the end of the cluster-scoped object", func() bool { return !s.exists(becomes, "one") })
		must(t, c.DeleteAllOf(t.Context(), kind.object(""), client.InNamespace("default")))
		eventually(t, name+", restarted: the end of all cluster-scoped objects", func() bool { return !s.exists(becomes, "new") })
		must(t, c.Create(t.Context(), kind.object("default/new")))
		if !s.exists(becomes, "new") {
			t.Errorf("%s, restarted: Create has made no cluster-scoped object", name)
		}
	}
}
