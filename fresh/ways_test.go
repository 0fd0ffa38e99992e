// SPDX-License-Identifier: Apache-2.0

package fresh_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/fresh"
	"github.com/freshmapper/freshmapper/fresh/restmappermetrics"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// What the tests are about. A controller-runtime tree with this mapper inside has other names for it.
var (
	newClient, newWithWatch, newNamespaced = fresh.NewClient, fresh.NewWithWatch, fresh.NewNamespacedClient
	newCache                               = fresh.NewCache
)

// An operator changes one line: fresh.NewManager instead of ctrl.NewManager.
func ExampleNewManager() {
	mgr, err := fresh.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{HealthProbeBindAddress: ":8081"})
	if err != nil {
		fmt.Fprintln(os.Stderr, "make the manager:", err)
		os.Exit(1)
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "run the manager:", err)
		os.Exit(1)
	}
}

// A client or a cache that was given no mapper makes one, and follows it.
func TestWithoutAMapper(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newChangingServer(t, inNamespaces)
		cached, err := newCache(s.Config(), cache.Options{HTTPClient: s.Client()})
		must(t, err)
		start(t, cached)
		live, err := newClient(s.Config(), client.Options{HTTPClient: s.Client()})
		must(t, err)
		for _, is := range []struct{ plural, name string }{{"configmaps", "m"}, {"maps", "n"}} {
			s.change(func() { s.plural, s.names = is.plural, []string{is.name} })
			s.EndWatches()
			eventually(t, is.plural, func() bool {
				return has(cached, "ns") == (is.name == "n") &&
					has(live, "ns") == (is.name == "n")
			})
		}
	})
}

// Managers and clusters make parts that follow, the API reader too, and take those that the program makes.
func TestManagersAndClusters(t *testing.T) {
	s := newChangingServer(t, inNamespaces)
	for name, make := range map[string]func(cluster.Options) (cluster.Cluster, error){
		"manager": func(o cluster.Options) (cluster.Cluster, error) {
			return fresh.NewManager(s.Config(), ctrl.Options{MapperProvider: o.MapperProvider, NewClient: o.NewClient,
				NewCache: o.NewCache, Metrics: server.Options{BindAddress: "0"}})
		},
		"cluster": func(o cluster.Options) (cluster.Cluster, error) {
			return fresh.NewCluster(s.Config(), func(made *cluster.Options) { *made = o })
		},
	} {
		s.change(func() { s.scope = inNamespaces })
		made, err := make(cluster.Options{})
		must(t, err)
		mapper, ours := made.GetRESTMapper().(*apiutil.DynamicRESTMapper)
		if !ours {
			t.Fatalf("%s: the mapper is a %T", name, made.GetRESTMapper())
		}
		start(t, made.GetCache())
		made.GetCache().WaitForCacheSync(t.Context()) // that is, until it has started
		write := caller{"typed", configMap}.requests()["Patch"]
		if must(t, write(made.GetClient(), "ns", "n")); !has(made.GetAPIReader(), "ns") ||
			!has(made.GetClient(), "ns") {
			t.Errorf("%s: the object is not found before the switch", name)
		}
		s.changeScope(t, mapper, ofCluster)
		must(t, write(made.GetClient(), "", "n"))
		eventually(t, name+": the cache follows", func() bool { return has(made.GetClient(), "") })
		if !has(made.GetAPIReader(), "") {
			t.Errorf("%s: the API reader does not follow", name)
		}
		own, err := make(cluster.Options{
			MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper,
				error) {
				return unwrappingMapper{mapper}, nil
			},
			NewClient: client.New, NewCache: cache.New,
		})
		must(t, err)
		for _, parts := range [][2]any{{mapper, own.GetRESTMapper()}, {made.GetClient(), own.GetClient()},
			{made.GetCache(), own.GetCache()}} {
			if fmt.Sprintf("%T", parts[0]) == fmt.Sprintf("%T", parts[1]) {
				t.Errorf("%s: its %T is not the one that the program makes", name, parts[1])
			}
		}
	}
	_, withoutConfig := fresh.NewManager(nil, ctrl.Options{})
	_, noCluster := fresh.NewCluster(nil)
	none := func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return nil, errors.New("no mapper") }
	cfg := newChangingServer(t, inNamespaces).Config()
	_, clusterErr := fresh.NewCluster(cfg, func(o *cluster.Options) { o.MapperProvider = none })
	_, managerErr := fresh.NewManager(cfg, ctrl.Options{MapperProvider: none})
	if clusterErr == nil || managerErr == nil {
		t.Errorf("without a mapper: a cluster %v, a manager %v; want the error of the provider", clusterErr, managerErr)
	}
	_, noClient := newClient(nil, client.Options{})
	_, noWatch := newWithWatch(nil, client.Options{})
	_, noCache := newCache(nil, cache.Options{})
	if all := []error{withoutConfig, noCluster, noClient, noWatch, noCache}; slices.Contains(all, nil) {
		t.Errorf("without a config: %v, want an error of each", all)
	}
}

// A manager logs and has metrics without wiring, also if a program has several, and says which of its parts do not
// follow.
func TestManagerWithoutWiring(t *testing.T) {
	s := newChangingServer(t, inNamespaces)
	_ = logged.take()
	for n := range 2 {
		mgr, err := fresh.NewManager(s.Config(), ctrl.Options{Metrics: server.Options{BindAddress: "0"}})
		must(t, err)
		mapper := mgr.GetRESTMapper().(*apiutil.DynamicRESTMapper)
		must(t, mapper.Refresh(t.Context()))
		s.PutVersion(fmt.Sprint("group", n), fakeapi.Version{Name: "v1"})
		must(t, mapper.Refresh(t.Context()))
	}
	var lines []string
	eventually(t, "the mapper logs", func() bool {
		lines = append(lines, logged.take()...)
		return strings.Contains(strings.Join(lines, "\n"), "served APIs changed")
	})
	if strings.Contains(strings.Join(lines, "\n"), "do not recover") {
		t.Errorf("logged %q, want nothing of parts that do not follow", lines)
	}
	families, err := metrics.Registry.Gather()
	must(t, err)
	if !slices.ContainsFunc(families, func(family *dto.MetricFamily) bool {
		return family.GetName() == "controller_runtime_restmapper_requests_total" &&
			family.GetMetric()[0].GetCounter().GetValue() > 0
	}) {
		t.Error("controller-runtime's registry has no requests of the mapper")
	}
	_, err = fresh.NewManager(s.Config(), ctrl.Options{Metrics: server.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			return meta.NewDefaultRESTMapper(nil), nil
		}})
	must(t, err)
	if lines := logged.take("do not recover", "DefaultRESTMapper", "client *", "cache *"); len(lines) != 1 {
		t.Errorf("logged %q, want one line", lines)
	}
}

// followedMetrics keeps who has followed a kind.
type followedMetrics struct {
	apiutil.DynamicRESTMapperMetrics
	mu       sync.Mutex
	followed map[string]int
}

func (m *followedMetrics) Followed(who string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.followed[who]++
}

// Metrics count each switch of a client and of a cache.
func TestSwitchesAreCounted(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newChangingServer(t, inNamespaces)
		recorder, err := restmappermetrics.New(prometheus.NewRegistry())
		must(t, err)
		counts := &followedMetrics{DynamicRESTMapperMetrics: recorder, followed: map[string]int{}}
		m := s.mapper(t, apiutil.DynamicRESTMapperOptions{Metrics: counts})
		c, _ := s.caching(t, cache.Options{Mapper: m})
		live := s.client(t, m)
		must(t, live.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "n"}, &corev1.ConfigMap{}))
		eventually(t, "the object", func() bool { return has(c, "ns") })
		for n, scope := range []string{ofCluster, inNamespaces} {
			s.changeScope(t, m, scope)
			must(t, live.List(t.Context(), &corev1.ConfigMapList{}))
			eventually(t, "the cache follows", func() bool { return has(c, "") == (scope == ofCluster) })
			time.Sleep(time.Second)
			counts.mu.Lock()
			if want := map[string]int{"client": n + 1, "cache": n + 1}; !maps.Equal(counts.followed, want) {
				t.Errorf("after %d switches the metrics are %v, want %v", n+1, counts.followed, want)
			}
			counts.mu.Unlock()
		}
	})
}

// waitingMetrics keeps how many caches wait for a kind.
type waitingMetrics struct {
	apiutil.DynamicRESTMapperMetrics
	caches atomic.Int64
}

func (m *waitingMetrics) WaitingKinds(_ schema.GroupVersionKind, caches int) {
	m.caches.Store(int64(caches))
}

// A gauge and the debug page have the kinds that caches wait for.
func TestReportsOfAnAbsentKind(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newChangingServer(t, "")
		recorder, err := restmappermetrics.New(prometheus.NewRegistry())
		must(t, err)
		waiting := &waitingMetrics{DynamicRESTMapperMetrics: recorder}
		m := s.mapper(t, apiutil.DynamicRESTMapperOptions{Metrics: waiting})
		opts := optional(cache.Options{})
		opts.Mapper = m
		page := func() string {
			answer := httptest.NewRecorder()
			m.DebugHandler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/", nil))
			return answer.Body.String()
		}
		one, _ := s.caching(t, opts)
		two, _ := s.caching(t, opts)
		for n, c := range []cache.Cache{one, two} {
			handle(t, c, "typed", &tally{})
			time.Sleep(time.Minute)
			if got := waiting.caches.Load(); got != int64(n+1) {
				t.Errorf("the gauge is %d for %d caches", got, n+1)
			}
		}
		if text := page(); !strings.Contains(text, "v1.ConfigMap") {
			t.Errorf("the debug page does not name the kind: %s", text)
		}
		must(t, two.RemoveInformer(t.Context(), &corev1.ConfigMap{}))
		time.Sleep(time.Second)
		if got := waiting.caches.Load(); got != 1 {
			t.Errorf("the gauge is %d after one cache needs the kind no longer, want 1", got)
		}
		s.change(func() { s.scope = inNamespaces })
		time.Sleep(time.Minute)
		if got := waiting.caches.Load(); got != 0 || strings.Contains(page(), "v1.ConfigMap\":") {
			t.Errorf("the gauge is %d once the kind is served, want 0; the page: %s", got, page())
		}
	})
}

// A method that a decorator only promotes is that of the first upstream object, also after a switch. This test names
// those that a later release adds. What is in the list may stay so, for the reason that is given.
func TestPromotedMethods(t *testing.T) {
	own := map[string][]string{}
	files, err := filepath.Glob("*.go")
	must(t, err)
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") {
			source, err := os.ReadFile(file)
			must(t, err)
			methods := regexp.MustCompile(`(?m)^func \((?:\w+ )?\*?(\w+)\) (\w+)`)
			for _, method := range methods.FindAllStringSubmatch(string(source), -1) {
				own[method[1]] = append(own[method[1]], method[2])
			}
		}
	}
	for _, test := range []struct {
		decorator string
		of        reflect.Type
		may       []string
	}{
		{"followingClient", reflect.TypeFor[client.Client](), nil},
		{"followingWatch followingClient", reflect.TypeFor[client.WithWatch](), nil},
		{"followingSubResource", reflect.TypeFor[client.SubResourceClient](), nil},
		{"followingNamespaced", reflect.TypeFor[client.Client](),
			[]string{"GroupVersionKindFor", "IsObjectNamespaced", "RESTMapper", "Scheme"}},
		{"namespacedSubResource", reflect.TypeFor[client.SubResourceClient](), nil},
		{"followingCache", reflect.TypeFor[cache.Cache](), nil},
		// the first list, which a retired instance ends
		{"informer", reflect.TypeFor[cache.Informer](), []string{"HasSyncedChecker"}},
		{"sharedInformer informer", reflect.TypeFor[toolscache.SharedIndexInformer](), []string{"HasSyncedChecker",
			"GetController", "Run", "RunWithContext"}}, // upstream's cache calls these
		// only informers write
		{"currentIndexer", reflect.TypeFor[toolscache.Indexer](),
			[]string{"Add", "Update", "Delete", "Replace", "Resync",
				"Bookmark", "LastStoreSyncResourceVersion"}},
		{"handler", reflect.TypeFor[toolscache.ResourceEventHandlerRegistration](), []string{"HasSyncedChecker"}},
	} {
		var known []string
		for _, decorator := range strings.Fields(test.decorator) {
			known = append(known, own[decorator]...)
		}
		for i := range test.of.NumMethod() {
			if name := test.of.Method(i).Name; !slices.Contains(known, name) && !slices.Contains(test.may, name) {
				t.Errorf("%s of %s is only promoted: after a switch it is that of the old instance", name,
					test.decorator)
			}
		}
	}
}
