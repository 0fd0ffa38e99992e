// SPDX-License-Identifier: Apache-2.0

package apiutil_test

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// bothModes are how a server speaks: the aggregated document, or one that only lists what there is.
var bothModes = map[string]fakeapi.Forms{"aggregated": fakeapi.Aggregated(), "legacy": fakeapi.Legacy()}

// eachMode runs test twice for each of the modes: with a 404 that is text, and with that of
// Kubernetes 1.38, which is a Status.
func eachMode(t *testing.T, modes map[string]fakeapi.Forms, test func(t *testing.T, forms fakeapi.Forms)) {
	for name, forms := range modes {
		for _, suffix := range []string{"", "-Status"} {
			forms.StatusNotFound = suffix != ""
			t.Run(name+suffix, func(t *testing.T) {
				defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
				test(t, forms)
			})
		}
	}
}

// modeOf returns the mode that eachMode runs a test for.
func modeOf(t *testing.T) string { return strings.TrimSuffix(path.Base(t.Name()), "-Status") }

// What newServer's servers serve to begin with.
var (
	fooKind   = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Foo"}
	barKind   = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Bar"}
	otherKind = schema.GroupVersionKind{Group: "other.example.com", Version: "v1", Kind: "Other"}

	// newKind is not served, and neither is lateKind, of a known group.
	newKind  = schema.GroupVersionKind{Group: "new.example.com", Version: "v1", Kind: "New"}
	lateKind = schema.GroupVersionKind{Group: "example.com", Version: "v2", Kind: "Late"}
)

func newServer(forms fakeapi.Forms) *fakeapi.Server {
	server := fakeapi.New(
		fakeGroup("", fakeVersion("v1", "Pod", "Node:cluster")),
		fakeGroup("example.com", fakeVersion("v1", "Foo", "Bar")),
		fakeGroup("other.example.com", fakeVersion("v1", "Other")),
	)
	server.SetForms(forms)
	return server
}

// serve makes the server serve the kind, alone in its version.
func serve(server *fakeapi.Server, gvk schema.GroupVersionKind) {
	server.PutVersion(gvk.Group, fakeVersion(gvk.Version, gvk.Kind))
}

func lookUp(m meta.RESTMapper, gvk schema.GroupVersionKind) error {
	_, err := m.RESTMapping(gvk.GroupKind(), gvk.Version)
	return err
}

// readAll makes the mapper read all that the server serves.
func readAll(t *testing.T, m *apiutil.DynamicRESTMapper) {
	t.Helper()
	m.Reset()
	if _, err := m.ResourcesFor(schema.GroupVersionResource{Resource: "pods"}); err != nil {
		t.Fatal(err)
	}
}

func wantServed(t *testing.T, m meta.RESTMapper, gvks ...schema.GroupVersionKind) {
	t.Helper()
	for _, gvk := range gvks {
		if err := lookUp(m, gvk); err != nil {
			t.Errorf("%s: %v", gvk, err)
		}
	}
}

func wantAbsent(t *testing.T, m meta.RESTMapper, gvks ...schema.GroupVersionKind) {
	t.Helper()
	for _, gvk := range gvks {
		if err := lookUp(m, gvk); !meta.IsNoMatchError(err) {
			t.Errorf("%s: %v; want NoMatch", gvk, err)
		}
	}
}

// wantRequests compares the requests since the last call with those wanted.
func wantRequests(t *testing.T, server *fakeapi.Server, what string, want ...string) {
	t.Helper()
	var got []string
	for _, r := range server.TakeRequests() {
		got = append(got, fmt.Sprintf("%s %d", r.Path, r.Code))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: requests %q; want %q", what, got, want)
	}
}

// startMapper calls Start in a goroutine. stop ends it and waits until it has returned.
func startMapper(t *testing.T, m *apiutil.DynamicRESTMapper) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	returned := make(chan error, 1)
	go func() { returned <- m.Start(ctx) }()
	return func() {
		t.Helper()
		if len(returned) > 0 {
			t.Error("Start returned before its context ended")
		}
		cancel()
		if err := <-returned; err != nil {
			t.Errorf("Start: %v", err)
		}
	}
}

// A testLog keeps the lines of a logger.
type testLog struct {
	mu    sync.Mutex
	lines []string
}

// newTestLog returns a log of lines such as `INFO "msg"="…"`, `ERROR …` and `V4 …`.
func newTestLog() (*testLog, logr.Logger) {
	l := &testLog{}
	return l, funcr.New(l.add, funcr.Options{Verbosity: 10})
}

func (l *testLog) add(_, args string) {
	level, rest := "ERROR", args
	if _, after, ok := strings.Cut(args, `"level"=`); ok {
		number, text, _ := strings.Cut(after, " ")
		level, rest = "V"+number, text
		if number == "0" {
			level = "INFO"
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, level+" "+rest)
}

// take returns the lines that begin with prefix, and forgets all.
func (l *testLog) take(prefix string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines = nil
	return slices.DeleteFunc(lines, func(line string) bool { return !strings.HasPrefix(line, prefix) })
}

// containing lists the lines so far that contain text.
func (l *testLog) containing(text string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.lines), func(line string) bool { return !strings.Contains(line, text) })
}

// wantLine fails the test unless there is one line, and it contains all the texts.
func wantLine(t *testing.T, lines []string, texts ...string) {
	t.Helper()
	if len(lines) != 1 || slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(lines[0], text) }) {
		t.Errorf("%d lines, want one with %q:\n%s", len(lines), texts, strings.Join(lines, "\n"))
	}
}

// through is a transport that does something else with requests.
type through func(*http.Request) (*http.Response, error)

func (f through) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func newMapperThrough(
	t *testing.T, server *fakeapi.Server, transport http.RoundTripper, opts apiutil.DynamicRESTMapperOptions,
) *apiutil.DynamicRESTMapper {
	t.Helper()
	m, err := apiutil.NewDynamicRESTMapperWithOptions(server.Config(), &http.Client{Transport: transport}, opts)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// newMapper makes a mapper of a fake server, through a client of its own.
func newMapper(t *testing.T, server *fakeapi.Server, opts apiutil.DynamicRESTMapperOptions) *apiutil.DynamicRESTMapper {
	t.Helper()
	return newMapperThrough(t, server, server.Client().Transport, opts)
}

// fakeGroup and fakeVersion describe what a fake server serves. A kind is
// namespaced unless it ends in ":cluster". "Foo~fo" has a short name.
func fakeGroup(name string, versions ...fakeapi.Version) fakeapi.Group {
	return fakeapi.Group{Name: name, Versions: versions}
}

func fakeVersion(name string, kinds ...string) fakeapi.Version {
	v := fakeapi.Version{Name: name}
	for _, kind := range kinds {
		kind, cluster := strings.CutSuffix(kind, ":cluster")
		kind, short, _ := strings.Cut(kind, "~")
		singular := strings.ToLower(kind)
		r := fakeapi.Resource{
			Name: singular + "s", Singular: singular, Kind: kind, Namespaced: !cluster, Subresources: []string{"status"},
		}
		if short != "" {
			r.ShortNames = []string{short}
		}
		v.Resources = append(v.Resources, r)
	}
	return v
}

// lookup asks for a kind or resource in the way that what names. A lookup by resource takes one version at most.
func lookup(
	ctx context.Context, m *apiutil.DynamicRESTMapper, what, group, name string, versions ...string,
) (string, error) {
	gk := schema.GroupKind{Group: group, Kind: name}
	gvr := schema.GroupVersionResource{Group: group, Version: strings.Join(versions, ","), Resource: name}
	switch what {
	case "kind":
		mapping, err := m.RESTMappingWithContext(ctx, gk, versions...)
		return mappingText(mapping), err
	case "kinds":
		mappings, err := m.RESTMappingsWithContext(ctx, gk, versions...)
		return textOfAll(mappings, mappingText), err
	case "resource":
		resource, err := m.ResourceForWithContext(ctx, gvr)
		return resourceText(resource), err
	case "resources":
		resources, err := m.ResourcesForWithContext(ctx, gvr)
		return textOfAll(resources, resourceText), err
	case "kind-of":
		kind, err := m.KindForWithContext(ctx, gvr)
		return kindText(kind), err
	case "kinds-of":
		kinds, err := m.KindsForWithContext(ctx, gvr)
		return textOfAll(kinds, kindText), err
	case "singular":
		return m.ResourceSingularizerWithContext(ctx, name)
	}
	return "", fmt.Errorf("no lookup of a %s", what)
}

// A lookupForm is one way to ask for a kind, and the answer if it is served.
type lookupForm struct {
	name                    string // of the method, with what it is given
	what                    string // of lookup
	group, version, subject string // group and version are empty if the lookup does not name them
	want                    string
}

func (f lookupForm) ask(ctx context.Context, m *apiutil.DynamicRESTMapper) (string, error) {
	return lookup(ctx, m, f.what, f.group, f.subject, strings.Fields(f.version)...)
}

// lookupForms lists the ways to ask for a namespaced kind of fakeVersion's: all seven lookups, with and without what
// may be left out. The kind must be served in no other group, and in no better version of its own.
func lookupForms(gvk schema.GroupVersionKind) []lookupForm {
	singular := strings.ToLower(gvk.Kind)
	gvr := gvk.GroupVersion().WithResource(singular + "s")
	mapping := kindText(gvk) + " -> " + gvr.Resource + ", namespace"
	forms := []lookupForm{{"ResourceSingularizer", "singular", "", "", gvr.Resource, singular}}
	for _, version := range []string{gvk.Version, ""} {
		forms = append(forms,
			lookupForm{"RESTMapping " + version, "kind", gvk.Group, version, gvk.Kind, mapping},
			lookupForm{"RESTMappings " + version, "kinds", gvk.Group, version, gvk.Kind, mapping})
	}
	for _, gv := range []schema.GroupVersion{gvk.GroupVersion(), {Group: gvk.Group}, {}} {
		forms = append(forms,
			lookupForm{"KindFor " + gv.String(), "kind-of", gv.Group, gv.Version, gvr.Resource, kindText(gvk)},
			lookupForm{"KindsFor " + gv.String(), "kinds-of", gv.Group, gv.Version, gvr.Resource, kindText(gvk)},
			lookupForm{"ResourceFor " + gv.String(), "resource", gv.Group, gv.Version, gvr.Resource, resourceText(gvr)},
			lookupForm{"ResourcesFor " + gv.String(), "resources", gv.Group, gv.Version, gvr.Resource, resourceText(gvr)})
	}
	return forms
}

// wantAnswer asks and fails the test unless the answer is that of a healthy server.
func (f lookupForm) wantAnswer(t *testing.T, m *apiutil.DynamicRESTMapper, when string) {
	t.Helper()
	answer, err := f.ask(context.Background(), m)
	if err != nil || answer != f.want {
		t.Errorf("%s, %s: %q, %v; want %q", f.name, when, answer, err, f.want)
	}
}

func answered(answer string, err error) string {
	switch {
	case meta.IsNoMatchError(err):
		return "no match"
	case err != nil:
		return "error: " + err.Error()
	default:
		return answer
	}
}

func mappingText(m *meta.RESTMapping) string {
	if m == nil {
		return ""
	}
	return kindText(m.GroupVersionKind) + " -> " + m.Resource.Resource + ", " + string(m.Scope.Name())
}

func kindText(gvk schema.GroupVersionKind) string {
	return gvk.GroupVersion().String() + " " + gvk.Kind
}

func resourceText(gvr schema.GroupVersionResource) string {
	return gvr.GroupVersion().String() + " " + gvr.Resource
}

func textOfAll[T any](list []T, text func(T) string) string {
	var texts []string
	for _, item := range list {
		texts = append(texts, text(item))
	}
	return strings.Join(texts, "; ")
}
