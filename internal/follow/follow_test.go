// SPDX-License-Identifier: Apache-2.0

package follow_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/internal/follow"
)

var things = schema.GroupResource{Group: "example.com", Resource: "things"}

// textReply is the error that client-go makes of an answer that is text.
func textReply(code int, body string) error {
	return apierrors.NewGenericServerResponse(code, "GET", things, "one", body, 0, true)
}

// What an answer says about the mapping.
func TestReplyOf(t *testing.T) {
	withoutDetails := metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound}
	for name, err := range map[string]error{
		"the server's own text for a path that it does not serve": textReply(http.StatusNotFound, "404 page not found"),
		"a Status without details, from Kubernetes 1.38 on":       &apierrors.StatusError{ErrStatus: withoutDetails},
		"details without a name":                                  apierrors.NewNotFound(things, ""),
		"client-go refuses to send a request without a namespace": errors.New(
			"an empty namespace may not be set when a resource name is provided"),
	} {
		if got := follow.ReplyOf(err); got != follow.ReplyContradicts {
			t.Errorf("%s: %v, want that it contradicts the mapping", name, got)
		}
	}

	for name, err := range map[string]error{
		"an object that is not there": apierrors.NewNotFound(things, "one"),
		"the same, wrapped":           fmt.Errorf("get it: %w", apierrors.NewNotFound(things, "one")),
		"a gateway's text":            textReply(http.StatusNotFound, "no such service"),
	} {
		if got := follow.ReplyOf(err); got != follow.ReplyNotFound {
			t.Errorf("%s: %v, want that something was not found", name, got)
		}
	}

	for name, err := range map[string]error{
		"no error":  nil,
		"forbidden": apierrors.NewForbidden(things, "one", nil),
		"an outage": textReply(http.StatusServiceUnavailable, "404 page not found"),
		"no answer": errors.New("connection refused"),
	} {
		if got := follow.ReplyOf(err); got != follow.ReplyFits {
			t.Errorf("%s: %v, want that it does not speak against the mapping", name, got)
		}
	}
}

// An object that does not fit the scope contradicts the mapping with which it was listed.
func TestReplyOfList(t *testing.T) {
	listed := func(namespace string) *metav1.PartialObjectMetadataList {
		object := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}
		return &metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{object}}
	}
	empty := &metav1.PartialObjectMetadataList{}
	namespaced := &meta.RESTMapping{Scope: meta.RESTScopeNamespace}
	clusterScoped := &meta.RESTMapping{Scope: meta.RESTScopeRoot}
	for name, got := range map[string]follow.Reply{
		"namespaced, no object":                         follow.ReplyOfList(namespaced, empty, nil),
		"namespaced, an object in a namespace":          follow.ReplyOfList(namespaced, listed("ns"), nil),
		"cluster-scoped, no object":                     follow.ReplyOfList(clusterScoped, empty, nil),
		"cluster-scoped, an object without a namespace": follow.ReplyOfList(clusterScoped, listed(""), nil),
	} {
		if got != follow.ReplyFits {
			t.Errorf("%s: %v, want that it fits", name, got)
		}
	}

	for name, got := range map[string]follow.Reply{
		"namespaced, an object without a namespace": follow.ReplyOfList(namespaced, listed(""), nil),
		"cluster-scoped, an object in a namespace":  follow.ReplyOfList(clusterScoped, listed("ns"), nil),
	} {
		if got != follow.ReplyContradicts {
			t.Errorf("%s: %v, want that it contradicts the mapping", name, got)
		}
	}
}

// The namespace of a request is that of objects of its type, and of its kind if the type does not say that: what asks
// for other objects with the same context is about no namespace. A write counts whatever is written.
func TestNamespaceIsThatOfTheRequestedType(t *testing.T) {
	unstructuredOf := func(kind string) *unstructured.Unstructured {
		obj := &unstructured.Unstructured{}
		obj.SetGroupVersionKind(testVersion.WithKind(kind))
		return obj
	}
	metadataOf := func(kind string) *metav1.PartialObjectMetadata {
		obj := &metav1.PartialObjectMetadata{}
		obj.SetGroupVersionKind(testVersion.WithKind(kind))
		return obj
	}
	secretSaying := func(kind string) *corev1.Secret {
		obj := &corev1.Secret{}
		obj.SetGroupVersionKind(testVersion.WithKind(kind))
		return obj
	}
	for _, test := range []struct {
		name        string
		of, another any
		want        string
	}{
		{"a copy", unstructuredOf("Foo"), unstructuredOf("Foo"), "ns"},
		{"unstructured, of another kind", unstructuredOf("Foo"), unstructuredOf("Bar"), ""},
		{"metadata of another kind", metadataOf("Foo"), metadataOf("Bar"), ""},
		{"metadata of the same kind", unstructuredOf("Foo"), metadataOf("Foo"), ""},
		{"another type", &corev1.Secret{}, &corev1.ConfigMap{}, ""},
		{"the same type, which need not say its kind", &corev1.Secret{}, secretSaying("Secret"), "ns"},
	} {
		ctx := follow.InNamespace(context.Background(), "ns", test.of)
		if got := follow.NamespaceOf(ctx, test.another); got != test.want {
			t.Errorf("%s: namespace %q, want %q", test.name, got, test.want)
		}
		if got := follow.NamespaceOfWrite(ctx); got != "ns" {
			t.Errorf("%s: namespace %q of a write, want ns", test.name, got)
		}
	}

	ctx := follow.InNamespace(context.Background(), "", unstructuredOf("Foo"))
	if got := follow.NamespaceOf(ctx, unstructuredOf("Foo")) + follow.NamespaceOfWrite(ctx); got != "" {
		t.Errorf("a request without a namespace has %q", got)
	}
}

// A program is told how many caches wait for a kind when one begins or ends to wait, and the log when one begins, or
// waits for another reason.
func TestWaitingKindsAreReported(t *testing.T) {
	var reported []int
	f := &follow.Followed{ReportWaiting: func(_ schema.GroupVersionKind, caches int) { reported = append(reported, caches) }}
	absent, forbidden := errors.New("absent"), errors.New("forbidden")
	for _, step := range []struct {
		cache   string
		reason  error
		changed bool
		want    []int // what is reported
	}{
		{"one", nil, false, nil},
		{"one", absent, true, []int{1}},
		{"one", errors.New("absent"), false, nil},
		{"one", forbidden, true, nil},
		{"two", forbidden, true, []int{2}},
		{"one", nil, false, []int{1}},
		{"one", nil, false, nil},
		{"two", nil, false, []int{0}},
		{"two", absent, true, []int{1}},
	} {
		reported = nil
		if changed := f.SetWaiting(step.cache, widget, step.reason); changed != step.changed {
			t.Errorf("cache %s waits: %v: the log says so: %t, want %t", step.cache, step.reason, changed, step.changed)
		}
		if !slices.Equal(reported, step.want) {
			t.Errorf("cache %s waits: %v: %v is reported, want %v", step.cache, step.reason, reported, step.want)
		}
	}

	if all := f.Waiting(); len(all) != 1 || !errors.Is(all[widget], absent) {
		t.Errorf("%v wait, want %v alone", all, widget)
	}
	f.SetWaiting("two", widget, nil)
	if all := f.Waiting(); len(all) > 0 {
		t.Errorf("%v wait, want none", all)
	}
	new(follow.Followed).SetWaiting("one", widget, absent) // nobody is told
}

// A pinned mapper has one mapping, also for the lists of its kind. What else there is it asks another mapper.
func TestPinnedMapper(t *testing.T) {
	other := meta.NewDefaultRESTMapper(nil)
	for _, version := range []string{"v1", "v2"} {
		for _, kind := range []string{"Widget", "WidgetList", "Gadget"} {
			other.Add(schema.GroupVersionKind{Group: widget.Group, Version: version, Kind: kind}, meta.RESTScopeNamespace)
		}
	}
	pinned := follow.PinnedMapper{RESTMapper: other, Mapping: clusterScopedWidget()}
	for _, test := range []struct {
		kind     string
		versions []string
		resource string
		scope    meta.RESTScopeName
	}{
		{"Widget", []string{"v1"}, "widgets", meta.RESTScopeNameRoot},
		{"WidgetList", []string{"v1"}, "widgets", meta.RESTScopeNameRoot},
		{"Gadget", []string{"v1"}, "gadgets", meta.RESTScopeNameNamespace},
		{"Widget", []string{"v2"}, "widgets", meta.RESTScopeNameNamespace},
		{"WidgetList", []string{"v2"}, "widgetlists", meta.RESTScopeNameNamespace},
		{"Widget", []string{"v2", "v1"}, "widgets", meta.RESTScopeNameNamespace},
	} {
		gk := schema.GroupKind{Group: widget.Group, Kind: test.kind}
		m, err := pinned.RESTMapping(gk, test.versions...)
		if err != nil {
			t.Errorf("%s in %q: %v", test.kind, test.versions, err)
			continue
		}
		want := gk.WithVersion(test.versions[0])
		if m.GroupVersionKind != want || m.Resource.Resource != test.resource || m.Scope.Name() != test.scope {
			t.Errorf("%s in %q: %v as %s, %s; want %v as %s, %s", test.kind, test.versions,
				m.GroupVersionKind, m.Resource.Resource, m.Scope.Name(), want, test.resource, test.scope)
		}
	}
	if clusterScopedWidget().GroupVersionKind != pinned.Mapping.GroupVersionKind {
		t.Error("the pinned mapping was changed")
	}
}

// wrapper is a mapper with the method Unwrap. It may wrap itself.
type wrapper struct{ meta.RESTMapper }

func (w *wrapper) Unwrap() meta.RESTMapper { return w.RESTMapper }

// Mappers that are not ours are not followed, nor are those that wrap themselves.
func TestOtherMappersAreNotFollowed(t *testing.T) {
	itself := &wrapper{}
	itself.RESTMapper = itself
	another := meta.NewDefaultRESTMapper(nil)
	for name, m := range map[string]meta.RESTMapper{
		"another":              another,
		"a wrapper of another": &wrapper{another},
		"a wrapper of nothing": &wrapper{},
		"a wrapper of itself":  itself,
		"nothing":              nil,
	} {
		if follow.Of(m, follow.WaitBriefly) != nil {
			t.Errorf("%s is followed", name)
		}
	}
}

// kindsTest are Kinds whose searches are counted. Secret has two kinds in their scheme.
type kindsTest struct {
	follow.Kinds
	t        *testing.T
	searches int
}

var testVersion = schema.GroupVersion{Version: "v1"}

func newKindsTest(t *testing.T) *kindsTest {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(testVersion, &corev1.ConfigMapList{})
	scheme.AddKnownTypeWithName(testVersion.WithKind("One"), &corev1.Secret{})
	scheme.AddKnownTypeWithName(testVersion.WithKind("Another"), &corev1.Secret{})
	k := &kindsTest{t: t}
	k.Scheme = scheme
	k.Find = func(obj runtime.Object, _ *runtime.Scheme) (schema.GroupVersionKind, error) {
		k.searches++
		return obj.GetObjectKind().GroupVersionKind(), nil
	}
	return k
}

// finds fails the test unless an object with the TypeMeta of one kind is found to be of another one.
func (k *kindsTest) finds(obj runtime.Object, says, want string) {
	k.t.Helper()
	obj.GetObjectKind().SetGroupVersionKind(testVersion.WithKind(says))
	got, err := k.Of(obj)
	if err != nil || got != testVersion.WithKind(want) {
		k.t.Errorf("the kind of a %T that says %q: %v, %v, want %s", obj, says, got, err, want)
	}
}

// The kind of a Go type is looked for once. That of a list is that of its objects.
func TestKindOfATypeIsLookedForOnce(t *testing.T) {
	k := newKindsTest(t)

	k.finds(&corev1.ConfigMapList{}, "ConfigMapList", "ConfigMap")
	k.finds(&corev1.ConfigMapList{}, "nothing asks", "ConfigMap")

	if k.searches != 1 {
		t.Errorf("%d searches for two lists of one type, want 1", k.searches)
	}
}

// A type that has several kinds leaves it to the object.
func TestKindOfATypeWithSeveralKinds(t *testing.T) {
	k := newKindsTest(t)

	k.finds(&corev1.Secret{}, "One", "One")
	k.finds(&corev1.Secret{}, "Another", "Another")

	if k.searches != 2 {
		t.Errorf("%d searches for two objects, want 2", k.searches)
	}
}

// What controller-runtime fills in for one client is filled in for several, and what the caller has set stays.
func TestDefaults(t *testing.T) {
	for set, want := range map[string]string{"": rest.DefaultKubernetesUserAgent(), "mine": "mine"} {
		var httpClient *http.Client
		var schemeOf *runtime.Scheme
		given := &rest.Config{Host: "http://fake.invalid", UserAgent: set}
		named, err := follow.Defaults(given, &httpClient, &schemeOf)
		if err != nil || named.UserAgent != want || httpClient == nil || schemeOf != scheme.Scheme {
			t.Errorf("with the user agent %q: %v, %q, %v, %p", set, err, named.UserAgent, httpClient, schemeOf)
		}
		if given.UserAgent != set {
			t.Errorf("the caller's config was changed to %q", given.UserAgent)
		}
	}
}
