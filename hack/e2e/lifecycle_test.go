// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/freshmapper/freshmapper/apiutil"
)

// newManager makes a manager of controller-runtime with a mapper that has these options, as
// README shows.
func newManager(t *testing.T, cfg *rest.Config, types *runtime.Scheme, options apiutil.DynamicRESTMapperOptions) (manager.Manager, *apiutil.DynamicRESTMapper) {
	t.Helper()
	httpClient, err := rest.HTTPClientFor(cfg)
	must(t, err)
	mapper, err := apiutil.NewDynamicRESTMapperWithOptions(cfg, httpClient, options)
	must(t, err)
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: types, Metrics: server.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil },
	})
	must(t, err)
	must(t, mgr.Add(mapper), mgr.AddHealthzCheck("restmapper", mapper.Healthz))
	return mgr, mapper
}

// run runs a manager, which must not end before the test does.
func run(t *testing.T, mgr manager.Manager) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		early := len(ended) > 0
		cancel()
		if err := <-ended; err != nil || early {
			t.Errorf("the manager has ended: %v; early: %t", err, early)
		}
	})
}

func startManager(t *testing.T, cfg *rest.Config, options apiutil.DynamicRESTMapperOptions) *apiutil.DynamicRESTMapper {
	t.Helper()
	mgr, mapper := newManager(t, cfg, scheme.Scheme, options)
	run(t, mgr)
	return mapper
}

// next receives changes until one is of that type and kind.
func next(t *testing.T, changes <-chan []apiutil.APIChange, want apiutil.APIChangeType, kind string) apiutil.APIChange {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		select {
		case batch := <-changes:
			for _, c := range batch {
				if c.Type == want && c.Mapping.GroupVersionKind.Kind == kind {
					return c
				}
			}
		case <-timeout:
			t.Fatalf("not told that %s was %s", kind, want)
		}
	}
}

// TestWatch follows a CRD through its life with WatchAPIs: nobody looks anything
// up, nothing is reset, and there is no interval.
func TestWatch(t *testing.T) {
	s, cfg := startServer(t.Context(), t)
	mapper := startManager(t, cfg, apiutil.DynamicRESTMapperOptions{WatchAPIs: true})
	ctx := t.Context()
	changes := mapper.Subscribe(ctx)
	next(t, changes, apiutil.APIAdded, "Pod")
	eventually(t, 10*time.Second, "the watches are open", func() bool { return mapper.Status().Watching })

	kind := Kind{Group: "watch.example.com", Kind: "Widget", Versions: []string{"v1"}}
	told := func(what string, want apiutil.APIChangeType, act func(context.Context, Kind) error) apiutil.APIChange {
		begun := time.Now()
		must(t, act(ctx, kind))
		change := next(t, changes, want, "Widget")
		t.Logf("%s: told after %v", what, time.Since(begun).Round(time.Millisecond))
		return change
	}
	told("CRD created", apiutil.APIAdded, s.Install)
	told("CRD deleted", apiutil.APIRemoved, s.Uninstall)
	kind.Cluster = true
	if again := told("CRD created with the other scope", apiutil.APIAdded, s.Install); again.Mapping.Scope != meta.RESTScopeRoot {
		t.Errorf("scope %s", again.Mapping.Scope.Name())
	}
	kind.Versions = []string{"v1", "v2"}
	told("CRD gains a version", apiutil.APIAdded, s.Install)
	told("CRD deleted", apiutil.APIRemoved, s.Uninstall)
}

// TestForbiddenWatch runs as a service account that may discover but not watch,
// until it may.
func TestForbiddenWatch(t *testing.T) {
	s, admin := startServer(t.Context(), t)
	cfg := rest.CopyConfig(admin)
	cfg.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:default:watcher", Groups: []string{"system:authenticated", "system:serviceaccounts"},
	}
	lines := &logged{}
	mapper := startManager(t, cfg, apiutil.DynamicRESTMapperOptions{
		RefreshInterval: 300 * time.Millisecond, WatchAPIs: true,
		Logger: funcr.New(lines.add, funcr.Options{}),
	})
	eventually(t, 10*time.Second, "the missing rule is logged for both resources", func() bool {
		return lines.count("customresourcedefinitions", "verbs list and watch") == 1 && lines.count("apiservices", "verbs list and watch") == 1
	})
	kind := Kind{Group: "rbac.example.com", Kind: "Widget", Versions: []string{"v1"}}
	changes := mapper.Subscribe(t.Context())
	must(t, s.Install(t.Context(), kind))
	next(t, changes, apiutil.APIAdded, "Widget") // by the interval
	if mapper.Status().Watching {
		t.Error("Watching without permission")
	}
	if n := lines.count("customresourcedefinitions", ""); n != 1 {
		t.Errorf("%d lines about customresourcedefinitions, want one", n)
	}
	permit(t, s)
	eventually(t, time.Minute, "it watches once it may", func() bool { return mapper.Status().Watching })
}

// permit applies the rules of README.
func permit(t *testing.T, s *Server) {
	t.Helper()
	name := metav1.ObjectMeta{Name: "restmapper-watch"}
	verbs := []string{"list", "watch"}
	role := &rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: verbs},
		{APIGroups: []string{"apiregistration.k8s.io"}, Resources: []string{"apiservices"}, Verbs: verbs},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: name,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: corev1.NamespaceDefault, Name: "watcher"}},
	}
	must(t, s.Client.Create(t.Context(), role), s.Client.Create(t.Context(), binding))
}

// logged collects lines of a logger.
type logged struct {
	mu    sync.Mutex
	lines []string
}

func (l *logged) add(prefix, args string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, prefix+" "+args)
}

// count counts the lines that have both texts.
func (l *logged) count(a, b string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, a) && strings.Contains(line, b) {
			n++
		}
	}
	return n
}

// Some interfaces are newer than the oldest apimachinery, which the root module
// requires. They are asserted here, because this module requires the newest.
var (
	_ meta.RESTMapperWithContext           = (*apiutil.DynamicRESTMapper)(nil)
	_ meta.ResettableRESTMapper            = (*apiutil.DynamicRESTMapper)(nil)
	_ meta.ResettableRESTMapperWithContext = (*apiutil.DynamicRESTMapper)(nil)
)
