// SPDX-License-Identifier: Apache-2.0

package latekinds_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/freshmapper/freshmapper/manager/latekinds"
)

// TestRunnablesStartAfterTheCache adds, in setup, an index and a runnable that reads. The runnable
// starts when the informer has the objects, as in any manager.
func TestRunnablesStartAfterTheCache(t *testing.T) {
	var listed atomic.Bool
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Has("watch") { // no list in a watch either: the informer lists
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`))
			return
		}
		listed.Store(true)
		_, _ = w.Write([]byte(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`))
	}))
	defer api.Close()
	mapper := newTimes(1, corev1.SchemeGroupVersion.WithKind("ConfigMap"), widget)
	mgr, err := ctrl.NewManager(&rest.Config{Host: api.URL}, ctrl.Options{
		Metrics: server.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: ptr.To(true)},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil },
	})
	must(t, err)
	read := make(chan error, 1)
	must(t, latekinds.Add(mgr, latekinds.Options{Name: "reads", Kinds: []schema.GroupVersionKind{widget}}, func(mgr manager.Manager) error {
		err := mgr.GetFieldIndexer().IndexField(context.Background(), &corev1.ConfigMap{}, "x", func(client.Object) []string { return nil })
		if err != nil {
			return err
		}
		return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
			if !listed.Load() {
				t.Error("the runnable started before the cache had listed")
			}
			read <- mgr.GetClient().List(ctx, &corev1.ConfigMapList{})
			<-ctx.Done()
			return nil
		}))
	}))
	stop := start(t, mgr)
	if err := <-read; err != nil {
		t.Errorf("the runnable reads: %v", err)
	}
	stop()
}

// hangs is a mapper whose server never answers.
type hangs struct {
	*times
	asked chan struct{}
}

func (m hangs) RESTMapping(schema.GroupKind, ...string) (*meta.RESTMapping, error) {
	close(m.asked)
	select {}
}

func (m hangs) RESTMappingWithContext(ctx context.Context, _ schema.GroupKind, _ ...string) (*meta.RESTMapping, error) {
	close(m.asked)
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestProgramEndsWhileTheServerHangs(t *testing.T) {
	mapper := hangs{times: newTimes(0), asked: make(chan struct{})}
	mgr := newManager(t, mapper, &log{})
	must(t, latekinds.Add(mgr, latekinds.Options{Name: "hangs", Kinds: []schema.GroupVersionKind{widget}}, nil))
	stop := start(t, mgr)
	<-mapper.asked
	stop()
}

// adds keeps what is added.
type adds struct {
	manager.Manager
	controllers config.Controller
	added       manager.Runnable
}

func (m *adds) GetControllerOptions() config.Controller { return m.controllers }
func (m *adds) Add(r manager.Runnable) error            { m.added = r; return nil }

func TestLeaderElectionDefaultsToTheManagers(t *testing.T) {
	for name, test := range map[string]struct {
		managers, options *bool
		want              bool
	}{
		"neither":     {nil, nil, true},
		"the manager": {ptr.To(false), nil, false},
		"both":        {ptr.To(false), ptr.To(true), true},
	} {
		mgr := &adds{Manager: newManager(t, newTimes(0), &log{})}
		mgr.controllers = config.Controller{NeedLeaderElection: test.managers, SkipNameValidation: ptr.To(true)}
		opts := latekinds.Options{Name: "leader " + name, Kinds: []schema.GroupVersionKind{widget}, NeedLeaderElection: test.options}
		must(t, latekinds.Add(mgr, opts, nil))
		if got := mgr.added.(manager.LeaderElectionRunnable).NeedLeaderElection(); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestNameIsTakenOnce(t *testing.T) {
	opts := latekinds.Options{Name: "taken " + fmt.Sprint(time.Now().UnixNano()), // for go test -count
		Kinds: []schema.GroupVersionKind{widget}}
	mgr := &adds{Manager: newManager(t, newTimes(0), &log{})}
	must(t, latekinds.Add(mgr, opts, nil))
	if err := latekinds.Add(mgr, opts, nil); err == nil || !strings.Contains(err.Error(), "another Options.Name") {
		t.Errorf("a second controller of the name: %v", err)
	}
	mgr.controllers.SkipNameValidation = ptr.To(true)
	must(t, latekinds.Add(mgr, opts, nil))
}

// start starts the manager. The function that it returns ends it, and checks that it ends without an error.
func start(t *testing.T, mgr manager.Manager) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	return func() {
		t.Helper()
		cancel()
		must(t, <-ended)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
