// SPDX-License-Identifier: Apache-2.0

package fresh_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/apiutil/fleet"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

var configMap = corev1.SchemeGroupVersion.WithKind("ConfigMap")

const inNamespaces, ofCluster = "Namespaced", "Cluster"

// changingServer is an API server in memory whose ConfigMaps change: they have a plural and a scope, or are not
// served. There is the ConfigMap "n", if they are namespaced in the namespaces "ns" and "other". Of Secrets, in
// namespaces, there are none.
type changingServer struct {
	*fakeapi.Server
	fleet  *fleet.Fleet
	scope  string // of ConfigMaps; "": they are not served
	plural string
	kind   string   // that has the plural
	uid    string   // of all objects
	names  []string // of the objects in each place
}

func newChangingServer(t testing.TB, scope string) *changingServer {
	s := &changingServer{
		Server: fakeapi.New(), fleet: fleet.New(apiutil.DynamicRESTMapperOptions{}),
		scope: scope, plural: "configmaps", kind: configMap.Kind, uid: "1", names: []string{"n"},
	}
	s.SetForms(fakeapi.Forms{NoWatchList: strings.Contains(t.Name(), listMode)})
	s.change(func() {})
	t.Cleanup(s.EndWatches)
	return s
}

// change changes what is served. Watches in a namespace end with the scope. Those of all namespaces stay open, as
// at a server that has not noticed yet.
func (s *changingServer) change(with func()) {
	before := s.scope
	with()
	resources := []fakeapi.Resource{{Name: "secrets", Singular: "secret", Kind: "Secret", Namespaced: true}}
	if s.scope != "" {
		moving := fakeapi.Resource{Name: s.plural, Singular: "configmap", Kind: s.kind,
			Namespaced: s.scope == inNamespaces}
		for _, namespace := range map[string][]string{inNamespaces: {"ns", "other"}, ofCluster: {""}}[s.scope] {
			for _, name := range s.names {
				moving.Objects = append(moving.Objects, fakeapi.Object{Namespace: namespace, Name: name, UID: s.uid})
			}
		}
		resources = append(resources, moving)
	}
	s.PutVersion("", fakeapi.Version{Name: "v1", Resources: resources})
	if before == inNamespaces && s.scope != before {
		s.EndWatches()
	}
}

// changeScope changes the scope, and lets a mapper know.
func (s *changingServer) changeScope(t testing.TB, m *apiutil.DynamicRESTMapper, scope string) {
	t.Helper()
	s.change(func() { s.scope = scope })
	must(t, m.Refresh(context.Background(), ""))
}

// take returns the requests for objects since the last call, and how many there were for what is served.
func (s *changingServer) take() (sent []string, reads int) {
	for _, r := range s.TakeRequests() {
		if r.Verb == "" {
			reads++
		} else {
			sent = append(sent, r.Method+" "+r.Path)
		}
	}
	return sent, reads
}

func (s *changingServer) mapper(t testing.TB, opts apiutil.DynamicRESTMapperOptions) *apiutil.DynamicRESTMapper {
	t.Helper()
	m, err := apiutil.NewDynamicRESTMapperWithOptions(s.Config(), s.Client(), opts)
	must(t, err)
	return m
}

// client returns a client with this mapper, or with one that it makes if that is nil.
func (s *changingServer) client(t testing.TB, mapper meta.RESTMapper) client.WithWatch {
	t.Helper()
	c, err := newWithWatch(s.Config(), client.Options{HTTPClient: s.Client(), Mapper: mapper})
	must(t, err)
	return c
}

// sharing returns a client that shares its mapper with others, and nothing else: a Fleet has it.
func (s *changingServer) sharing(t testing.TB) client.Client {
	t.Helper()
	mapper, err := s.fleet.For("all", s.Config(), s.Client())
	must(t, err)
	c, err := newClient(s.Config(), client.Options{HTTPClient: s.Client(), Mapper: mapper})
	must(t, err)
	return c
}

// refresh lets the mapper of a client know what is served.
func refresh(t testing.TB, c client.Client) {
	t.Helper()
	must(t, c.RESTMapper().(interface {
		Refresh(context.Context, ...string) error
	}).Refresh(t.Context(), ""))
}

// unwrappingMapper is a mapper with a method Unwrap.
type unwrappingMapper struct{ meta.RESTMapper }

func (h unwrappingMapper) Unwrap() meta.RESTMapper { return h.RESTMapper }

// unstarted returns a cache, and its mapper if opts have none.
func (s *changingServer) unstarted(t testing.TB, opts cache.Options) (cache.Cache, *apiutil.DynamicRESTMapper) {
	t.Helper()
	m := s.mapper(t, apiutil.DynamicRESTMapperOptions{})
	if opts.Mapper == nil {
		opts.Mapper = m
	}
	if opts.HTTPClient == nil {
		opts.HTTPClient = s.Client()
	}
	c, err := newCache(s.Config(), opts)
	must(t, err)
	return c, m
}

// caching is unstarted, and then the cache is started.
func (s *changingServer) caching(t testing.TB, opts cache.Options) (cache.Cache, *apiutil.DynamicRESTMapper) {
	t.Helper()
	c, m := s.unstarted(t, opts)
	start(t, c)
	c.WaitForCacheSync(t.Context()) // that is, until it has started
	return c, m
}

// start starts a cache, and ends it with the test or when the caller says so.
func start(t testing.TB, c cache.Cache) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	end = sync.OnceFunc(func() {
		cancel()
		must(t, <-ended)
	})
	t.Cleanup(end)
	return end
}

// several are the options of a cache of two namespaces.
func several() cache.Options {
	return cache.Options{DefaultNamespaces: map[string]cache.Config{"ns": {}, "other": {}}}
}

// has reports whether a client or a cache has the ConfigMap "n".
func has(c client.Reader, namespace string) bool {
	return c.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: "n"}, &corev1.ConfigMap{}) == nil
}

// caller calls a client with objects of one representation.
type caller struct {
	representation string // "typed", "unstructured" or "metadata"
	gvk            schema.GroupVersionKind
}

var representations = []string{"typed", "unstructured", "metadata"}

func (c caller) object(namespace, name string) client.Object {
	obj := map[string]client.Object{
		"typed":        &corev1.ConfigMap{},
		"unstructured": &unstructured.Unstructured{},
		"metadata":     &metav1.PartialObjectMetadata{},
	}[c.representation]
	obj.GetObjectKind().SetGroupVersionKind(c.gvk)
	obj.SetNamespace(namespace)
	obj.SetName(name)
	return obj
}

func (c caller) list() client.ObjectList {
	list := map[string]client.ObjectList{
		"typed":        &corev1.ConfigMapList{},
		"unstructured": &unstructured.UnstructuredList{},
		"metadata":     &metav1.PartialObjectMetadataList{},
	}[c.representation]
	list.GetObjectKind().SetGroupVersionKind(c.gvk.GroupVersion().WithKind(c.gvk.Kind + "List"))
	return list
}

type request func(c client.Client, namespace, name string) error

func isRead(request string) bool {
	return strings.HasSuffix(request, "Get") || strings.HasSuffix(request, "List")
}

// requests are those that a client can send for an object.
func (c caller) requests() map[string]request {
	ctx, patch := context.Background(), client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"touched":"yes"}}}`))
	all := map[string]request{
		"Get": func(with client.Client, ns, name string) error {
			return with.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, c.object("", ""))
		},
		"List": func(with client.Client, ns, _ string) error {
			list := c.list()
			if err := with.List(ctx, list, client.InNamespace(ns)); err != nil {
				return err
			}
			return meta.EachListItem(list, func(item runtime.Object) error {
				if is := item.(client.Object).GetNamespace(); ns != "" && is != "" && is != ns {
					return fmt.Errorf("the list of namespace %q has an object of namespace %q", ns, is)
				}
				return nil
			})
		},
		"Patch": func(with client.Client, ns, name string) error { return with.Patch(ctx, c.object(ns, name), patch) },
		"Status": func(with client.Client, ns, name string) error {
			return with.Status().Patch(ctx, c.object(ns, name), patch)
		},
		"Delete": func(with client.Client, ns, name string) error { return with.Delete(ctx, c.object(ns, name)) },
		"DeleteAllOf": func(with client.Client, ns, _ string) error {
			return with.DeleteAllOf(ctx, c.object("", ""), client.InNamespace(ns))
		},
	}
	if c.representation != "metadata" {
		all["Create"] = func(with client.Client, ns, name string) error { return with.Create(ctx, c.object(ns, name)) }
		all["Update"] = func(with client.Client, ns, name string) error { return with.Update(ctx, c.object(ns, name)) }
		all["Status.Update"] = func(with client.Client, ns,
			name string) error {
			return with.Status().Update(ctx, c.object(ns, name))
		}
		all["SubResource.Get"] = func(with client.Client, ns, name string) error {
			return with.SubResource("status").Get(ctx, c.object(ns, name), c.object("", ""))
		}
		all["SubResource.Create"] = func(with client.Client, ns, name string) error {
			return with.SubResource("status").Create(ctx, c.object(ns, name), c.object("", ""))
		}
	}
	for name, send := range maps.Clone(all) {
		if isRead(name) {
			continue
		}
		all["Namespaced."+name] = func(with client.Client, ns, name string) error {
			if ns != "" {
				with = newNamespaced(client.WithFieldOwner(with, "somebody"), ns)
			}
			return send(with, "", name)
		}
	}
	return all
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// within waits until something is so: in a bubble that takes no time. A reflector that has failed may pause for a
// minute.
func within(is func() bool) bool {
	for tries := 0; !is(); tries++ {
		if tries == 6000 {
			return false
		}
		time.Sleep(20 * time.Millisecond)
	}
	return true
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	if !within(is) {
		t.Fatalf("not within two minutes: %s", what)
	}
}

// logged are the lines that were logged: controller-runtime takes one logger for a program.
var logged lines

// client-go sleeps after an error if the last one of the program was a moment ago, in whichever bubble. It may not.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	log.SetLogger(funcr.New(func(_, args string) {
		logged.mu.Lock()
		defer logged.mu.Unlock()
		logged.all = append(logged.all, args)
	}, funcr.Options{}))
	os.Exit(m.Run())
}

type lines struct {
	mu  sync.Mutex
	all []string
}

// take returns the lines since the last call that have all these texts.
func (l *lines) take(texts ...string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.all
	l.all = nil
	return slices.DeleteFunc(all, func(line string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) })
	})
}

// The modes in which an informer gets its first objects: by a watch that begins with them, which is client-go's
// default since v0.35, and by a list, where the server does not know such watches. Every test of a cache runs in
// both.
const streamMode, listMode = "stream", "list"

// bothModes runs a test in both modes. A changingServer finds the mode in the name of the test.
func bothModes(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Run(streamMode, test)
	t.Run(listMode, test)
}

// virtual runs a test in virtual time and in both modes, and then lets all come to rest: what the test has started
// must end with it, but a goroutine of controller-runtime v0.25 waits indefinitely for an informer of several
// namespaces that ends before it has synced.
func virtual(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	bothModes(t, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			defer time.Sleep(time.Minute)
			test(t)
		})
	})
}

// bubble runs a case in virtual time.
func bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { virtual(t, test) })
}
