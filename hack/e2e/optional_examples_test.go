// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	examplev1 "example.com/plain/api/v1"
	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/fresh"
	"github.com/freshmapper/freshmapper/manager/latekinds"
)

// The examples of docs/optional-kinds.md. Each is run here on a real API server.

// TestOptionalOwned has the manager of an operator that owns Widgets, if there are any.
func TestOptionalOwned(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, cfg := startServer(ctx, t)
	mgr := freshManager(t, cfg, manager.Options{Scheme: withWidgets(t), Controller: config.Controller{EnableWarmup: ptr.To(true)}})
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner", Namespace: metav1.NamespaceDefault}}
	must(t, s.Client.Create(ctx, owner))
	r := &seen{}
	must(t, setUpOwner(mgr, r))
	run(t, mgr)
	eventually(t, within, "the controller runs before the kind is there", func() bool { return r.took("owner") })
	for i := range 2 {
		must(t, s.Install(ctx, widget), s.Make(ctx, widget, "owned", func(o *unstructured.Unstructured) {
			o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, Controller: ptr.To(true)}})
		}))
		eventually(t, time.Minute, fmt.Sprint("the owner is told of its Widget ", i), func() bool { return r.took("owner") })
		list := &examplev1.WidgetList{}
		eventually(t, within, "the index", func() bool {
			return mgr.GetCache().List(ctx, list, client.MatchingFields{"spec.class": ""}) == nil && len(list.Items) == 1
		})
		must(t, s.Uninstall(ctx, widget))
		eventually(t, time.Minute, "the owner is told that it is gone", func() bool { return r.took("owner") })
	}
}

func withWidgets(t *testing.T) *runtime.Scheme {
	t.Helper()
	types := runtime.NewScheme()
	must(t, examplev1.AddToScheme(types), scheme.AddToScheme(types))
	return types
}

func setUpOwner(mgr ctrl.Manager, r reconcile.Reconciler) error {
	// Example "owned" begins.
	widgets := latekinds.Kind(mgr, &examplev1.Widget{}, handler.TypedEnqueueRequestForOwner[*examplev1.Widget](
		mgr.GetScheme(), mgr.GetRESTMapper(), &corev1.ConfigMap{}, handler.OnlyControllerOwner()))
	widgets.IndexField("spec.class", func(o client.Object) []string { return []string{o.(*examplev1.Widget).Spec.Class} })
	return ctrl.NewControllerManagedBy(mgr).
		For(&corev1.ConfigMap{}).
		WatchesRawSource(widgets).
		Complete(r)
	// Example "owned" ends.
}

// TestIsServedExample asks once, at the start, in each state of a CRD, and in an outage.
func TestIsServedExample(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, cfg := startServer(ctx, t)
	mapper := newMapper(t, cfg)
	ask := func() (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		added, err := false, error(nil)
		err = addIfServed(ctx, mapper, func() error { added = true; return nil })
		return added, err
	}
	for _, want := range []bool{false, true, false, true} {
		if added, err := ask(); added != want || err != nil {
			t.Errorf("the controller was added: %t, %v; want %t", added, err, want)
		}
		if want {
			must(t, s.Uninstall(ctx, widget))
		} else {
			must(t, s.Install(ctx, widget))
		}
	}
	revive := s.Kill()
	if added, err := ask(); added || err == nil {
		t.Errorf("in an outage the controller was added: %t, %v; want an error", added, err)
	}
	must(t, revive(ctx))
}

func newMapper(t *testing.T, cfg *rest.Config) *apiutil.DynamicRESTMapper {
	t.Helper()
	httpClient, err := rest.HTTPClientFor(cfg)
	must(t, err)
	mapper, err := apiutil.NewDynamicRESTMapperWithOptions(cfg, httpClient, apiutil.DynamicRESTMapperOptions{})
	must(t, err)
	return mapper
}

func addIfServed(ctx context.Context, mapper *apiutil.DynamicRESTMapper, addController func() error) error {
	// Example "served" begins.
	served, err := mapper.IsServed(ctx, examplev1.GroupVersion.WithKind("Widget"))
	if err != nil {
		return err // an outage: nobody knows
	}
	if served {
		return addController()
	}
	// Example "served" ends.
	return nil
}

// TestServedExample lists what is served, and looks for a kind by its name alone.
func TestServedExample(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, cfg := startServer(ctx, t)
	other := Kind{Group: "example.org", Kind: "Widget", Versions: []string{"v2", "v1"}}
	must(t, s.Install(ctx, widget), s.Install(ctx, other))
	mapper := newMapper(t, cfg)
	found, err := groupsOf(ctx, mapper)
	must(t, err)
	if want := []string{"example.org/v1 widgets", "example.org/v2 widgets", "plain.example.com/v1 widgets"}; !slices.Equal(slices.Sorted(slices.Values(found)), want) {
		t.Errorf("found %q, want %q", found, want)
	}
	all, err := mapper.Served(ctx)
	must(t, err)
	t.Logf("%d kinds are served, generation %d", len(all.Kinds), all.Generation)

	_, err = mapper.RESTMapping(schema.GroupKind{Group: widget.Group, Kind: widget.Kind}, "v3")
	if hint := explain(mapper, err); !strings.Contains(hint, "Widget: ") || !strings.Contains(hint, "plain.example.com/v1") || !strings.Contains(hint, "example.org/v2") {
		t.Errorf("the hint is %q", hint)
	}
}

func groupsOf(ctx context.Context, mapper *apiutil.DynamicRESTMapper) (found []string, err error) {
	// Example "search" begins.
	all, err := mapper.Served(ctx, "Widget") // in any group; without a name: everything
	for _, kind := range all.Kinds {
		found = append(found, kind.Mapping.GroupVersionKind.GroupVersion().String()+" "+kind.Mapping.Resource.Resource)
	}
	// Example "search" ends.
	return found, err
}

func explain(mapper *apiutil.DynamicRESTMapper, err error) string {
	// Example "hint" begins.
	if hint := mapper.NoMatchHint(err); hint != "" {
		return fmt.Sprintf("%v; served are %s", err, hint)
	}
	// Example "hint" ends.
	return ""
}

// TestStartExample starts a program before its server is there, and before its kinds are.
func TestStartExample(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	s, cfg := startServer(ctx, t)
	revive := s.Kill()
	lines := &logged{}
	ended := make(chan error, 1)
	mapper := newMapper(t, cfg)
	go func() {
		ended <- awaitStart(ctx, mapper, funcr.New(lines.add, funcr.Options{}), 2*time.Second, examplev1.GroupVersion.WithKind("Widget"))
	}()
	eventually(t, time.Minute, "a line while the server is away", func() bool { return lines.count("Still waiting", "plain.example.com/v1") > 0 })
	must(t, revive(ctx), s.Install(ctx, widget), <-ended)
	absent := examplev1.GroupVersion.WithKind("Absent")
	if err := awaitStart(ctx, mapper, logr.Discard(), time.Second, absent); err == nil || !strings.Contains(err.Error(), "Absent") {
		t.Errorf("a kind that never comes: %v", err)
	}
}

// Example "start" begins.

// awaitStart waits until the server answers and serves the kinds, 10 minutes at most if every is a minute.
func awaitStart(ctx context.Context, mapper *apiutil.DynamicRESTMapper, log logr.Logger, every time.Duration, kinds ...schema.GroupVersionKind) (err error) {
	for range 10 {
		waiting, cancel := context.WithTimeout(ctx, every)
		err = mapper.WaitForKinds(waiting, kinds...)
		if cancel(); err == nil || ctx.Err() != nil {
			return err
		}
		log.Info("Still waiting for the server and its kinds", "reason", err.Error())
	}
	return err
}

// Example "start" ends.

// TestOptionalWebhookExample has a webhook of a kind that is absent, and a cache with options for it.
func TestOptionalWebhookExample(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, cfg := startServer(ctx, t)
	certificates := t.TempDir()
	crt, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
	must(t, err, os.WriteFile(filepath.Join(certificates, "tls.crt"), crt, 0o600), os.WriteFile(filepath.Join(certificates, "tls.key"), key, 0o600))
	options := ctrl.Options{Scheme: withWidgets(t), WebhookServer: webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port(ctx, t), CertDir: certificates})}
	options.Metrics.BindAddress = "0"
	mgr, err := newWebhookManager(cfg, options)
	must(t, err)
	run(t, mgr)
	review := `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","operation":"CREATE",
		"kind":{"group":"plain.example.com","version":"v1","kind":"Widget"},"object":{"apiVersion":"plain.example.com/v1","kind":"Widget","spec":{"size":-1}}}}`
	answer := httptest.NewRecorder()
	req := httptest.NewRequest(http.MethodPost, "/validate-plain-example-com-v1-widget", bytes.NewBufferString(review))
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
	eventually(t, within, "the cache has what its options say", func() bool {
		return mgr.GetClient().List(ctx, list) == nil && len(list.Items) == 1 && list.Items[0].Name == "mine"
	})

	// Upstream's cache needs the kind when it is made.
	absent := cache.Options{Scheme: withWidgets(t), Mapper: newMapper(t, cfg), ByObject: map[client.Object]cache.ByObject{&examplev1.Widget{}: {Namespaces: map[string]cache.Config{"default": {}}}}}
	must(t, s.Uninstall(ctx, widget))
	if _, err := cache.New(cfg, absent); !meta.IsNoMatchError(err) {
		t.Errorf("cache.New with an absent kind in ByObject: %v, want NoMatch", err)
	}
	_, err = fresh.NewCache(cfg, absent)
	must(t, err)
}

func port(ctx context.Context, t *testing.T) (n int) {
	t.Helper()
	_, err := fmt.Sscanf(freeAddress(ctx, t), "127.0.0.1:%d", &n)
	must(t, err)
	return n
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

// docs/optional-kinds.md shows what is run above.
func TestOptionalKindsInDocs(t *testing.T) {
	examples := regexp.MustCompile(`(?s)\t*// Example "(\w+)" begins\.\n+(.*?)\n+\t*// Example "(\w+)" ends\.`).
		FindAllStringSubmatch(document(t, "hack/e2e/optional_examples_test.go"), -1)
	if len(examples) != 6 {
		t.Errorf("%d examples", len(examples))
	}
	for _, example := range examples {
		text := strings.TrimPrefix(strings.ReplaceAll("\n"+example[2], "\n\t", "\n"), "\n")
		if example[1] == "start" {
			text = example[2]
		}
		if example[1] != example[3] || !strings.Contains(document(t, "docs/optional-kinds.md"), "```go\n"+text+"\n```") {
			t.Errorf("docs/optional-kinds.md does not have the example %q:\n%s", example[1], text)
		}
	}
}
