// SPDX-License-Identifier: Apache-2.0

package fresh_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/freshmapper/freshmapper/apiutil"
)

var configMap = corev1.SchemeGroupVersion.WithKind("ConfigMap")

const inNamespaces, ofCluster = "Namespaced", "Cluster"

// movingServer is an API server in memory that serves ConfigMaps as plural, with a scope or not at all, and
// Secrets in namespaces, of which there are none. There is the ConfigMap "n", if they are namespaced in the
// namespaces "ns" and "other".
type movingServer struct {
	*httptest.Server
	fleet *apiutil.Fleet

	mu       sync.Mutex // guards the rest
	scope    string     // of ConfigMaps; "": they are not served
	plural   string
	kind     string         // that has the plural
	uid      string         // of all objects
	names    []string       // of the objects in each place
	refuses  map[string]int // codes of answers, by "list", "watch" or an HTTP method; "list ns" in one namespace
	down     bool           // what is served cannot be read
	hangs    bool           // nor does a live read of the version end
	late     time.Duration  // how long the answer to that is on its way
	slow     time.Duration  // how long a list takes
	sick     bool           // another version of the group fails
	named    bool           // a 404 of a wrong path names the object, as that of a CustomResourceDefinition does
	watched  string         // the object of the next event of all watches
	floods   bool           // each watch, with that event
	requests []string       // for objects
	lists    int            // of ConfigMaps, in all
	reads    int            // of the served API
	watches  atomic.Int32   // that are open
}

func newMovingServer(t testing.TB, scope string) *movingServer {
	s := &movingServer{
		scope: scope, plural: "configmaps", kind: configMap.Kind, uid: "1", names: []string{"n"}, refuses: map[string]int{},
		fleet: apiutil.NewFleet(apiutil.DynamicRESTMapperOptions{}),
	}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func (s *movingServer) change(with func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	with()
}

// move changes the scope, and lets a mapper know.
func (s *movingServer) move(t testing.TB, m *apiutil.DynamicRESTMapper, scope string) {
	t.Helper()
	s.change(func() { s.scope = scope })
	must(t, m.Refresh(context.Background(), ""))
}

// take returns the requests since the last call.
func (s *movingServer) take() (requests []string, reads int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests, reads = s.requests, s.reads
	s.requests, s.reads = nil, 0
	return requests, reads
}

// ServeHTTP answers as a kube-apiserver does.
func (s *movingServer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Audit-Id", "1")
	within, isObject := strings.CutPrefix(req.URL.Path, "/api/v1/")
	if !isObject {
		s.reads++
		s.discover(w, req)
		return
	}
	s.requests = append(s.requests, req.Method+" "+req.URL.Path)
	parts, namespace := strings.Split(within, "/"), ""
	if len(parts) > 2 && parts[0] == "namespaces" {
		namespace, parts = parts[1], parts[2:]
	}
	what := req.Method
	if len(parts) == 1 && what == http.MethodGet {
		what = map[bool]string{false: "list", true: "watch"}[req.URL.Query().Get("watch") != ""]
	}
	ofAll := namespace == "" && len(parts) == 1 && req.Method == http.MethodGet
	switch wrong := !ofAll && (namespace != "") != (s.scope == inNamespaces); {
	case parts[0] == "secrets" && req.URL.Query().Get("sendInitialEvents") != "":
		refuse(w, "", http.StatusBadRequest)
	case parts[0] == "secrets" && what == "watch":
		s.stream(w, req)
	case parts[0] == "secrets":
		fmt.Fprint(w, `{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`)
	case s.refuses[what] != 0:
		refuse(w, "", s.refuses[what])
	case s.refuses[what+" "+namespace] != 0:
		refuse(w, "", s.refuses[what+" "+namespace])
	case s.named && len(parts) > 1 && wrong:
		refuse(w, parts[1], http.StatusNotFound)
	case s.scope == "", wrong:
		http.Error(w, "404 page not found", http.StatusNotFound)
	case parts[0] != s.plural:
		refuse(w, "", http.StatusNotFound)
	case req.URL.Query().Get("sendInitialEvents") != "":
		refuse(w, "", http.StatusBadRequest)
	case what == "watch":
		s.stream(w, req)
	case len(parts) == 1 && req.Method != http.MethodPost:
		s.list(w, namespace)
	case len(parts) > 1 && parts[1] == "gateway":
		http.Error(w, "<html>no such site</html>", http.StatusNotFound)
	case len(parts) > 1 && !slices.Contains(s.names, parts[1]):
		refuse(w, parts[1], map[string]int{"absent": http.StatusNotFound, "down": http.StatusServiceUnavailable, "changed": http.StatusConflict}[parts[1]])
	default:
		fmt.Fprint(w, s.object(namespace, "n"))
	}
}

func refuse(w http.ResponseWriter, name string, code int) {
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"refused with %d","details":{"name":%q,"kind":"configmaps"},"code":%[1]d}`, code, name)
}

// object is an object as the server has it. The lock is held.
func (s *movingServer) object(namespace, name string) string {
	return fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%q,"namespace":%q,"uid":%q,"resourceVersion":"1"}}`, name, namespace, s.uid)
}

// list answers a list. The lock is held.
func (s *movingServer) list(w http.ResponseWriter, namespace string) {
	s.lists++
	in := []string{namespace}
	if s.scope == inNamespaces && namespace == "" {
		in = []string{"ns", "other"}
	}
	var items []string
	for _, namespace := range in {
		for _, name := range s.names {
			items = append(items, s.object(namespace, name))
		}
	}
	s.wait(s.slow)
	fmt.Fprintf(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[%s]}`, strings.Join(items, ","))
}

// wait lets others go on meanwhile.
func (s *movingServer) wait(d time.Duration) {
	if d > 0 {
		s.mu.Unlock()
		time.Sleep(d)
		s.mu.Lock()
	}
}

// discover answers what is served. The lock is held.
func (s *movingServer) discover(w http.ResponseWriter, req *http.Request) {
	if s.down {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	switch req.URL.Path {
	case "/api":
		fmt.Fprint(w, map[bool]string{false: `{"kind":"APIVersions","versions":["v1"]}`, true: `{"kind":"APIVersions","versions":["v1","v2"]}`}[s.sick])
	case "/api/v2":
		w.WriteHeader(http.StatusServiceUnavailable)
	case "/apis":
		fmt.Fprint(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"other.example.com"}]}`)
	case "/api/v1":
		if s.hangs {
			s.mu.Unlock()
			<-req.Context().Done()
			s.mu.Lock()
		}
		kinds := `{"name":"secrets","singularName":"secret","namespaced":true,"kind":"Secret","verbs":["get"]}`
		if s.scope != "" {
			kinds += fmt.Sprintf(`,{"name":%q,"singularName":"configmap","namespaced":%t,"kind":%q,"verbs":["get"]}`, s.plural, s.scope == inNamespaces, s.kind)
		}
		s.wait(s.late)
		fmt.Fprintf(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[%s]}`, kinds)
	}
}

// stream answers a watch with the events that there are while it is open. One of namespaced objects ends with
// their scope. The lock is held.
func (s *movingServer) stream(w http.ResponseWriter, req *http.Request) {
	s.watches.Add(1)
	defer s.watches.Add(-1)
	for sent, scope := s.watched, s.scope; req.Context().Err() == nil && (scope == ofCluster || scope == s.scope); {
		if s.watched != sent || s.floods {
			sent = s.watched
			fmt.Fprintf(w, `{"type":"ADDED","object":%s}`, sent)
		}
		w.(http.Flusher).Flush()
		s.wait(time.Millisecond)
	}
}

func (s *movingServer) config() *rest.Config { return &rest.Config{Host: s.URL, QPS: -1} }

func (s *movingServer) mapper(t testing.TB, opts apiutil.DynamicRESTMapperOptions) *apiutil.DynamicRESTMapper {
	t.Helper()
	m, err := apiutil.NewDynamicRESTMapperWithOptions(s.config(), s.Client(), opts)
	must(t, err)
	return m
}

// client returns a client with a mapper of its own, which wrap may wrap.
func (s *movingServer) client(t testing.TB, wrap func(meta.RESTMapper) meta.RESTMapper) client.WithWatch {
	t.Helper()
	c, err := newWithWatch(s.config(), client.Options{HTTPClient: s.Client(), Mapper: wrap(s.mapper(t, apiutil.DynamicRESTMapperOptions{}))})
	must(t, err)
	return c
}

// sharing returns a client that shares its mapper with others, and nothing else: a Fleet has it.
func (s *movingServer) sharing(t testing.TB) client.Client {
	t.Helper()
	mapper, err := s.fleet.For("all", s.config(), s.Client())
	must(t, err)
	c, err := newClient(s.config(), client.Options{HTTPClient: s.Client(), Mapper: mapper})
	must(t, err)
	return c
}

func bare(m meta.RESTMapper) meta.RESTMapper { return m }

// asStock makes a client behave as one with stock's mapper, which keeps the first mapping of a kind.
func asStock(m meta.RESTMapper) meta.RESTMapper {
	return &firstMappings{RESTMapper: m, first: map[schema.GroupVersionKind]*meta.RESTMapping{}}
}

type firstMappings struct {
	meta.RESTMapper
	mu    sync.Mutex
	first map[schema.GroupVersionKind]*meta.RESTMapping
}

func (m *firstMappings) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	gvk := gk.WithVersion(versions[0])
	if m.first[gvk] == nil {
		mapping, err := m.RESTMapper.RESTMapping(gk, versions...)
		if err != nil {
			return nil, err
		}
		m.first[gvk] = mapping
	}
	return m.first[gvk], nil
}

// caching returns a cache that was started, and its mapper, which is opts.Mapper if that is not nil.
func (s *movingServer) caching(t testing.TB, opts cache.Options) (cache.Cache, *apiutil.DynamicRESTMapper) {
	t.Helper()
	m := s.mapper(t, apiutil.DynamicRESTMapperOptions{})
	if opts.HTTPClient = s.Client(); opts.Mapper == nil {
		opts.Mapper = m
	}
	c, err := newCache(s.config(), opts)
	must(t, err)
	start(t, c)
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
		select {
		case err := <-ended:
			must(t, err)
		case <-time.After(30 * time.Second):
			t.Error("Start of the cache has not ended")
		}
	})
	t.Cleanup(end)
	return end
}

// caller calls a client with one of the sorts of objects that there is a client for.
type caller struct {
	sort string // "typed", "unstructured" or "metadata"
	gvk  schema.GroupVersionKind
}

var sorts = []string{"typed", "unstructured", "metadata"}

func (c caller) object(namespace, name string) client.Object {
	obj := map[string]client.Object{
		"typed": &corev1.ConfigMap{}, "unstructured": &unstructured.Unstructured{}, "metadata": &metav1.PartialObjectMetadata{},
	}[c.sort]
	obj.GetObjectKind().SetGroupVersionKind(c.gvk)
	obj.SetNamespace(namespace)
	obj.SetName(name)
	return obj
}

func (c caller) list() client.ObjectList {
	list := map[string]client.ObjectList{
		"typed": &corev1.ConfigMapList{}, "unstructured": &unstructured.UnstructuredList{}, "metadata": &metav1.PartialObjectMetadataList{},
	}[c.sort]
	list.GetObjectKind().SetGroupVersionKind(c.gvk.GroupVersion().WithKind(c.gvk.Kind + "List"))
	return list
}

type request func(c client.Client, namespace, name string) error

func isRead(request string) bool { return strings.HasSuffix(request, "Get") }

// requests are those that a client can send for an object.
func (c caller) requests() map[string]request {
	ctx, patch := context.Background(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"touched":"yes"}}}`))
	all := map[string]request{
		"Get": func(with client.Client, ns, name string) error {
			return with.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, c.object("", ""))
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
	if c.sort != "metadata" {
		all["Create"] = func(with client.Client, ns, name string) error { return with.Create(ctx, c.object(ns, name)) }
		all["Update"] = func(with client.Client, ns, name string) error { return with.Update(ctx, c.object(ns, name)) }
		all["Status.Update"] = func(with client.Client, ns, name string) error { return with.Status().Update(ctx, c.object(ns, name)) }
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

// eventually waits until something is so.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for began := time.Now(); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			t.Fatalf("not in time: %s", what)
		}
	}
}
