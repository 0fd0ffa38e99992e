// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/freshmapper/freshmapper/apiutil"
)

// newManager makes a manager of controller-runtime with a mapper that has these options, as README shows.
func newManager(t *testing.T, cfg *rest.Config, mapping apiutil.DynamicRESTMapperOptions, options ctrl.Options) (manager.Manager, *apiutil.DynamicRESTMapper) {
	t.Helper()
	options.Metrics.BindAddress = "0"
	options.MapperProvider = apiutil.DynamicRESTMapperProvider(mapping)
	mgr, err := ctrl.NewManager(cfg, options)
	must(t, err)
	mapper := mgr.GetRESTMapper().(*apiutil.DynamicRESTMapper)
	must(t, mgr.Add(mapper), mgr.AddHealthzCheck("restmapper", mapper.Healthz))
	return mgr, mapper
}

// run runs a manager, or a cache, which must not end before the test does.
func run(t *testing.T, mgr manager.Runnable) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		early := len(ended) > 0
		cancel()
		if err := <-ended; err != nil || early {
			t.Errorf("the manager, or its cache, has ended: %v; early: %t", err, early)
		}
	})
}

// next receives changes until one is of that type and of a Widget.
func next(t *testing.T, changes <-chan []apiutil.APIChange, want apiutil.APIChangeType) (found apiutil.APIChange) {
	t.Helper()
	eventually(t, fmt.Sprint("to be told that Widget was ", want), func() bool {
		select {
		case batch := <-changes:
			i := slices.IndexFunc(batch, func(c apiutil.APIChange) bool { return c.Type == want && c.Mapping.GroupVersionKind.Kind == "Widget" })
			if i >= 0 {
				found = batch[i]
			}
			return i >= 0
		default:
			return false
		}
	})
	return found
}

// TestWatch has two programs that watch: of an administrator, without an interval, which is told of a CRD through its
// life while nobody looks anything up; and of a service account that may discover but not watch, until it may.
func TestWatch(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, cfg := startServer(ctx, t)
	limited, lines := rest.CopyConfig(cfg), &logged{}
	limited.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:default:watcher", Groups: []string{"system:authenticated", "system:serviceaccounts"},
	}
	mgr, mapper := newManager(t, cfg, apiutil.DynamicRESTMapperOptions{WatchAPIs: true}, ctrl.Options{})
	run(t, mgr)
	mgr, forbidden := newManager(t, limited, apiutil.DynamicRESTMapperOptions{
		RefreshInterval: 300 * time.Millisecond, WatchAPIs: true, Logger: funcr.New(lines.add, funcr.Options{}),
	}, ctrl.Options{})
	run(t, mgr)
	changes, others := mapper.Subscribe(ctx), forbidden.Subscribe(ctx)
	eventually(t, "the watches are open", func() bool { return mapper.Status().Watching })
	eventually(t, "the missing rule is logged for both resources", func() bool {
		return lines.count("customresourcedefinitions", "verbs list and watch") == 1 && lines.count("apiservices", "verbs list and watch") == 1
	})

	kind := Kind{Group: "watch.example.com", Kind: "Widget", Versions: []string{"v1"}}
	must(t, s.Install(ctx, kind))
	next(t, changes, apiutil.APIAdded)
	next(t, others, apiutil.APIAdded) // by the interval
	if forbidden.Status().Watching {
		t.Error("the service account counts as watching, and may not")
	}
	if n := lines.count("customresourcedefinitions", ""); n != 1 {
		t.Errorf("%d lines about customresourcedefinitions; a missing rule is logged once", n)
	}
	permit(t, s)
	eventually(t, "the service account watches once it may", func() bool { return forbidden.Status().Watching })

	must(t, s.Uninstall(ctx, kind))
	next(t, changes, apiutil.APIRemoved)
	kind.Cluster = true
	must(t, s.Install(ctx, kind))
	if again := next(t, changes, apiutil.APIAdded); again.Mapping.Scope != meta.RESTScopeRoot {
		t.Errorf("the CRD came back cluster-scoped, and its kind is told with the scope %s", again.Mapping.Scope.Name())
	}
	kind.Versions = []string{"v1", "v2"}
	must(t, s.Install(ctx, kind))
	if added := next(t, changes, apiutil.APIAdded); added.Mapping.GroupVersionKind.Version != "v2" {
		t.Errorf("the CRD gained v2, and %s is told", added.Mapping.GroupVersionKind)
	}
	must(t, s.Uninstall(ctx, kind))
	next(t, changes, apiutil.APIRemoved)
}

// permit applies the rules of docs/options.md.
func permit(t *testing.T, s *Server) {
	t.Helper()
	name := metav1.ObjectMeta{Name: "restmapper-watch"}
	verbs := []string{"list", "watch"}
	must(t, s.Client.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: verbs},
		{APIGroups: []string{"apiregistration.k8s.io"}, Resources: []string{"apiservices"}, Verbs: verbs},
	}}), s.Client.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: name,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: corev1.NamespaceDefault, Name: "watcher"}},
	}))
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
