// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestFilter(t *testing.T) {
	all := []schema.GroupVersionKind{
		{Version: "v1", Kind: "Secret"},
		{Group: "example.com", Version: "v1", Kind: "Widget"}, {Group: "example.com", Version: "v1beta1", Kind: "Widget"},
		{Group: "a.example.com", Version: "v1", Kind: "WidgetSet"},
	}
	for _, test := range []struct{ include, exclude, want string }{
		{"", "", "Secret.v1 Widget.v1.example.com Widget.v1beta1.example.com WidgetSet.v1.a.example.com"},
		{"Secret", "", "Secret.v1"},
		{"Secret.v1", "", "Secret.v1"},
		{"Widget", "", ""},
		{"Widget.example.com", "", "Widget.v1.example.com Widget.v1beta1.example.com"},
		{"Widget.v1.example.com", "", "Widget.v1.example.com"},
		{"*.v1beta1.*", "", "Widget.v1beta1.example.com"},
		{"Widget*", "*.v1beta1.example.com", "Widget.v1.example.com WidgetSet.v1.a.example.com"},
		{"*.example.com", "WidgetSet.a.example.com", "Widget.v1.example.com Widget.v1beta1.example.com"},
		{"*", "*.*", ""},
		{"", "Widget.example.com,Secret", "WidgetSet.v1.a.example.com"},
	} {
		var f filter
		for list, p := range map[string]*patterns{test.include: &f.include, test.exclude: &f.exclude} {
			if list == "" {
				continue
			}
			if err := p.Set(list); err != nil {
				t.Error(err)
			}
		}
		var got []string
		for _, gvk := range all {
			if f.has(gvk) {
				got = append(got, strings.TrimSuffix(gvk.Kind+"."+gvk.Version+"."+gvk.Group, "."))
			}
		}
		if got := strings.Join(got, " "); got != test.want {
			t.Errorf("include %q, exclude %q: got %q, want %q", test.include, test.exclude, got, test.want)
		}
	}
}

func TestReconcile(t *testing.T) {
	object := func(namespace, mark string, annotations map[string]string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "it", Labels: map[string]string{markLabel: mark}, Annotations: annotations,
		}}
	}
	source := object("from", markSource, map[string]string{toAnnotation: "a, foreign,from,a,b,c"})
	source.Data = map[string]string{"k": "v"}
	foreign := object("foreign", "", nil)
	stale := object("old", markCopy, map[string]string{ofAnnotation: "from/it"})
	other := object("other", markCopy, map[string]string{ofAnnotation: "elsewhere/it"})
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(source, foreign, stale, other).Build()
	recorded := events.NewFakeRecorder(10)
	r := &reconciler{gvk: corev1.SchemeGroupVersion.WithKind("ConfigMap"), copies: c, client: c, events: recorded, maxTargets: 3}
	reconcile := func() error {
		_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(source)})
		return err
	}

	if err := reconcile(); err == nil || !strings.Contains(err.Error(), "into namespace foreign: an object of that name") {
		t.Errorf("got %v", err)
	}
	wantNamespaces(t, c, "a b foreign from other")
	for _, want := range []string{"TooManyTargets 4 namespaces are more than -max-targets=3, left out: c", "MirrorFailed into namespace foreign"} {
		if got := <-recorded.Events; !strings.Contains(got, want) {
			t.Errorf("got event %q, want %q", got, want)
		}
	}
	if err := c.Delete(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	if err := reconcile(); err != nil {
		t.Error(err)
	}
	wantNamespaces(t, c, "foreign other")
}

// wantNamespaces checks where there are objects, and that copies are complete
// and no sources themselves.
func wantNamespaces(t *testing.T, c client.Client, want string) {
	t.Helper()
	var list corev1.ConfigMapList
	if err := c.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	var namespaces []string
	for _, cm := range list.Items {
		namespaces = append(namespaces, cm.Namespace)
		if cm.Annotations[ofAnnotation] == "from/it" &&
			(cm.Data["k"] != "v" || cm.Labels[markLabel] != markCopy || cm.Annotations[toAnnotation] != "") {
			t.Errorf("the copy in %s is %v", cm.Namespace, cm)
		}
	}
	if got := strings.Join(namespaces, " "); got != want {
		t.Errorf("got objects in %s, want %s", got, want)
	}
}

// fakeAPIs tells of the changes that it is sent, and knows only these.
type fakeAPIs chan []change

func (f fakeAPIs) Watch(ctx context.Context, changed func([]change)) {
	for {
		select {
		case changes := <-f:
			changed(changes)
		case <-ctx.Done():
			return
		}
	}
}

func (f fakeAPIs) RunWhileServed(ctx context.Context, run func(context.Context) error, _ ...schema.GroupVersionKind) error {
	return run(ctx)
}

var mirrorable = []string{"create", "delete", "get", "list", "patch", "update", "watch"}

func served(version, kind string, verbs ...string) change {
	gvk := schema.GroupVersionKind{Group: "example.com", Version: version, Kind: kind}
	return change{newResource(gvk, strings.ToLower(kind)+"s", true, verbs), true}
}

func gone(version, kind string) change {
	c := served(version, kind, mirrorable...)
	c.served = false
	return c
}

// A fixture is a program whose sources do what a test says.
type fixture struct {
	*sources
	tell fakeAPIs

	mu     sync.Mutex
	events []string // which sources have begun and ended
}

func (f *fixture) note(event string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, event)
}

// noted returns what has been noted by now, and forgets it.
func (f *fixture) noted() []string {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	events := f.events
	f.events = nil
	return events
}

// newFixture starts sources. Those of kind Bad fail, the others run until they are ended.
func newFixture(t *testing.T, kinds filter) *fixture {
	f := &fixture{tell: make(fakeAPIs)}
	f.sources = &sources{
		apis: f.tell, kinds: kinds, board: newBoard(logr.Discard(), time.Minute), maxFailures: 5, rest: time.Hour,
		run: func(ctx context.Context, gvk schema.GroupVersionKind) error {
			name := gvk.Kind + "." + gvk.Version
			f.note("+" + name)
			defer f.note("-" + name)
			if gvk.Kind == "Bad" {
				return errors.New("cannot list")
			}
			f.board.set(gvk.GroupKind().String(), running, "")
			<-ctx.Done()
			return nil
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- f.start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return f
}

// said sends changes and wants what begins and ends because of them.
func (f *fixture) said(t *testing.T, changes []change, want string) {
	t.Helper()
	f.noted()
	f.tell <- changes
	if got := strings.Join(f.noted(), " "); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func (f *fixture) wantState(t *testing.T, name string, want state, message string) {
	t.Helper()
	synctest.Wait()
	if got := f.board.list()[name]; got.State != want || !strings.Contains(got.Message, message) {
		t.Errorf("%s: got %v, want %s %s", name, got, want, message)
	}
}

func (f *fixture) ready() string {
	answer := httptest.NewRecorder()
	f.board.serveReady(answer, nil)
	return strings.TrimSpace(fmt.Sprintf("%d %s", answer.Code, answer.Body))
}

// A source is of the highest version that is selected. It begins anew with another one, or
// with other verbs, and only then.
func TestSourceFollowsVersionsAndVerbs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, filter{exclude: patterns{"*.v3.example.com", "Other*"}})
		f.said(t, []change{served("v1", "Widget", mirrorable...), served("v1", "Other", mirrorable...)}, "+Widget.v1")
		f.said(t, []change{served("v1beta1", "Widget", mirrorable...), served("v3", "Widget", mirrorable...)}, "")
		f.said(t, []change{served("v2", "Widget", mirrorable...)}, "-Widget.v1 +Widget.v2")
		f.said(t, []change{served("v2", "Widget", append(mirrorable, "deletecollection")...)}, "")
		f.said(t, []change{gone("v2", "Widget")}, "-Widget.v2 +Widget.v1")
		f.said(t, []change{served("v1", "Widget", "delete", "get", "list", "watch")}, "-Widget.v1")
		f.wantState(t, "Widget.example.com", notMirrorable, "the server does not know the verbs create, patch for this kind")
		f.said(t, []change{gone("v1", "Widget"), gone("v1beta1", "Widget")}, "")
		f.wantState(t, "Widget.example.com", notServed, "")
		f.said(t, []change{served("v1", "Widget", mirrorable...)}, "+Widget.v1")
		if got := f.board.list(); len(got) != 1 {
			t.Errorf("the board has %v", got)
		}
	})
}

// A kind that fails again and again is left alone, which readiness shows, and is tried once
// after each rest. Its count begins anew when it comes back.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, filter{})
		tries := func(d time.Duration, want int) {
			t.Helper()
			f.noted()
			time.Sleep(d)
			if got := len(f.noted()) / 2; got != want {
				t.Errorf("tried %d times in %s, want %d", got, d, want)
			}
		}
		f.said(t, []change{served("v1", "Bad", mirrorable...)}, "+Bad.v1 -Bad.v1")
		tries(time.Minute-time.Second, 4)
		f.wantState(t, "Bad.example.com", tripped, "failed 5 times in a row, tried again in 1h0m0s: cannot list")
		if want := "200 ok\nBad.example.com Tripped: failed 5 times in a row, tried again in 1h0m0s: cannot list"; f.ready() != want {
			t.Errorf("got %q, want %q", f.ready(), want)
		}
		tries(50*time.Minute, 0)
		tries(2*time.Hour, 2)
		f.said(t, []change{served("v2", "Bad", mirrorable...)}, "+Bad.v2 -Bad.v2")
		tries(time.Minute, 4)
	})
}

// Failures count only if the kind has not worked since the last one.
func TestBreakerForgetsAfterSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, filter{})
		tries := 0
		f.run = func(_ context.Context, gvk schema.GroupVersionKind) error {
			if tries++; tries%4 == 0 {
				f.board.set(gvk.GroupKind().String(), running, "")
				time.Sleep(time.Second)
			}
			return errors.New("now and then")
		}
		f.tell <- []change{served("v1", "Shaky", mirrorable...)}
		time.Sleep(time.Hour)
		if f.wantState(t, "Shaky.example.com", failed, "now and then"); tries < 500 {
			t.Errorf("%d tries", tries)
		}
	})
}

func TestReadyWaitsNoLongerThanSyncTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(logr.Discard(), time.Minute)
		b.set("Slow", starting, "")
		b.setListed()
		if err := b.ready(); err == nil || !strings.Contains(err.Error(), "Slow is starting") {
			t.Errorf("got %v", err)
		}
		time.Sleep(time.Minute + 1)
		if err := b.ready(); err != nil {
			t.Error(err)
		}
	})
}

func TestOptions(t *testing.T) {
	for args, want := range map[string]string{
		"-rescan=0": "-rescan must be positive", "-include=x": `"x" is no kind`, "-include=ConfigMap,": `"" is no kind`, "-exclude=Config[Map": "is no kind",
	} {
		if err := run(t.Context(), []string{args}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", args, err, want)
		}
	}
}

// If a kind may not be watched any more, its source fails, so that the breaker counts. If
// the server is down, the watch is tried again, and the source goes on.
func TestSourceFailsIfTheServerForbidsTheWatch(t *testing.T) {
	configMap := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	var watches atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if !r.URL.Query().Has("watch") {
			list := metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
			list.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadataList"))
			_ = json.NewEncoder(w).Encode(&list)
			return
		}
		err := apierrors.NewServiceUnavailable("down")
		if watches.Add(1) > 3 {
			err = apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", nil)
		}
		w.WriteHeader(int(err.ErrStatus.Code))
		_ = json.NewEncoder(w).Encode(err.Status())
	}))
	t.Cleanup(server.Close)
	mgr, err := ctrl.NewManager(&rest.Config{Host: server.URL}, ctrl.Options{
		Logger: logr.Discard(),
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
			mapper.Add(configMap, meta.RESTScopeNamespace)
			return mapper, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &source{mgr: mgr, board: newBoard(logr.Discard(), time.Minute), opts: options{maxTargets: 1, syncTimeout: time.Minute}}
	if err := s.mirror(t.Context(), configMap, ""); !apierrors.IsForbidden(err) || watches.Load() < 4 {
		t.Errorf("%v after %d watches", err, watches.Load())
	}
}
