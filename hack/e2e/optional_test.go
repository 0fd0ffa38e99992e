// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

// TestOptionalWatch runs the operator before the CRD of the kind that it also watches, with it, after its deletion,
// with it back in another scope and under another resource, and after the cluster was restored from an empty backup,
// of which no watch tells. It is never started again.
func TestOptionalWatch(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, _ := startServer(ctx, t)
	must(t, s.Install(ctx, widget))
	of := func(inMain []string) edits {
		return edits{"internal/controller/widget_controller.go": optionally, "main.go": inMain}
	}
	provider := build(ctx, t, "plain", "provider", of([]string{"ctrl.Options{\n", "ctrl.Options{\n\t\tMapperProvider: apiutil.NewDynamicRESTMapper,\n",
		"\n\texamplev1 ", "\n\t\"" + ours + "/apiutil\"\n\n\texamplev1 "}))
	operators := map[string]*optional{
		"fresh":               {program: build(ctx, t, "plain", "provider", of(withFresh))},
		"fork":                {program: build(ctx, t, "plain", "fork", of(nil))},
		"provider":            {program: provider}, // with the cache of controller-runtime
		"provider-namespaces": {program: provider, args: []string{"-namespaces", "default,kube-system"}},
	}
	for name, o := range operators {
		o.name, o.probes = name, freeAddress(ctx, t)
		o.Process = start(ctx, t, o.program, s.Kubeconfig, append(o.args, "-class", name, "-health-probe-bind-address", o.probes)...)
		must(t, s.Make(ctx, widget, name, func(obj *unstructured.Unstructured) { obj.Object["spec"] = map[string]any{"size": 1, "class": name} }))
	}
	each := func(saw string, ready bool) {
		t.Helper()
		for _, o := range operators {
			o.awaits(t, saw, ready)
		}
	}
	each("Saw 0 Gadgets, absent: true, other error: false", false)
	cluster, gadgetries := gadget, gadget
	cluster.Cluster, gadgetries.Plural = true, "gadgetries"
	for i, kind := range []Kind{gadget, cluster, gadgetries, gadget, cluster} {
		must(t, s.Install(ctx, kind))
		for name := range operators {
			must(t, s.Make(ctx, kind, fmt.Sprint(name, "-", i), func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"widget": name}) }))
		}
		each("Saw 1 Gadgets, absent: false, other error: false", true)
		if i == 3 {
			for _, o := range operators {
				o.wantOnlyMissingPaths(t)
			}
			must(t, s.Empty(ctx))
		} else {
			must(t, s.Uninstall(ctx, kind))
		}
		each("Saw 0 Gadgets", false)
	}
	for name, o := range operators {
		starts := slices.DeleteFunc(o.lines(), func(l Line) bool { return l.Msg != "Starting the manager" })
		if len(starts) != 1 || o.cmd.ProcessState != nil {
			t.Errorf("%s was started %d times, ended: %v; want one start and no end", name, len(starts), o.cmd.ProcessState)
		}
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

// wantOnlyMissingPaths fails the test if the operator has logged another error than that of a reflector whose path is gone.
func (o *optional) wantOnlyMissingPaths(t *testing.T) {
	t.Helper()
	for _, line := range o.lines() {
		if line.Level == "error" && !strings.Contains(line.Msg+line.Error, "the server could not find the requested resource") {
			t.Errorf("%s logs the error %s: %s", o.name, line.Msg, line.Error)
		}
	}
}

// awaits waits until a reconcile of the operator's Widget has written a line that begins with a text, and until it
// says that it is ready, or that it is not.
func (o *optional) awaits(t *testing.T, text string, ready bool) {
	t.Helper()
	var all []Line
	eventually(t, o.name+": "+text, func() bool {
		all = o.lines()
		return slices.ContainsFunc(all[o.seen:], func(l Line) bool { return l.Name == o.name && strings.HasPrefix(l.Msg, text) })
	})
	o.seen = len(all)
	eventually(t, fmt.Sprintf("%s: ready: %t", o.name, ready), func() bool {
		code, _, err := httpDo(t.Context(), http.MethodGet, o.probes, "/readyz")
		return err == nil && (code == http.StatusOK) == ready
	})
}
