// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// stockRow is one thing that our pages say of plain controller-runtime, or of client-go. Beside the sentence a page has
// the comment <!-- TestStock/name -->; hack/verify.sh checks that a row has that name.
type stockRow struct {
	name  string
	prove func(*stock)
}

// stockRows begins with what controller-runtime does right by itself.
var stockRows = []stockRow{
	{"late-crd-named-version", lateCRDNamedVersion},
	{"new-version-named", newVersionNamed},
	{"late-crd-unknown-group", lateCRDUnknownGroup},
	{"new-kind-unnamed", newKindUnnamed},
	{"unknown-group-lookup-recovers", unknownGroupLookupRecovers},
	{"named-version-recovers-unnamed", namedVersionRecoversUnnamed},
	{"miss-drops-removed-version", missDropsRemovedVersion},
	{"watch-finds-late-crd", watchFindsLateCRD},
	{"client-404-for-removed-kind", client404ForRemovedKind},
	{"informer-survives-recreated-crd", informerSurvivesRecreatedCRD},
	{"watch-of-recreated-crd-expires", watchOfRecreatedCRDExpires},

	{"new-version-unnamed", newVersionUnnamed},
	{"new-version-of-kind-unnamed", newVersionOfKindUnnamed},
	{"removed-crd-still-found", removedCRDStillFound},
	{"scope-change-mapper", scopeChangeMapper},
	{"scope-change-client", scopeChangeClient},
	{"scope-change-cluster-to-namespaced", scopeChangeClusterToNamespaced},
	{"plural-change-client", pluralChangeClient},
	{"plural-change-informer", pluralChangeInformer},
	{"scope-change-informer", scopeChangeInformer},
	{"namespaced-call-cluster-scoped", namespacedCallClusterScoped},
	{"namespaced-client-cluster-scoped", namespacedClientClusterScoped},
	{"delete-reaches-another-kind", deleteReachesAnotherKind},
	{"apiservice-down-at-start", apiServiceDownAtStart},
	{"watch-of-absent-kind-exits", watchOfAbsentKindExits},
	{"forbidden-kind-stops-manager", forbiddenKindStopsManager},
	{"byobject-absent-kind", byObjectAbsentKind},
	{"byobject-namespaces-cluster-scoped", byObjectNamespacesClusterScoped},
	{"indexfield-absent-kind", indexFieldAbsentKind},
	{"reset-does-nothing", resetDoesNothing},
	{"hit-waits-for-discovery", hitWaitsForDiscovery},
	{"equal-misses-one-by-one", equalMissesOneByOne},
	{"order-without-group", orderWithoutGroup},
	{"any-404-is-absence", any404IsAbsence},
	{"unreadable-version", unreadableVersion},
	{"new-mapper-two-requests", newMapperTwoRequests},
	{"singularizer-asks-nothing", singularizerAsksNothing},
	{"no-match-inside-another-error", noMatchInsideAnotherError},
	{"deferred-mapper-needs-invalidate", deferredMapperNeedsInvalidate},
	{"memory-cache-empty-version", memoryCacheEmptyVersion},
	{"reflector-pauses", reflectorPauses},
	{"literal-texts", literalTexts},
}

// TestStock runs plain controller-runtime, as hack/e2e requires it and without a change, on a real API server that has
// aggregated discovery: without it some rows differ, as what a lookup in an unknown group brings up to date. It shows that everything which our pages say of it is so. If a row fails with a newer release, change the pages.
func TestStock(t *testing.T) {
	t.Parallel()
	server, cfg := startServer(t.Context(), t)
	for i, row := range stockRows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := &stock{T: t, server: server, group: fmt.Sprintf("g%d.stock.example.com", i)}
			s.cfg = rest.CopyConfig(cfg)
			s.cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
				s.wire.next = next
				return &s.wire
			})
			var err error
			s.http, err = rest.HTTPClientFor(s.cfg)
			must(t, err)
			row.prove(s)
		})
	}
}

// stock is what a row works with. Each row has an API group of its own on the server that all of them share.
type stock struct {
	*testing.T
	server *Server
	cfg    *rest.Config
	http   *http.Client
	wire   wire
	group  string
}

// wire records requests, and may answer one in place of the server.
type wire struct {
	next http.RoundTripper

	mu     sync.Mutex
	paths  []string
	answer func(*http.Request) *http.Response // nil, or returns nil, if the server answers
}

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.paths = append(w.paths, req.URL.Path)
	answer := w.answer
	w.mu.Unlock()
	if answer != nil {
		if resp := answer(req); resp != nil {
			resp.Request = req
			return resp, nil
		}
	}
	return w.next.RoundTrip(req)
}

// requests counts requests for a path; "" stands for every path.
func (w *wire) requests(path string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.paths {
		if path == "" || p == path {
			n++
		}
	}
	return n
}

func (w *wire) setAnswer(answer func(*http.Request) *http.Response) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = answer
}

func plainAnswer(code int, body string) *http.Response {
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Header: http.Header{"Content-Type": {"text/plain"}},
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
}

func (s *stock) kind(name string, versions ...string) Kind {
	return Kind{Group: s.group, Kind: name, Versions: versions}
}

func clusterScoped(kind Kind) Kind {
	kind.Cluster = true
	return kind
}

// install returns once all documents of the server have the kind.
func (s *stock) install(kind Kind) {
	s.Helper()
	must(s.T, s.server.Install(s.Context(), kind), await(s.Context(), kind.Kind+" in the documents", func() (bool, error) {
		group, groupErr := s.server.group(s.Context(), kind.Group)
		_, bulk, _, err := s.server.discovery.GroupsAndMaybeResources()
		inBulk := bulk == nil || kind.in(bulk) == len(kind.Versions) // nil: a server without aggregated discovery
		return groupErr == nil && has(group, kind.Versions) && inBulk, errors.Join(groupErr, err)
	}))
}

func (s *stock) uninstall(kind Kind) {
	s.Helper()
	must(s.T, s.server.Uninstall(s.Context(), kind))
}

// replace deletes a CRD and installs another one in its place.
func (s *stock) replace(old, new Kind) {
	s.Helper()
	s.uninstall(old)
	s.install(new)
}

func (s *stock) make(kind Kind, name string) {
	s.Helper()
	must(s.T, s.server.Make(s.Context(), kind, name, nil))
}

// exists asks the server itself.
func (s *stock) exists(kind Kind, name string) bool {
	s.Helper()
	object, err := s.server.Object(s.Context(), kind, metav1.NamespaceDefault, name)
	must(s.T, err)
	return object != nil && object.GetDeletionTimestamp() == nil
}

func (s *stock) mapper() meta.RESTMapper {
	s.Helper()
	mapper, err := apiutil.NewDynamicRESTMapper(s.cfg, s.http)
	must(s.T, err)
	return mapper
}

func (s *stock) client(mapper meta.RESTMapper) client.WithWatch {
	s.Helper()
	c, err := client.NewWithWatch(s.cfg, client.Options{HTTPClient: s.http, Mapper: mapper})
	must(s.T, err)
	return c
}

func (k Kind) groupKind() schema.GroupKind { return schema.GroupKind{Group: k.Group, Kind: k.Kind} }

func (k Kind) gvk() schema.GroupVersionKind { return k.groupKind().WithVersion(k.Versions[0]) }

// object is empty. A name with a slash has a namespace.
func (k Kind) object(name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(k.gvk())
	object.SetNamespace(key(name).Namespace)
	object.SetName(key(name).Name)
	return object
}

func (k Kind) list() *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	gvk := k.gvk()
	gvk.Kind += "List"
	list.SetGroupVersionKind(gvk)
	return list
}

func key(name string) client.ObjectKey {
	if namespace, name, ok := strings.Cut(name, "/"); ok {
		return client.ObjectKey{Namespace: namespace, Name: name}
	}
	return client.ObjectKey{Name: name}
}

func (s *stock) get(c client.Reader, kind Kind, name string) error {
	return c.Get(s.Context(), key(name), kind.object(""))
}

func (s *stock) found(mapper meta.RESTMapper, kind Kind, versions ...string) *meta.RESTMapping {
	s.Helper()
	mapping, err := mapper.RESTMapping(kind.groupKind(), versions...)
	if err != nil {
		s.Fatalf("RESTMapping(%s, %q): %v; want it found", kind.groupKind(), versions, err)
	}
	return mapping
}

func (s *stock) noMatch(mapper meta.RESTMapper, kind Kind, versions ...string) {
	s.Helper()
	mapping, err := mapper.RESTMapping(kind.groupKind(), versions...)
	if !meta.IsNoMatchError(err) {
		s.Fatalf("RESTMapping(%s, %q): %v, %v; want NoMatch", kind.groupKind(), versions, mapping, err)
	}
}

func (s *stock) says(err error, text string) {
	s.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		s.Fatalf("the error is %v; want one that contains %q", err, text)
	}
}

// askUnknownGroup makes a lookup that names no version, in a group that was never served.
func (s *stock) askUnknownGroup(mapper meta.RESTMapper) {
	s.Helper()
	s.noMatch(mapper, Kind{Group: "unknown." + s.group, Kind: "Unknown"})
}

// warm makes the mapper's first lookup, which reads the whole discovery document.
func (s *stock) warm(mapper meta.RESTMapper) {
	s.Helper()
	_, err := mapper.RESTMapping(schema.GroupKind{Kind: "ConfigMap"}, "v1")
	must(s.T, err)
}

// A CRD that is installed after the first lookup is found by each lookup that names its version, as clients do.
func lateCRDNamedVersion(s *stock) {
	mapper, kind := s.mapper(), s.kind("Widget", "v1")
	c := s.client(mapper)
	s.warm(mapper)
	s.says(s.get(c, kind, "default/one"), fmt.Sprintf(`no matches for kind "Widget" in version "%s/v1"`, s.group))
	s.noMatch(mapper, kind, "v1")
	s.install(kind)
	s.make(kind, "one")
	s.found(mapper, kind, "v1")
	must(s.T, s.get(c, kind, "default/one"))
	s.found(mapper, kind) // and from then on also without a version
}

func newVersionNamed(s *stock) {
	mapper := s.mapper()
	s.install(s.kind("Widget", "v1"))
	s.found(mapper, s.kind("Widget", "v1"), "v1")
	both := s.kind("Widget", "v1", "v2")
	s.install(both)
	s.found(mapper, both, "v2")
	must(s.T, s.client(mapper).List(s.Context(), s.kind("Widget", "v2").list()))
}

func lateCRDUnknownGroup(s *stock) {
	mapper, kind := s.mapper(), s.kind("Widget", "v1")
	s.warm(mapper)
	s.noMatch(mapper, kind)
	s.install(kind)
	s.found(mapper, kind)
}

// A lookup without a version that finds nothing in a known group reads its known versions again, and so finds a kind that is new
// in one of them.
func newKindUnnamed(s *stock) {
	mapper, gadget := s.mapper(), s.kind("Gadget", "v1")
	s.install(s.kind("Widget", "v1"))
	s.found(mapper, s.kind("Widget", "v1"))
	s.noMatch(mapper, gadget)
	s.install(gadget)
	s.found(mapper, gadget)
}

// knownGroup installs Widget in v1, has a mapper read its group, and then installs Gadget, in v2 alone.
func knownGroup(s *stock) (mapper meta.RESTMapper, gadget Kind) {
	mapper, gadget = s.mapper(), s.kind("Gadget", "v2")
	s.install(s.kind("Widget", "v1"))
	s.found(mapper, s.kind("Widget", "v1"))
	s.install(gadget)
	return mapper, gadget
}

func newVersionUnnamed(s *stock) {
	mapper, gadget := knownGroup(s)
	for range 3 {
		s.noMatch(mapper, gadget)
	}
	_, err := mapper.RESTMapping(gadget.groupKind())
	s.says(err, fmt.Sprintf(`no matches for kind "Gadget" in group %q`, s.group))
	_, err = mapper.KindFor(schema.GroupVersionResource{Group: s.group, Resource: "gadgets"})
	if !meta.IsNoMatchError(err) {
		s.Errorf("KindFor: %v; want NoMatch", err)
	}
}

// A kind that is known in v1 stays v1 for lookups without a version, although the server prefers v2 by now. A lookup in a
// group that was never served repairs this, but not after a lookup that names v2.
func newVersionOfKindUnnamed(s *stock) {
	mapper, other := s.mapper(), s.mapper()
	before, after := s.kind("Widget", "v1"), s.kind("Widget", "v1", "v2")
	isVersion := func(mapper meta.RESTMapper, when, want string) {
		mapping, err := mapper.RESTMapping(before.groupKind())
		must(s.T, err)
		if version := mapping.Resource.Version; version != want {
			s.Errorf("%s: %s; want %s", when, version, want)
		}
	}

	s.install(before)
	isVersion(mapper, "at first", "v1")
	isVersion(other, "at first", "v1")

	s.install(after)
	for range 3 {
		isVersion(mapper, "v2 is served, too", "v1")
	}
	s.askUnknownGroup(mapper) // this reads the whole document
	isVersion(mapper, "after a lookup in an unknown group", "v2")

	s.found(other, after, "v2")
	s.askUnknownGroup(other)
	isVersion(other, "after a lookup that named v2, and one in an unknown group", "v1")
}

func unknownGroupLookupRecovers(s *stock) {
	mapper, gadget := knownGroup(s)
	s.noMatch(mapper, gadget)
	s.askUnknownGroup(mapper)
	s.found(mapper, gadget)
}

func namedVersionRecoversUnnamed(s *stock) {
	mapper, gadget := knownGroup(s)
	s.noMatch(mapper, gadget)
	s.found(mapper, gadget, "v2")
	s.found(mapper, gadget)
}

func removedCRDStillFound(s *stock) {
	mapper, kind := s.mapper(), s.kind("Widget", "v1")
	s.install(kind)
	s.found(mapper, kind, "v1")
	s.uninstall(kind)
	before := s.wire.requests("")
	s.found(mapper, kind, "v1")
	s.found(mapper, kind)
	if sent := s.wire.requests("") - before; sent != 0 {
		s.Errorf("%d requests; want none for a kind that is known", sent)
	}
}

// A lookup that finds nothing in a version reads that version again, and so corrects what is known of it.
func missDropsRemovedVersion(s *stock) {
	mapper, kind := s.mapper(), s.kind("Widget", "v1")
	s.install(kind)
	s.found(mapper, kind, "v1")
	s.uninstall(kind)
	s.noMatch(mapper, s.kind("Absent", "v1"), "v1")
	s.noMatch(mapper, kind, "v1")
	s.noMatch(mapper, kind)

	other := s.mapper()
	again := s.kind("Second", "v1")
	s.install(again)
	s.found(other, again, "v1")
	s.uninstall(again)
	s.noMatch(other, s.kind("Absent", "v1")) // a lookup without a version does the same
	s.noMatch(other, again, "v1")
}

func scopeChangeMapper(s *stock) {
	mapper, kind := s.mapper(), s.kind("Widget", "v1")
	s.install(kind)
	s.found(mapper, kind, "v1")
	s.replace(kind, clusterScoped(kind))
	if scope := s.found(mapper, kind, "v1").Scope.Name(); scope != meta.RESTScopeNameNamespace {
		s.Errorf("the scope is %s; want the old one", scope)
	}
	s.askUnknownGroup(mapper) // this reads the whole document
	if scope := s.found(mapper, kind, "v1").Scope.Name(); scope != meta.RESTScopeNameRoot {
		s.Errorf("after a lookup in an unknown group the scope is %s; want the new one", scope)
	}
}

// A client keeps the first mapping of a kind, also when its mapper knows better.
func scopeChangeClient(s *stock) {
	mapper, kind := s.mapper(), s.kind("Widget", "v1")
	s.install(kind)
	s.make(kind, "one")
	c := s.client(mapper)
	must(s.T, s.get(c, kind, "default/one"))
	s.replace(kind, clusterScoped(kind))
	s.make(clusterScoped(kind), "one")
	for range 2 {
		for _, err := range []error{
			s.get(c, kind, "default/one"),
			c.Delete(s.Context(), kind.object("default/one")),
			c.DeleteAllOf(s.Context(), kind.object(""), client.InNamespace("default")),
		} {
			s.says(err, "the server could not find the requested resource")
			must(s.T, client.IgnoreNotFound(err))
		}
		s.says(s.get(c, kind, "one"), "an empty namespace may not be set when a resource name is provided")
		s.askUnknownGroup(mapper)
		if scope := s.found(mapper, kind, "v1").Scope.Name(); scope != meta.RESTScopeNameRoot {
			s.Errorf("the mapper's scope is %s; want it corrected", scope)
		}
	}
	if !s.exists(clusterScoped(kind), "one") {
		s.Error("the cluster-scoped object was deleted")
	}
	must(s.T, s.get(s.client(mapper), kind, "one")) // another client of the same mapper

	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(kind.gvk())
	metadata.SetNamespace("default")
	metadata.SetName("one")
	must(s.T, c.Delete(s.Context(), metadata)) // a request for metadata asks the mapper each time
	eventually(s.T, "the end of the object", func() bool { return !s.exists(clusterScoped(kind), "one") })
}

func scopeChangeClusterToNamespaced(s *stock) {
	mapper, kind := s.mapper(), s.kind("Widget", "v1")
	s.install(clusterScoped(kind))
	s.make(clusterScoped(kind), "one")
	c := s.client(mapper)
	must(s.T, s.get(c, kind, "one"))
	s.replace(clusterScoped(kind), kind)
	s.make(kind, "one")
	err := s.get(c, kind, "default/one")
	if !apierrors.IsNotFound(err) {
		s.Errorf("Get: %v; want NotFound", err)
	}
}

func pluralChangeClient(s *stock) {
	mapper, kind := s.mapper(), s.kind("Widget", "v1")
	other := kind
	other.Plural = "gizmos"
	s.install(kind)
	c := s.client(mapper)
	must(s.T, c.List(s.Context(), kind.list()))
	s.replace(kind, other)
	s.make(other, "one")
	s.says(s.get(c, kind, "default/one"), "the server could not find the requested resource")
	if resource := s.found(mapper, kind, "v1").Resource.Resource; resource != "widgets" {
		s.Errorf("the mapper says %s; want the old plural", resource)
	}
}

// cache starts a cache with an informer of a kind.
func (s *stock) cache(mapper meta.RESTMapper, kind Kind) cache.Cache {
	s.Helper()
	c, err := cache.New(s.cfg, cache.Options{HTTPClient: s.http, Mapper: mapper})
	must(s.T, err)
	run(s.T, c)
	_, err = c.GetInformer(s.Context(), kind.object(""))
	must(s.T, err)
	if !c.WaitForCacheSync(s.Context()) {
		s.Fatal("the cache has not synced")
	}
	return c
}

// An informer goes on asking for the path that it began with, and never for another one.
func pluralChangeInformer(s *stock) {
	kind := s.kind("Widget", "v1")
	other := kind
	other.Plural = "gizmos"
	s.install(kind)
	s.make(kind, "one")
	c := s.cache(s.mapper(), kind)
	must(s.T, s.get(c, kind, "default/one"))
	s.replace(kind, other)
	s.make(other, "two")
	before := s.wire.requests("/apis/" + s.group + "/v1/widgets")
	eventually(s.T, "two more requests of the informer", func() bool {
		return s.wire.requests("/apis/"+s.group+"/v1/widgets") > before+1
	})
	if n := s.wire.requests("/apis/" + s.group + "/v1/gizmos"); n > 0 {
		s.Errorf("the informer has asked %d times for the new path; want never", n)
	}
	if err := s.get(c, kind, "default/two"); !apierrors.IsNotFound(err) {
		s.Errorf("Get of an object at the new path: %v; want NotFound", err)
	}
}

// An informer of all namespaces has the same path in both scopes, so it goes on. What asks for a namespace finds nothing.
func scopeChangeInformer(s *stock) {
	kind := s.kind("Widget", "v1")
	s.install(kind)
	s.make(kind, "one")
	c := s.cache(s.mapper(), kind)
	must(s.T, s.get(c, kind, "default/one"))
	s.replace(kind, clusterScoped(kind))
	s.make(clusterScoped(kind), "two")
	eventually(s.T, "the new object in a List of all namespaces", func() bool {
		list := kind.list()
		must(s.T, c.List(s.Context(), list))
		return len(list.Items) == 1 && list.Items[0].GetName() == "two"
	})
	if err := s.get(c, kind, "default/two"); !apierrors.IsNotFound(err) {
		s.Errorf("Get in a namespace: %v; want NotFound", err)
	}
	list := kind.list()
	must(s.T, c.List(s.Context(), list, client.InNamespace("default")))
	if len(list.Items) > 0 {
		s.Errorf("List in a namespace has %d objects; want none", len(list.Items))
	}
}

// An informer has the objects of a CRD that is re-created as it was.
func informerSurvivesRecreatedCRD(s *stock) {
	kind := s.kind("Widget", "v1")
	s.install(kind)
	s.make(kind, "one")
	c := s.cache(s.mapper(), kind)
	must(s.T, s.get(c, kind, "default/one"))
	s.replace(kind, kind)
	s.make(kind, "two")
	eventually(s.T, "the new object", func() bool { return s.get(c, kind, "default/two") == nil })
	eventually(s.T, "the old object to go", func() bool { return apierrors.IsNotFound(s.get(c, kind, "default/one")) })
}

// The API server does not resume a watch from before a CRD was re-created. That is why the informer lists again, and
// internal/fakeapi does the same.
func watchOfRecreatedCRDExpires(s *stock) {
	kind := s.kind("Widget", "v1")
	s.install(kind)
	s.make(kind, "one")
	list := kind.list()
	must(s.T, s.client(s.mapper()).List(s.Context(), list))
	s.replace(kind, kind)
	s.make(kind, "two")
	path := fmt.Sprintf("%s/apis/%s/v1/widgets?watch=true&timeoutSeconds=5&resourceVersion=%s", s.cfg.Host, s.group, list.GetResourceVersion())
	var answer string
	eventually(s.T, "a watch", func() bool {
		resp, err := s.http.Get(path)
		must(s.T, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		must(s.T, err)
		answer = string(body)
		return resp.StatusCode != http.StatusTooManyRequests // its storage is being initialized
	})
	if !strings.Contains(answer, `"type":"ERROR"`) || !strings.Contains(answer, `"code":410`) {
		s.Errorf("the watch has %s; want an error of code 410", answer)
	}
}

// A program that meets a cluster-scoped kind first, as after a restart, leaves the namespace out of its requests.
func namespacedCallClusterScoped(s *stock) {
	kind := s.kind("Widget", "v1")
	s.install(clusterScoped(kind))
	for _, name := range []string{"one", "two", "three"} {
		s.make(clusterScoped(kind), name)
	}
	c := s.client(s.mapper())
	must(s.T, s.get(c, kind, "default/one"))
	list := kind.list()
	must(s.T, c.List(s.Context(), list, client.InNamespace("default")))
	if len(list.Items) != 3 {
		s.Errorf("List in a namespace has %d objects; want all of the cluster", len(list.Items))
	}
	cached := s.cache(s.mapper(), kind)
	must(s.T, s.get(cached, kind, "default/one"))
	list = kind.list()
	must(s.T, cached.List(s.Context(), list, client.InNamespace("default")))
	if len(list.Items) != 0 {
		s.Errorf("List in a namespace from the cache has %d objects; want none", len(list.Items))
	}
	must(s.T, c.Create(s.Context(), kind.object("default/four")))
	if !s.exists(clusterScoped(kind), "four") {
		s.Error("Create has made no cluster-scoped object")
	}
	must(s.T, c.Delete(s.Context(), kind.object("default/one")))
	eventually(s.T, "the end of the cluster-scoped object", func() bool { return !s.exists(clusterScoped(kind), "one") })
	must(s.T, c.DeleteAllOf(s.Context(), kind.object(""), client.InNamespace("default")))
	eventually(s.T, "the end of all cluster-scoped objects", func() bool {
		return !s.exists(clusterScoped(kind), "two") && !s.exists(clusterScoped(kind), "three")
	})
}

func namespacedClientClusterScoped(s *stock) {
	kind := s.kind("Widget", "v1")
	s.install(clusterScoped(kind))
	s.make(clusterScoped(kind), "one")
	c := client.NewNamespacedClient(s.client(s.mapper()), "default")
	must(s.T, c.DeleteAllOf(s.Context(), kind.object("")))
	eventually(s.T, "the end of all cluster-scoped objects", func() bool { return !s.exists(clusterScoped(kind), "one") })
}

// The client sends a request for a kind that is gone to the kind which has its resource now.
func deleteReachesAnotherKind(s *stock) {
	kind, other := s.kind("Widget", "v1"), s.kind("Gadget", "v1")
	other.Plural = "widgets"
	s.install(kind)
	c := s.client(s.mapper())
	must(s.T, c.List(s.Context(), kind.list()))
	s.replace(kind, other)
	s.make(other, "one")
	must(s.T, c.Delete(s.Context(), kind.object("default/one")))
	eventually(s.T, "the end of the other kind's object", func() bool { return !s.exists(other, "one") })
}

// A client whose mapper still knows a kind that was removed gets the server's 404, and not NoMatch.
func client404ForRemovedKind(s *stock) {
	mapper, kind := s.mapper(), s.kind("Widget", "v1")
	s.install(kind)
	s.found(mapper, kind, "v1")
	s.uninstall(kind)
	err := s.client(mapper).Delete(s.Context(), kind.object("default/one"))
	if !apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		s.Errorf("Delete: %v; want NotFound", err)
	}
}

// The document of a server with aggregated discovery marks a version that does not answer as Stale.
func apiServiceDownAtStart(s *stock) {
	mapper, kind := s.mapper(), s.kind("Metric", "v1")
	gv := kind.gvk().GroupVersion()
	listener, err := (&net.ListenConfig{}).Listen(s.Context(), "tcp", "127.0.0.1:0")
	must(s.T, err)
	port := int64(listener.Addr().(*net.TCPAddr).Port)
	must(s.T, s.server.Client.Create(s.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "stock-extension"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeExternalName, ExternalName: "localhost",
			Ports: []corev1.ServicePort{{Port: int32(port)}},
		},
	}))
	var mu sync.Mutex
	down := true
	backend := &httptest.Server{Listener: listener, Config: &http.Server{
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          log.New(io.Discard, "", 0), // the API server closes connections as it likes
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case down:
				w.WriteHeader(http.StatusServiceUnavailable)
			case r.URL.Path != "/apis/"+gv.String():
				http.NotFound(w, r)
			default:
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": %q, "resources": [
					{"name": "metrics", "singularName": "metric", "namespaced": true, "kind": "Metric", "verbs": ["get", "list"]}]}`, gv)
			}
		}),
	}}
	backend.StartTLS()
	s.Cleanup(backend.Close)
	makeAPIService(s.T, s.server, gv, map[string]any{"namespace": metav1.NamespaceDefault, "name": "stock-extension", "port": port})
	must(s.T, await(s.Context(), "the APIService in the document", func() (bool, error) {
		groups, _, failed, err := s.server.discovery.GroupsAndMaybeResources()
		return err == nil && failed[gv] != nil && slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == s.group }), err
	}))
	s.noMatch(mapper, kind)
	if _, err := mapper.RESTMapping(kind.groupKind(), "v1"); err == nil || meta.IsNoMatchError(err) {
		s.Errorf("a lookup that names the version: %v; want an error that is no NoMatch", err)
	}
	s.noMatch(s.mapper(), kind, "v1") // except for a mapper's very first lookup
	mu.Lock()
	down = false
	mu.Unlock()
	must(s.T, await(s.Context(), "the APIService to answer", func() (bool, error) {
		_, err := s.server.discovery.ServerResourcesForGroupVersion(gv.String())
		return err == nil, err
	}))
	s.noMatch(mapper, kind) // also when it is back
	s.found(mapper, kind, "v1")
	s.found(mapper, kind)
}

func (s *stock) manager(options manager.Options) manager.Manager {
	s.Helper()
	options.Metrics = metricsserver.Options{BindAddress: "0"}
	options.Controller.SkipNameValidation = ptr.To(true)
	mgr, err := manager.New(s.cfg, options)
	must(s.T, err)
	return mgr
}

// watcher is a controller of ConfigMaps that watches a kind, too.
func (s *stock) watcher(mgr manager.Manager, kind Kind, seen *seen) {
	s.Helper()
	must(s.T, builder.ControllerManagedBy(mgr).Named("configmap").For(&corev1.ConfigMap{}).
		Watches(kind.object(""), &handler.EnqueueRequestForObject{}).Complete(seen))
}

// source.Kind asks again every 10 seconds, until CacheSyncTimeout.
// It asks, and asks again ten seconds later.
func watchFindsLateCRD(s *stock) {
	kind, seen := s.kind("Widget", "v1"), &seen{}
	mgr := s.manager(manager.Options{})
	s.watcher(mgr, kind, seen)
	run(s.T, mgr)
	path := "/apis/" + s.group + "/v1"
	asked := func() bool { return s.wire.requests(path)+s.wire.requests("/apis") > 0 }
	eventually(s.T, "the controller to ask for the kind", asked)
	first := time.Now()
	s.install(kind)
	s.make(kind, "one")
	eventually(s.T, "the object to be reconciled", func() bool { return seen.took("one") })
	if after := time.Since(first); after < 9*time.Second || after > 20*time.Second {
		s.Errorf("the object was reconciled %v after the first question; want that the controller asks again after ten seconds", after)
	}
}

func watchOfAbsentKindExits(s *stock) {
	mgr := s.manager(manager.Options{Controller: config.Controller{CacheSyncTimeout: time.Second}})
	s.watcher(mgr, s.kind("Widget", "v1"), &seen{})
	err := mgr.Start(s.Context())
	s.says(err, "failed to wait for configmap caches to sync kind source: *unstructured.Unstructured["+s.group+"/v1 Widget]")
	s.says(err, "timed out waiting for cache to be synced for kind source: *unstructured.Unstructured["+s.group+"/v1 Widget]")
}

// A kind that the account may not list ends the manager, and keeps every controller from working until then.
func forbiddenKindStopsManager(s *stock) {
	kind := s.kind("Widget", "v1")
	s.install(kind)
	s.wire.setAnswer(func(req *http.Request) *http.Response {
		if req.URL.Path != "/apis/"+s.group+"/v1/widgets" {
			return nil
		}
		resp := plainAnswer(http.StatusForbidden, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "widgets is forbidden"}`)
		resp.Header.Set("Content-Type", "application/json")
		return resp
	})
	seen := &seen{}
	mgr := s.manager(manager.Options{Controller: config.Controller{CacheSyncTimeout: 2 * time.Second}})
	s.watcher(mgr, kind, seen)
	must(s.T, builder.ControllerManagedBy(mgr).Named("healthy").For(&corev1.Namespace{}).Complete(seen))
	err := mgr.Start(s.Context())
	s.says(err, "timed out waiting for cache to be synced for kind source")
	if seen.took(metav1.NamespaceDefault) {
		s.Error("the healthy controller has reconciled; want that it waits for the forbidden kind, too")
	}
}

func byObjectAbsentKind(s *stock) {
	_, err := cache.New(s.cfg, cache.Options{ByObject: map[client.Object]cache.ByObject{s.kind("Widget", "v1").object(""): {}}})
	if !meta.IsNoMatchError(err) {
		s.Errorf("cache.New: %v; want NoMatch", err)
	}
	_, err = manager.New(s.cfg, manager.Options{
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:   cache.Options{ByObject: map[client.Object]cache.ByObject{s.kind("Widget", "v1").object(""): {}}},
	})
	if !meta.IsNoMatchError(err) {
		s.Errorf("manager.New: %v; want NoMatch", err)
	}
}

func byObjectNamespacesClusterScoped(s *stock) {
	_, err := cache.New(s.cfg, cache.Options{ByObject: map[client.Object]cache.ByObject{
		&corev1.Namespace{}: {Namespaces: map[string]cache.Config{"default": {}}},
	}})
	s.says(err, "is not namespaced, but its ByObject.Namespaces setting is not nil")
}

func indexFieldAbsentKind(s *stock) {
	mgr := s.manager(manager.Options{})
	err := mgr.GetFieldIndexer().IndexField(s.Context(), s.kind("Widget", "v1").object(""), "spec.class", func(client.Object) []string { return nil })
	if !meta.IsNoMatchError(err) {
		s.Errorf("IndexField: %v; want NoMatch", err)
	}
}

func resetDoesNothing(s *stock) {
	mapper, kind := s.mapper(), s.kind("Widget", "v1")
	s.install(kind)
	s.found(mapper, kind, "v1")
	s.uninstall(kind)
	meta.MaybeResetRESTMapper(mapper)
	s.found(mapper, kind, "v1")
}

// Requests are sent while the lock is held that every lookup takes.
func hitWaitsForDiscovery(s *stock) {
	mapper := s.mapper()
	s.warm(mapper)
	asked, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s.wire.setAnswer(func(*http.Request) *http.Response {
		once.Do(func() { close(asked) })
		<-release
		return plainAnswer(http.StatusNotFound, "404 page not found")
	})
	missed, hit := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(missed)
		_, _ = mapper.RESTMapping(schema.GroupKind{Group: s.group, Kind: "Absent"}, "v1")
	}()
	<-asked
	go func() {
		defer close(hit)
		_, _ = mapper.RESTMapping(schema.GroupKind{Kind: "ConfigMap"}, "v1")
	}()
	select {
	case <-hit:
		s.Error("a lookup of a known kind did not wait for the request of another one")
	case <-time.After(500 * time.Millisecond):
	}
	close(release)
	<-missed
	<-hit
}

func equalMissesOneByOne(s *stock) {
	mapper := s.mapper()
	s.warm(mapper)
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() { _, _ = mapper.RESTMapping(schema.GroupKind{Group: s.group, Kind: "Absent"}, "v1") })
	}
	group.Wait()
	if n := s.wire.requests("/apis/" + s.group + "/v1"); n != 20 {
		s.Errorf("20 equal misses at once made %d requests; want 20", n)
	}
}

// The same question has different answers in different runs.
func orderWithoutGroup(s *stock) {
	first, second := s.kind("Order", "v1"), s.kind("Order", "v1")
	second.Group = "other." + s.group
	s.install(first)
	s.install(second)
	answers := map[string]bool{}
	for range 60 {
		mapper := s.mapper()
		kind, err := mapper.KindFor(schema.GroupVersionResource{Resource: "orders"})
		must(s.T, err)
		answers[kind.Group] = true
		if len(answers) == 2 {
			return
		}
	}
	s.Errorf("60 mappers have found %v; want both groups, by chance", answers)
}

func any404IsAbsence(s *stock) {
	kind := s.kind("Widget", "v1")
	s.install(kind)
	lost := func(path string) {
		s.wire.setAnswer(func(req *http.Request) *http.Response {
			if req.URL.Path != path {
				return nil
			}
			return plainAnswer(http.StatusNotFound, "404 page not found")
		})
	}
	core := Kind{Kind: "ConfigMap", Versions: []string{"v1"}}
	lost("/api")
	s.noMatch(s.mapper(), core)
	lost("/apis")
	if _, err := s.mapper().RESTMapping(core.groupKind(), "v1"); err == nil || meta.IsNoMatchError(err) {
		s.Errorf("a 404 at /apis: %v; want an error that is no NoMatch", err)
	}
	lost("/apis/" + s.group + "/v2")
	mapper := s.mapper()
	s.warm(mapper)
	s.install(s.kind("Widget", "v1", "v2"))
	s.noMatch(mapper, kind, "v2")
}

// An answer that is no 404 is an error, and no NoMatch.
// Every answer for a version but a 404 is an error.
func unreadableVersion(s *stock) {
	lookup := func(answer *http.Response) error {
		mapper := s.mapper()
		s.warm(mapper)
		s.wire.setAnswer(func(*http.Request) *http.Response { return answer })
		defer s.wire.setAnswer(nil)
		_, err := mapper.RESTMapping(s.kind("Widget", "v1").groupKind(), "v1")
		return err
	}
	for _, code := range []int{
		http.StatusOK, http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests,
		http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable,
	} {
		err := lookup(plainAnswer(code, "no document")) //nolint:bodyclose // client-go closes it
		s.says(err, fmt.Sprintf("failed to get API group resources: unable to retrieve the complete list of server APIs: %s/v1: ", s.group))
		if meta.IsNoMatchError(err) {
			s.Errorf("after %d the error is %v; want none that is a NoMatch", code, err)
		}
	}
	if err := lookup(plainAnswer(http.StatusNotFound, "no document")); !meta.IsNoMatchError(err) { //nolint:bodyclose // client-go closes it
		s.Errorf("after 404 the error is %v; want NoMatch", err)
	}
}

func newMapperTwoRequests(s *stock) {
	s.warm(s.mapper())
	if api, apis, all := s.wire.requests("/api"), s.wire.requests("/apis"), s.wire.requests(""); api != 1 || apis != 1 || all != 2 {
		s.Errorf("a new mapper has sent %d requests; want /api and /apis", all)
	}
}

func singularizerAsksNothing(s *stock) {
	_, err := s.mapper().ResourceSingularizer("configmaps")
	if all := s.wire.requests(""); all != 0 {
		s.Errorf("%d requests, %v; want none", all, err)
	}
}

// The first lookup of a mapper that names a version which is not served has an error of another type than later ones.
// meta.IsNoMatchError is true of both.
func noMatchInsideAnotherError(s *stock) {
	mapper := s.mapper()
	for i, want := range []bool{true, false} {
		_, err := mapper.RESTMapping(schema.GroupKind{Group: s.group, Kind: "Widget"}, "v1")
		if !meta.IsNoMatchError(err) {
			s.Errorf("lookup %d: %v; want NoMatch", i, err)
		}
		failed := new(apiutil.ErrResourceDiscoveryFailed)
		if errors.As(err, &failed) != want {
			s.Errorf("lookup %d has the error %v, a %T; want an ErrResourceDiscoveryFailed in the first one alone", i, err, err)
		}
	}
}

// client-go's deferred mapper over its memory cache says NoMatch until somebody invalidates the cache.
func deferredMapperNeedsInvalidate(s *stock) {
	kind := s.kind("Widget", "v1")
	dc, err := discovery.NewDiscoveryClientForConfigAndClient(s.cfg, s.http)
	must(s.T, err)
	cached := memory.NewMemCacheClient(dc)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(cached)
	s.warm(mapper)
	s.install(kind)
	s.noMatch(mapper, kind)
	s.noMatch(mapper, kind, "v1")
	if !cached.Fresh() {
		s.Error("the cache says that it is not fresh")
	}
	cached.Invalidate()
	s.found(mapper, kind)
}

// client-go's memory cache returns an error for a version that has no resources.
func memoryCacheEmptyVersion(s *stock) {
	lists := map[string]string{
		"/api":  `{"kind":"APIVersions","versions":["v1"]}`,
		"/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"empty.example.com","versions":[{"groupVersion":"empty.example.com/v1","version":"v1"}]}]}`,

		"/api/v1":                    `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","kind":"Pod"}]}`,
		"/apis/empty.example.com/v1": `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"empty.example.com/v1","resources":[]}`,
	}
	s.wire.setAnswer(func(req *http.Request) *http.Response {
		resp := plainAnswer(http.StatusOK, lists[req.URL.Path])
		resp.Header.Set("Content-Type", "application/json")
		return resp
	})
	dc, err := discovery.NewDiscoveryClientForConfigAndClient(s.cfg, s.http)
	must(s.T, err)
	cached := memory.NewMemCacheClient(dc)
	_, err = cached.ServerResourcesForGroupVersion("v1")
	must(s.T, err)
	if _, err = cached.ServerResourcesForGroupVersion("empty.example.com/v1"); err == nil {
		s.Error("no error for a version without resources")
	}
}

// An informer whose path is not served pauses longer and longer, and begins again every two minutes. It runs for two days
// in virtual time.
func reflectorPauses(s *stock) {
	synctest.Test(s.T, func(t *testing.T) {
		var pauses []time.Duration
		var last time.Time
		absent := func() error {
			if now := time.Now(); now.After(last) { // a try may send more than one request
				if !last.IsZero() {
					pauses = append(pauses, now.Sub(last))
				}
				last = now
			}
			return apierrors.NewNotFound(schema.GroupResource{Group: "example.com", Resource: "widgets"}, "")
		}
		informer := toolscache.NewSharedIndexInformer(&toolscache.ListWatch{
			ListWithContextFunc:  func(context.Context, metav1.ListOptions) (runtime.Object, error) { return nil, absent() },
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return nil, absent() },
		}, &unstructured.Unstructured{}, 0, nil)
		// client-go's own handler sleeps until the real time of day.
		must(t, informer.SetWatchErrorHandlerWithContext(func(context.Context, *toolscache.Reflector, error) {}))
		ctx, cancel := context.WithTimeout(t.Context(), 48*time.Hour)
		defer cancel()
		informer.RunWithContext(ctx)

		again := 0 // from a pause of over ten seconds to one of a first try
		for i, pause := range pauses[1:] {
			if pauses[i] > 10*time.Second && pause < 1600*time.Millisecond {
				again++
			}
		}
		slices.Sort(pauses)
		shortest, median, longest := pauses[0], pauses[len(pauses)/2], pauses[len(pauses)-1]
		s.Logf("%d pauses: %v, %v, %v; they have begun again %d times", len(pauses), shortest, median, longest, again)
		if shortest < 800*time.Millisecond || median < 5*time.Second || median > 15*time.Second || longest < 30*time.Second || longest > time.Minute {
			s.Errorf("the pauses are %v at least, %v in the median, %v at most; want about 1 s, 10 s, 1 min", shortest, median, longest)
		}
		if every := 48 * time.Hour / time.Duration(max(again, 1)); every < 2*time.Minute || every > 4*time.Minute {
			s.Errorf("the pauses begin again every %v; want somewhat more than two minutes", every)
		}
	})
}

// literalTexts looks for texts that pages quote from logs, and for defaults, in the source of the modules.
func literalTexts(s *stock) {
	for _, want := range []struct{ module, file, text string }{
		{"sigs.k8s.io/controller-runtime", "pkg/internal/source/kind.go", "if kind is a CRD, it should be installed before calling Start"},
		{"sigs.k8s.io/controller-runtime", "pkg/internal/source/kind.go", "10*time.Second"},
		{"sigs.k8s.io/controller-runtime", "pkg/internal/source/kind.go", "timed out waiting for cache to be synced for"},
		{"sigs.k8s.io/controller-runtime", "pkg/internal/controller/controller.go", "failed to wait for %s caches to sync"},
		{"sigs.k8s.io/controller-runtime", "pkg/controller/controller.go", "2 * time.Minute"},
		{"sigs.k8s.io/controller-runtime", "pkg/cache/internal/informers.go", "failed waiting for %T Informer to sync"},
		{"sigs.k8s.io/controller-runtime", "pkg/client/apiutil/errors.go", "unable to retrieve the complete list of server APIs"},
		{"sigs.k8s.io/controller-runtime", "pkg/client/apiutil/restmapper.go", "failed to get API group resources"},
		{"sigs.k8s.io/controller-runtime", "pkg/client/apiutil/restmapper.go", "failed to get server groups"},
		{"k8s.io/client-go", "rest/request.go", "Waited before sending request"},
		{"k8s.io/client-go", "rest/request.go", "client-side throttling, not priority and fairness"},
		{"k8s.io/apiextensions-apiserver", "pkg/apiserver/conversion/webhook_converter.go", "conversion webhook for %v failed"},
		{"k8s.io/apiextensions-apiserver", "pkg/apiserver/customresource_handler.go", "not allowed while custom resource definition is terminating"},
		{"k8s.io/client-go", "rest/request.go", "an empty namespace may not be set when a resource name is provided"},
		{"k8s.io/client-go", "rest/request.go", "an empty namespace may not be set during creation"},
		{"k8s.io/client-go", "tools/cache/reflector.go", "Failed to watch"},
		{"k8s.io/client-go", "tools/cache/reflector.go", "defaultBackoffInit = 800 * time.Millisecond"},
		{"k8s.io/client-go", "tools/cache/reflector.go", "defaultBackoffMax  = 30 * time.Second"},
		{"k8s.io/client-go", "tools/cache/reflector.go", "defaultBackoffReset  = 2 * time.Minute"},
		{"k8s.io/apimachinery", "pkg/api/errors/errors.go", "the server could not find the requested resource"},
		{"k8s.io/apimachinery", "pkg/api/meta/errors.go", "no matches for kind %q in version"},
		{"k8s.io/apimachinery", "pkg/runtime/error.go", "no kind is registered"},
	} {
		cmd := exec.CommandContext(s.Context(), "go", "list", "-m", "-f", "{{.Dir}}", want.module)
		dir, err := cmd.Output()
		must(s.T, err)
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), want.file))
		must(s.T, err)
		if !strings.Contains(string(text), want.text) {
			s.Errorf("%s in %s does not have %q", want.file, want.module, want.text)
		}
	}
}
