// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/fresh"
	"github.com/freshmapper/freshmapper/manager/latekinds"
)

// gadget is the kind that the operators of TestOptionalWatch can do without.
var gadget = Kind{Group: "optional.example.com", Kind: "Gadget", Versions: []string{"v1"}}

// optionally makes the operator that kubebuilder scaffolds one that also watches Gadgets: what a
// developer writes into SetupWithManager, and a line of log to see it by. An object names its Widget by a label,
// because what is cluster-wide has no owner in a namespace.
var optionally = []string{
	"\n\t\"sigs.k8s.io/controller-runtime/pkg/log\"\n", `
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"github.com/freshmapper/freshmapper/manager/latekinds"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
`,
	"\treturn ctrl.NewControllerManagedBy(mgr).\n", `
	gadget := &metav1.PartialObjectMetadata{}
	gadget.SetGroupVersionKind(schema.GroupVersionKind{Group: "optional.example.com", Version: "v1", Kind: "Gadget"})
	gadgets := latekinds.Kind(mgr, gadget, handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, o *metav1.PartialObjectMetadata) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: "default", Name: o.GetLabels()["widget"]}}}
	}))
	gadgets.IndexField("widget", func(o client.Object) []string { return []string{o.GetLabels()["widget"]} })
	if err := mgr.AddReadyzCheck("gadgets", gadgets.Readyz); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		WatchesRawSource(gadgets).
`,
	"\twidget := &examplev1.Widget{}\n", `	gadgets := &metav1.PartialObjectMetadataList{}
	gadgets.SetGroupVersionKind(schema.GroupVersionKind{Group: "optional.example.com", Version: "v1", Kind: "GadgetList"})
	err := r.List(ctx, gadgets, client.MatchingFields{"widget": req.Name})
	log.FromContext(ctx).Info(fmt.Sprintf("Saw %d Gadgets, absent: %t, other error: %t", len(gadgets.Items), meta.IsNoMatchError(err), err != nil && !meta.IsNoMatchError(err)))
	widget := &examplev1.Widget{}
`,
}

// buildOptional builds that operator, with fresh.NewManager or on the fork.
func buildOptional(ctx context.Context, t *testing.T, fork bool, inMain ...string) string {
	t.Helper()
	copied, binary := copyOf(t, "plain"), filepath.Join(t.TempDir(), "optional")
	for file, edits := range map[string][]string{"internal/controller/widget_controller.go": optionally, "main.go": inMain} {
		file = filepath.Join(copied, file)
		text, err := os.ReadFile(file)
		must(t, err)
		must(t, os.WriteFile(file, []byte(strings.NewReplacer(edits...).Replace(string(text))), 0o644))
	}
	if fork {
		runGo(ctx, t, root, "run", "./hack/fork", "-nobuild", "-into", copied)
	}
	absolute, err := filepath.Abs(root)
	must(t, err)
	runGo(ctx, t, copied, "mod", "edit", "-replace="+ours+"="+absolute, "-replace="+ours+"/fresh="+absolute+"/fresh", "-replace="+ours+"/manager="+absolute+"/manager")
	runGo(ctx, t, copied, "mod", "tidy")
	runGo(ctx, t, copied, toBuild(binary, ".")...)
	return binary
}

// TestOptionalWatch runs the operator before the CRD of the kind that it also watches, with it, after its deletion,
// and with it back in another scope and under another resource, time after time. It is never started again.
func TestOptionalWatch(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, _ := startServer(ctx, t)
	must(t, s.Install(ctx, widget))
	provider := buildOptional(ctx, t, false, "ctrl.Options{\n", "ctrl.Options{\n\t\tMapperProvider: apiutil.NewDynamicRESTMapper,\n",
		"\n\texamplev1 ", "\n\t\""+ours+"/apiutil\"\n\n\texamplev1 ")
	operators := map[string]*optional{
		"fresh":               {program: buildOptional(ctx, t, false, "ctrl.NewManager(", "fresh.NewManager(", "\n\texamplev1 ", "\n\t\""+ours+"/fresh\"\n\n\texamplev1 ")},
		"fork":                {program: buildOptional(ctx, t, true)},
		"provider":            {program: provider}, // with the cache of controller-runtime
		"provider-namespaces": {program: provider, args: []string{"-namespaces", "default,kube-system"}},
	}
	for name, o := range operators {
		o.name, o.probes = name, freeAddress(ctx, t)
		o.Process = start(ctx, t, o.program, s.Kubeconfig, append(o.args, "-class", name, "-health-probe-bind-address", o.probes)...)
		must(t, s.Make(ctx, widget, name, func(obj *unstructured.Unstructured) { obj.Object["spec"] = map[string]any{"size": 1, "class": name} }))
	}
	each := func(saw string, ready bool) {
		for _, o := range operators {
			o.awaits(t, saw)
			o.isReady(t, ready)
		}
	}
	each("Saw 0 Gadgets, absent: true, other error: false", false)
	for i, kind := range []Kind{gadget, {Group: gadget.Group, Kind: gadget.Kind, Versions: gadget.Versions, Cluster: true}, {Group: gadget.Group, Kind: gadget.Kind, Versions: gadget.Versions, Plural: "gadgetries"}} {
		must(t, s.Install(ctx, kind))
		for name := range operators {
			must(t, s.Make(ctx, kind, fmt.Sprint(name, "-", i), func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"widget": name}) }))
		}
		each("Saw 1 Gadgets, absent: false, other error: false", true)
		must(t, s.Uninstall(ctx, kind))
		each("Saw 0 Gadgets", false)
	}
	for name, o := range operators {
		if n := len(o.with("Starting the manager")); n != 1 || o.cmd.ProcessState != nil {
			t.Errorf("%s was started %d times, ended: %v", name, n, o.cmd.ProcessState)
		}
		for text, n := range o.errors() { // a reflector whose path is gone says so
			if !strings.Contains(text, "the server could not find the requested resource") {
				t.Errorf("%s logs %d times the error %s", name, n, text)
			}
			t.Logf("%-20s %d times the error %s", name, n, text)
		}
		t.Logf("%-20s one start, %d lines about absence", name, len(o.with("An optional kind"))+len(o.with("Waiting for")))
	}
}

// optional is an operator of TestOptionalWatch.
type optional struct {
	*Process
	name, program string
	args          []string
	probes        string
	seen          int // lines of its log
}

// TestOptionalRestored restores a cluster from an empty backup: kind and objects go, and no watch tells of it. Those
// who watch are told of deletes, and the cache has nothing.
func TestOptionalRestored(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, cfg := startServer(ctx, t)
	must(t, s.Install(ctx, gadget), s.Make(ctx, gadget, "before", nil))
	deleted, reconciled, caches := map[string]*seen{}, map[string]*seen{}, map[string]cache.Cache{}
	for name, newManager := range map[string]func(*rest.Config, manager.Options) (manager.Manager, error){"fresh": fresh.NewManager, "provider": ctrl.NewManager} {
		options := manager.Options{MapperProvider: apiutil.NewDynamicRESTMapper, Metrics: server.Options{BindAddress: "0"}}
		options.Controller.SkipNameValidation = ptr.To(true)
		mgr, err := newManager(cfg, options)
		must(t, err)
		gone, there := &seen{}, &seen{}
		deleted[name], reconciled[name], caches[name] = gone, there, mgr.GetCache()
		whole := &unstructured.Unstructured{}
		whole.SetGroupVersionKind(schema.GroupVersionKind{Group: gadget.Group, Version: "v1", Kind: gadget.Kind})
		must(t, ctrl.NewControllerManagedBy(mgr).Named("optional").WatchesRawSource(latekinds.Kind(mgr, whole, handler.TypedFuncs[*unstructured.Unstructured, reconcile.Request]{
			CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[*unstructured.Unstructured], _ workqueue.TypedRateLimitingInterface[reconcile.Request]) {
				_, _ = there.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.Object)})
			},
			DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[*unstructured.Unstructured], _ workqueue.TypedRateLimitingInterface[reconcile.Request]) {
				_, _ = gone.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.Object)})
			},
		})).Complete(&seen{}))
		run(t, mgr)
		eventually(t, within, name+" is told of the object", func() bool { return there.took("before") })
	}
	must(t, s.Empty(ctx))
	for name, gone := range deleted {
		took := eventually(t, 2*time.Minute, name+" is told that it is deleted", func() bool { return gone.took("before") })
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: gadget.Group, Version: "v1", Kind: "GadgetList"})
		eventually(t, within, name+" reads nothing", func() bool {
			err := caches[name].List(ctx, list)
			return meta.IsNoMatchError(err) || err == nil && len(list.Items) == 0
		})
		t.Logf("%s: told after %v", name, took.Round(time.Second))
	}
	cluster := Kind{Group: gadget.Group, Kind: gadget.Kind, Versions: gadget.Versions, Cluster: true}
	must(t, s.Install(ctx, cluster), s.Make(ctx, cluster, "after", nil))
	for name, there := range reconciled {
		eventually(t, time.Minute, name+" is told of the new object", func() bool { return there.took("after") })
	}
}

// TestOptionalForbidden has a kind that is served and that the program may not list: the controller fails, as with
// any watch. While the same kind is absent it starts.
func TestOptionalForbidden(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, cfg := startServer(ctx, t)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return forbids{next} })
	for name, newManager := range map[string]func(*rest.Config, manager.Options) (manager.Manager, error){"fresh": fresh.NewManager, "provider": ctrl.NewManager} {
		for _, served := range []bool{false, true} {
			if served {
				must(t, s.Install(ctx, gadget))
			}
			options := manager.Options{MapperProvider: apiutil.NewDynamicRESTMapper, Metrics: server.Options{BindAddress: "0"}}
			options.Controller.SkipNameValidation, options.Controller.CacheSyncTimeout = ptr.To(true), 3*time.Second
			mgr, err := newManager(cfg, options)
			must(t, err)
			obj := &unstructured.Unstructured{}
			obj.SetGroupVersionKind(schema.GroupVersionKind{Group: gadget.Group, Version: "v1", Kind: gadget.Kind})
			must(t, ctrl.NewControllerManagedBy(mgr).Named("optional").
				WatchesRawSource(latekinds.Kind(mgr, obj, &handler.TypedEnqueueRequestForObject[*unstructured.Unstructured]{})).Complete(&seen{}))
			running, cancel := context.WithTimeout(ctx, 8*time.Second)
			err = mgr.Start(running)
			cancel()
			if failed := err != nil && strings.Contains(err.Error(), "timed out waiting for cache to be synced"); failed != served {
				t.Errorf("%s, served %t: the manager ended with %v", name, served, err)
			}
		}
		must(t, s.Uninstall(ctx, gadget))
	}
}

// forbids forbids what is below the group of gadgets.
type forbids struct{ next http.RoundTripper }

func (f forbids) RoundTrip(req *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(req.URL.Path, "/gadgets") {
		return f.next.RoundTrip(req)
	}
	answer := httptest.NewRecorder()
	answer.Header().Set("Content-Type", "application/json")
	answer.Header().Set("Audit-Id", "1")
	answer.WriteHeader(http.StatusForbidden)
	_, _ = answer.WriteString(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
	return answer.Result(), nil
}

// with returns the lines of the log whose message begins with a text.
func (p *Process) with(text string) (lines []Line) {
	for _, line := range p.lines() {
		if strings.HasPrefix(line.Msg, text) {
			lines = append(lines, line)
		}
	}
	return lines
}

func (p *Process) errors() map[string]int {
	all := map[string]int{}
	for _, line := range p.lines() {
		if line.Level == "error" {
			all[line.Msg+": "+line.Error]++
		}
	}
	return all
}

// awaits waits until a reconcile of the operator's Widget has written a line that begins with a text.
func (o *optional) awaits(t *testing.T, text string) {
	t.Helper()
	var all []Line
	eventually(t, time.Minute, o.name+": "+text, func() bool {
		all = o.lines()
		return slices.ContainsFunc(all[o.seen:], func(l Line) bool { return l.Name == o.name && strings.HasPrefix(l.Msg, text) })
	})
	o.seen = len(all)
}

// isReady waits until the operator says that it is ready, or that it is not.
func (o *optional) isReady(t *testing.T, want bool) {
	t.Helper()
	eventually(t, time.Minute, fmt.Sprintf("%s: ready: %t", o.name, want), func() bool {
		code, _, err := httpDo(t.Context(), http.MethodGet, o.probes, "/readyz")
		return err == nil && (code == http.StatusOK) == want
	})
}
