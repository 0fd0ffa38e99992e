// SPDX-License-Identifier: Apache-2.0

package apiutil_test

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A lookupForm is one way to ask for a kind, and the answer if it is served.
type lookupForm struct {
	name           string
	group, version string // those that the lookup names
	want           string
	ask            func(context.Context, *apiutil.DynamicRESTMapper) (string, error)
}

// lookupForms lists the ways to ask for a namespaced kind of fakeVersion's: all
// seven lookups, with and without what may be left out. The kind must be served
// in no other group, and in no better version of its own.
func lookupForms(gvk schema.GroupVersionKind) []lookupForm {
	gk := gvk.GroupKind()
	gvr := gvk.GroupVersion().WithResource(strings.ToLower(gvk.Kind) + "s")
	mapping := kindText(gvk) + " -> " + gvr.Resource + ", namespace"
	forms := []lookupForm{{
		name: "ResourceSingularizer", want: strings.ToLower(gvk.Kind),
		ask: func(ctx context.Context, m *apiutil.DynamicRESTMapper) (string, error) {
			return m.ResourceSingularizerWithContext(ctx, gvr.Resource)
		},
	}}
	for _, versions := range [][]string{{gvk.Version}, nil} {
		version := strings.Join(versions, "")
		forms = append(forms, lookupForm{
			name: "RESTMapping " + version, group: gk.Group, version: version, want: mapping,
			ask: func(ctx context.Context, m *apiutil.DynamicRESTMapper) (string, error) {
				answer, err := m.RESTMappingWithContext(ctx, gk, versions...)
				return mappingText(answer), err
			},
		}, lookupForm{
			name: "RESTMappings " + version, group: gk.Group, version: version, want: mapping,
			ask: func(ctx context.Context, m *apiutil.DynamicRESTMapper) (string, error) {
				answers, err := m.RESTMappingsWithContext(ctx, gk, versions...)
				return textOfAll(answers, mappingText), err
			},
		})
	}
	for _, query := range []schema.GroupVersionResource{
		gvr, {Group: gvr.Group, Resource: gvr.Resource}, {Resource: gvr.Resource},
	} {
		name := " " + query.GroupVersion().String()
		forms = append(forms, lookupForm{
			name: "KindFor" + name, group: query.Group, version: query.Version, want: kindText(gvk),
			ask: func(ctx context.Context, m *apiutil.DynamicRESTMapper) (string, error) {
				answer, err := m.KindForWithContext(ctx, query)
				return kindText(answer), err
			},
		}, lookupForm{
			name: "KindsFor" + name, group: query.Group, version: query.Version, want: kindText(gvk),
			ask: func(ctx context.Context, m *apiutil.DynamicRESTMapper) (string, error) {
				answers, err := m.KindsForWithContext(ctx, query)
				return textOfAll(answers, kindText), err
			},
		}, lookupForm{
			name: "ResourceFor" + name, group: query.Group, version: query.Version, want: resourceText(gvr),
			ask: func(ctx context.Context, m *apiutil.DynamicRESTMapper) (string, error) {
				answer, err := m.ResourceForWithContext(ctx, query)
				return resourceText(answer), err
			},
		}, lookupForm{
			name: "ResourcesFor" + name, group: query.Group, version: query.Version, want: resourceText(gvr),
			ask: func(ctx context.Context, m *apiutil.DynamicRESTMapper) (string, error) {
				answers, err := m.ResourcesForWithContext(ctx, query)
				return textOfAll(answers, resourceText), err
			},
		})
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

// newMapper makes a mapper of a fake server, through a client of its own.
func newMapper(t *testing.T, server *fakeapi.Server, opts apiutil.DynamicRESTMapperOptions) *apiutil.DynamicRESTMapper {
	t.Helper()
	m, err := apiutil.NewDynamicRESTMapperWithOptions(server.Config(), server.Client(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
