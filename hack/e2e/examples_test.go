// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	examplev1 "example.com/plain/api/v1"
	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/apiutil/served"
	"github.com/freshmapper/freshmapper/fresh"
)

// The examples of docs/optional-crds.md. Each is run here on a real API server.

// TestControllersOfTheDocs has managers whose controllers are for Widgets, own Widgets and watch Widgets, which are not
// installed when the manager starts. The CRD is installed late, removed, and re-created as cluster-scoped, under another
// plural and as it was, also after the cluster was restored from an empty backup, of which no watch tells. No manager is
// started again.
func TestControllersOfTheDocs(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, cfg := startServer(ctx, t)
	type operator struct {
		manager.Manager
		widgets, owners, watched, apart seen
	}
	operators := map[string]*operator{}
	for name, namespaces := range map[string]map[string]cache.Config{"all": nil, "two namespaces": {"default": {}, "kube-system": {}}} {
		options := ctrl.Options{Scheme: withWidgets(t), Metrics: metricsserver.Options{BindAddress: "0"}}
		options.Controller = config.Controller{SkipNameValidation: ptr.To(true)}
		options.Cache.DefaultNamespaces = namespaces
		mgr, err := newManagerOfTheDocs(cfg, options)
		must(t, err)
		operators[name] = &operator{Manager: mgr}
	}
	each := func(when, what string, yes func(*operator) bool) {
		t.Helper()
		for name, o := range operators {
			eventually(t, name+", "+when+": "+what, func() bool { return yes(o) })
		}
	}
	var owner *corev1.ConfigMap
	has := func(o *operator) bool { return o.owners.took("owner") }
	makeOwner := func(when string) {
		owner = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner", Namespace: metav1.NamespaceDefault}}
		must(t, await(ctx, "the namespace of the owner", func() (bool, error) {
			err := s.Client.Create(ctx, owner)
			return err == nil, err
		}))
		each(when, "the owner is reconciled", has)
	}
	for _, o := range operators {
		must(t, setUpOwner(o, &o.owners), (&widgetReconciler{Client: o.GetClient(), seen: &o.widgets}).SetupWithManager(o),
			setUpWatch(o, &o.watched), addWhileServed(o, cfg, &o.apart))
		run(t, o)
	}
	makeOwner("before the kind is installed")
	each("before the kind is installed", "a read is NoMatch", func(o *operator) bool {
		return meta.IsNoMatchError(o.GetClient().List(ctx, &examplev1.WidgetList{}))
	})
	for i, kind := range []Kind{widget, clusterWidget, gizmo, widget, widget} {
		when := fmt.Sprint("CRD ", i)
		must(t, s.Install(ctx, kind), s.Make(ctx, kind, "owned", func(o *unstructured.Unstructured) {
			if !kind.Cluster { // else it has no owner in a namespace
				o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, Controller: ptr.To(true)}})
			}
		}))
		each(when, "the Widget is reconciled", func(o *operator) bool { return o.widgets.took("owned") })
		each(when, "the Widget is watched", func(o *operator) bool { return o.watched.took("owned") })
		each(when, "a controller that runs while the kind is served", func(o *operator) bool { return o.apart.took("owned") })
		each(when, "the index has it alone", func(o *operator) bool {
			list := &examplev1.WidgetList{}
			return o.GetCache().List(ctx, list, client.MatchingFields{"spec.class": ""}) == nil && len(list.Items) == 1
		})
		if !kind.Cluster {
			each(when, "the owner is told of its Widget", has)
		}
		if i == 3 {
			must(t, s.Empty(ctx))
			makeOwner("after the cluster was restored")
			continue
		}
		must(t, s.Uninstall(ctx, kind))
		if !kind.Cluster {
			each(when, "the owner is told that it is gone", has)
		}
		each(when, "a read is NoMatch", func(o *operator) bool {
			return meta.IsNoMatchError(o.GetClient().List(ctx, &examplev1.WidgetList{}))
		})
	}
}

func newManagerOfTheDocs(cfg *rest.Config, options ctrl.Options) (ctrl.Manager, error) {
	// Example "optional" begins.
	options.Cache.ByObject = map[client.Object]cache.ByObject{
		&examplev1.Widget{}: {}, // may be installed later, or never
	}
	mgr, err := fresh.NewManager(cfg, options)
	// Example "optional" ends.
	return mgr, err
}

func setUpWatch(mgr ctrl.Manager, seen *seen) error {
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(examplev1.GroupVersion.WithKind("Widget"))
	return ctrl.NewControllerManagedBy(mgr).Named("watch").For(&corev1.Secret{}).
		WatchesMetadata(metadata, &handler.EnqueueRequestForObject{}).
		Complete(seen)
}

func addWhileServed(mgr ctrl.Manager, cfg *rest.Config, seen *seen) error {
	mapper, ours := mgr.GetRESTMapper().(*apiutil.DynamicRESTMapper)
	if !ours {
		return fmt.Errorf("the mapper is a %T", mgr.GetRESTMapper())
	}
	// Example "while served" begins.
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		return served.RunWhile(ctx, mapper, func(ctx context.Context) error {
			inner, err := fresh.NewManager(cfg, ctrl.Options{
				Scheme:     mgr.GetScheme(),
				Metrics:    metricsserver.Options{BindAddress: "0"},             // the outer manager serves them
				Controller: config.Controller{SkipNameValidation: ptr.To(true)}, // the controller is made again
			})
			if err != nil {
				return err
			}
			if err := (&widgetReconciler{Client: inner.GetClient(), seen: seen}).SetupWithManager(inner); err != nil {
				return err
			}
			return inner.Start(ctx)
		}, examplev1.GroupVersion.WithKind("Widget"))
	}))
	// Example "while served" ends.
}

// widgetReconciler is as kubebuilder scaffolds it.
type widgetReconciler struct {
	client.Client
	seen *seen
}

func (r *widgetReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).For(&examplev1.Widget{}).Owns(&corev1.ConfigMap{}).Complete(r)
}

func (r *widgetReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if err := r.Get(ctx, req.NamespacedName, &examplev1.Widget{}); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	return r.seen.Reconcile(ctx, req)
}

func withWidgets(t *testing.T) *runtime.Scheme {
	t.Helper()
	types := runtime.NewScheme()
	must(t, examplev1.AddToScheme(types), scheme.AddToScheme(types))
	return types
}

func setUpOwner(mgr ctrl.Manager, r reconcile.Reconciler) error {
	// Example "owned" begins.
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &examplev1.Widget{}, "spec.class", func(o client.Object) []string {
		return []string{o.(*examplev1.Widget).Spec.Class}
	})
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		For(&corev1.ConfigMap{}).
		Owns(&examplev1.Widget{}).
		Complete(r)
	// Example "owned" ends.
}

// TestLookupsOfTheDocs asks for a kind before it is there, by all names, and while the server is away.
func TestLookupsOfTheDocs(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, cfg := startServer(ctx, t)
	mapper := newMapper(t, cfg)
	wantServed := func(when string, want bool) {
		t.Helper()
		added := false
		if err := addIfServed(ctx, mapper, func() error { added = true; return nil }); added != want || err != nil {
			t.Errorf("%s the controller was added: %t, %v; want %t", when, added, err, want)
		}
	}
	wantServed("before the CRD", false)
	other := Kind{Group: "example.org", Kind: "Widget", Versions: []string{"v2", "v1"}}
	must(t, s.Install(ctx, widget), s.Install(ctx, other))
	wantServed("with the CRD", true)

	found, err := groupsOf(ctx, mapper)
	must(t, err)
	slices.Sort(found)
	if want := []string{"example.org/v1 widgets", "example.org/v2 widgets", "plain.example.com/v1 widgets"}; !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
	_, err = mapper.RESTMapping(schema.GroupKind{Group: widget.Group, Kind: widget.Kind}, "v3")
	if hint := explain(mapper, err); !strings.Contains(hint, "Widget: ") || !strings.Contains(hint, "plain.example.com/v1") || !strings.Contains(hint, "example.org/v2") {
		t.Errorf("the hint is %q, want the groups and versions that have a Widget", hint)
	}

	must(t, s.Uninstall(ctx, widget))
	wantServed("after the CRD", false)
	revive := s.Kill()
	if err := addIfServed(ctx, mapper, func() error { return errors.New("the controller was added") }); err == nil || strings.Contains(err.Error(), "added") {
		t.Errorf("in an outage: %v; want the error of the outage", err)
	}
	lines, kind := &logged{}, examplev1.GroupVersion.WithKind("Widget")
	if err := awaitStart(ctx, mapper, funcr.New(lines.add, funcr.Options{}), 50*time.Millisecond, kind); err == nil || lines.count("Still waiting", "plain.example.com/v1") != 10 {
		t.Errorf("while the server is away: %v, after the lines %q; want an error after ten lines that name the kind", err, lines.lines)
	}
	ended := make(chan error, 1)
	go func() { ended <- awaitStart(ctx, mapper, logr.Discard(), patience, kind) }()
	must(t, revive(ctx), s.Install(ctx, widget), <-ended)
	absent := examplev1.GroupVersion.WithKind("Absent")
	if err := awaitStart(ctx, mapper, logr.Discard(), 100*time.Millisecond, absent); err == nil || !strings.Contains(err.Error(), "Absent") {
		t.Errorf("a kind that never comes: %v; want an error that names it", err)
	}
}

func addIfServed(ctx context.Context, mapper *apiutil.DynamicRESTMapper, addController func() error) error {
	// Example "served" begins.
	isServed, err := served.Is(ctx, mapper, examplev1.GroupVersion.WithKind("Widget"))
	if err != nil {
		return err // an outage: nobody knows
	}
	if isServed {
		return addController()
	}
	// Example "served" ends.
	return nil
}

func groupsOf(ctx context.Context, mapper *apiutil.DynamicRESTMapper) (found []string, err error) {
	// Example "search" begins.
	all, err := served.List(ctx, mapper, "Widget") // in any group; without a name: everything
	for _, kind := range all.Kinds {
		found = append(found, kind.Mapping.GroupVersionKind.GroupVersion().String()+" "+kind.Mapping.Resource.Resource)
	}
	// Example "search" ends.
	return found, err
}

func explain(mapper *apiutil.DynamicRESTMapper, err error) string {
	// Example "hint" begins.
	if hint := served.Hint(mapper, err); hint != "" {
		return fmt.Sprintf("%v; served are %s", err, hint)
	}
	// Example "hint" ends.
	return ""
}

// Example "start" begins.

// awaitStart waits until the server answers and serves the kinds, 10 minutes at most if every is a minute.
func awaitStart(ctx context.Context, mapper *apiutil.DynamicRESTMapper, log logr.Logger, every time.Duration, kinds ...schema.GroupVersionKind) (err error) {
	for range 10 {
		waiting, cancel := context.WithTimeout(ctx, every)
		err = served.Wait(waiting, mapper, kinds...)
		if cancel(); err == nil || ctx.Err() != nil {
			return err
		}
		log.Info("Still waiting for the server and its kinds", "reason", err.Error())
	}
	return err
}

// Example "start" ends.

// TestWebhookOfTheDocs has a webhook of a kind that is absent, and a cache with options for it.
func TestWebhookOfTheDocs(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, cfg := startServer(ctx, t)
	mgr, err := newWebhookManager(cfg, ctrl.Options{Scheme: withWidgets(t), Metrics: metricsserver.Options{BindAddress: "0"}})
	must(t, err)
	run(t, mgr.GetCache()) // the webhook server would need a certificate
	review := `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","operation":"CREATE",
		"kind":{"group":"plain.example.com","version":"v1","kind":"Widget"},"object":{"apiVersion":"plain.example.com/v1","kind":"Widget","spec":{"size":-1}}}}`
	answer, req := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/validate-plain-example-com-v1-widget", strings.NewReader(review))
	req.Header.Set("Content-Type", "application/json")
	mgr.GetWebhookServer().WebhookMux().ServeHTTP(answer, req)
	if !strings.Contains(answer.Body.String(), "size is negative") {
		t.Errorf("while the kind is absent, the webhook answers %s", answer.Body)
	}
	list := &examplev1.WidgetList{}
	if err := mgr.GetClient().List(ctx, list); !meta.IsNoMatchError(err) {
		t.Errorf("a list of the absent kind: %v, want NoMatch", err)
	}
	must(t, s.Install(ctx, widget))
	for _, name := range []string{"mine", "other"} {
		must(t, s.Make(ctx, widget, name, func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"for": name}) }))
	}
	eventually(t, "the cache has what its options say", func() bool {
		return mgr.GetClient().List(ctx, list) == nil && len(list.Items) == 1 && list.Items[0].Name == "mine"
	})
}

func newWebhookManager(cfg *rest.Config, options ctrl.Options) (ctrl.Manager, error) {
	// Example "webhook" begins.
	options.Cache.ByObject = map[client.Object]cache.ByObject{
		&examplev1.Widget{}: {Label: labels.SelectorFromSet(labels.Set{"for": "mine"})},
	}
	mgr, err := fresh.NewManager(cfg, options)
	if err != nil {
		return nil, err
	}
	return mgr, ctrl.NewWebhookManagedBy(mgr, &examplev1.Widget{}).WithValidator(widgetValidator{}).Complete()
	// Example "webhook" ends.
}

type widgetValidator struct{}

var _ admission.Validator[*examplev1.Widget] = widgetValidator{}

func (widgetValidator) ValidateCreate(_ context.Context, w *examplev1.Widget) (admission.Warnings, error) {
	if w.Spec.Size < 0 {
		return nil, apierrors.NewBadRequest("size is negative")
	}
	return nil, nil
}

func (v widgetValidator) ValidateUpdate(ctx context.Context, _, w *examplev1.Widget) (admission.Warnings, error) {
	return v.ValidateCreate(ctx, w)
}

func (widgetValidator) ValidateDelete(context.Context, *examplev1.Widget) (admission.Warnings, error) {
	return nil, errors.ErrUnsupported
}

// The documents show what is run above.
func TestExamplesAreInTheDocs(t *testing.T) {
	examples := regexp.MustCompile(`(?s)\t*// Example "([\w ]+)" begins\.\n+(.*?)\n+\t*// Example "([\w ]+)" ends\.`).
		FindAllStringSubmatch(document(t, "hack/e2e/examples_test.go"), -1)
	if len(examples) != 8 {
		t.Errorf("%d examples have a beginning and an end, want 8", len(examples))
	}
	documents := document(t, "docs/optional-crds.md")
	for _, example := range examples {
		text := strings.TrimPrefix(strings.ReplaceAll("\n"+example[2], "\n\t", "\n"), "\n")
		if example[1] == "start" { // a whole function
			text = example[2]
		}
		if example[1] != example[3] || !strings.Contains(documents, "```go\n"+text+"\n```") {
			t.Errorf("docs/optional-crds.md does not have the example %q:\n%s", example[1], text)
		}
	}
}
