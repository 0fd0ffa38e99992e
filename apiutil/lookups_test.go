// SPDX-License-Identifier: Apache-2.0

package apiutil_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
)

// lookup asks for a kind or resource in the way that what names. A lookup by resource takes
// one version at most.
func lookup(ctx context.Context, m *apiutil.DynamicRESTMapper, what, group, name string, versions ...string) (string, error) {
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

// lookupForms lists the ways to ask for a namespaced kind of fakeVersion's: all
// seven lookups, with and without what may be left out. The kind must be served
// in no other group, and in no better version of its own.
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
