// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestKindSet(t *testing.T) {
	tests := map[string]struct{ want, err string }{
		"ConfigMap":                    {"ConfigMap", ""},
		"Widget.example.com,ConfigMap": {"ConfigMap,Widget.example.com", ""},
		"ConfigMap, Secret":            {"ConfigMap,Secret", ""},
		"configmaps":                   {"", `"configmaps" is no kind`},
		"ConfigMap,":                   {"", `"" is no kind`},
	}
	for input, test := range tests {
		var got kindSet
		err := got.Set(input)
		switch {
		case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
			t.Errorf("%q: got error %v, want %q", input, err, test.err)
		case test.err == "" && (err != nil || got.String() != test.want):
			t.Errorf("%q: got %q, %v, want %q", input, got, err, test.want)
		}
	}
}

func TestFilter(t *testing.T) {
	a, b := schema.GroupKind{Kind: "A"}, schema.GroupKind{Kind: "B"}
	for name, test := range map[string]struct {
		filter filter
		a, b   bool
	}{
		"all":     {filter{}, true, true},
		"include": {filter{include: kindSet{a: true}}, true, false},
		"exclude": {filter{exclude: kindSet{a: true}}, false, true},
		"both":    {filter{include: kindSet{a: true}, exclude: kindSet{a: true}}, false, false},
	} {
		if test.filter.has(a) != test.a || test.filter.has(b) != test.b {
			t.Errorf("%s: got %v, %v", name, test.filter.has(a), test.filter.has(b))
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

// fakeAPIs serves its kinds at once, and for ever.
type fakeAPIs []schema.GroupKind

func (f fakeAPIs) Served(ctx context.Context, found func([]schema.GroupKind)) {
	found(f)
	<-ctx.Done()
}

func (f fakeAPIs) Mapping(schema.GroupKind) (*meta.RESTMapping, error) {
	return nil, errors.ErrUnsupported
}

func (f fakeAPIs) RunWhileServed(ctx context.Context, run func(context.Context) error, kinds ...schema.GroupVersionKind) error {
	for _, kind := range f {
		if kind == kinds[0].GroupKind() {
			return run(ctx)
		}
	}
	<-ctx.Done()
	return nil
}

// One source fails, one is never served; the third goes on, and readiness waits
// for it alone.
func TestSourcesAreIsolated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good, bad, absent := schema.GroupKind{Kind: "Good"}, schema.GroupKind{Kind: "Bad"}, schema.GroupKind{Kind: "Absent"}
		b := newBoard(logr.Discard(), time.Minute)
		attempts := 0
		s := &sources{
			apis: fakeAPIs{good, bad}, board: b, kinds: filter{include: kindSet{good: true, bad: true, absent: true}},
			run: func(ctx context.Context, kind schema.GroupKind) error {
				if kind == bad {
					attempts++
					return errors.New("cannot list")
				}
				time.Sleep(time.Second)
				b.set(kind, running, "")
				<-ctx.Done()
				return nil
			},
		}
		if b.ready(nil) == nil {
			t.Error("ready before it is known what is served")
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.start(ctx) }()
		time.Sleep(time.Minute)

		if err := b.ready(nil); err != nil {
			t.Error(err)
		}
		for kind, want := range map[string]state{"Good": running, "Bad": failed, "Absent": notServed} {
			if got := b.list()[kind]; got.State != want {
				t.Errorf("%s: got %v, want %s", kind, got, want)
			}
		}
		if attempts < 4 || attempts > 8 {
			t.Errorf("the bad source was tried %d times in a minute", attempts)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestReadyIsPatientOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(logr.Discard(), time.Minute)
		b.set(schema.GroupKind{Kind: "Slow"}, starting, "")
		b.setListed()
		if err := b.ready(nil); err == nil || !strings.Contains(err.Error(), "Slow is starting") {
			t.Errorf("got %v", err)
		}
		time.Sleep(time.Minute + 1)
		if err := b.ready(nil); err != nil {
			t.Error(err)
		}
	})
}

func TestOptions(t *testing.T) {
	for args, want := range map[string]string{
		"-rescan=0": "-rescan must be positive", "-max-targets=-1": "-max-targets must be positive, not -1",
		"-include=x": "is no kind", "more": `unexpected argument "more"`,
	} {
		if err := run(t.Context(), []string{args}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", args, err, want)
		}
	}
}

func TestMissingVerb(t *testing.T) {
	list := &metav1.APIResourceList{APIResources: []metav1.APIResource{
		{Name: "good", Verbs: append([]string{"update"}, verbs...)}, {Name: "bad", Verbs: []string{"create"}},
	}}
	for name, want := range map[string]string{"good": "", "bad": "the server does not get bad", "absent": "the server does not list the resource absent"} {
		if got := missingVerb(list, name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
