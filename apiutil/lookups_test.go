// SPDX-License-Identifier: Apache-2.0

package apiutil_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
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

// A tenant is one of several goroutines that change a group of their own on the
// server and look at it through a mapper that all share. What it has changed, it
// must see: the others' flights, resets and changes must not get in the way.
type tenant struct {
	server *fakeapi.Server
	mapper *apiutil.DynamicRESTMapper
	group  string
	rnd    *rand.Rand
}

// eachTenant runs story in eight goroutines at once.
func eachTenant(t *testing.T, rounds int, story func(t *testing.T, who *tenant, round int)) {
	eachMode(t, allModes, func(t *testing.T, forms fakeapi.Forms) {
		server := fakeapi.New(fakeGroup("", fakeVersion("v1", "Pod")))
		server.SetForms(forms)
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		var wg sync.WaitGroup
		for n := range 8 {
			who := &tenant{server, m, fmt.Sprintf("g%d.example.com", n), rand.New(rand.NewPCG(uint64(n), 2))}
			server.Put(fakeGroup(who.group, fakeVersion("v1", "Always")))
			wg.Add(1)
			go func() {
				defer wg.Done()
				for round := range rounds {
					story(t, who, round)
				}
			}()
		}
		wg.Wait()
	})
}

// ask asks for a kind of the tenant's in one form of those that name a group, or none.
func (who *tenant) ask(kind string) (lookupForm, string, error) {
	forms := lookupForms(schema.GroupVersionKind{Group: who.group, Version: "v1", Kind: kind})
	form := forms[who.rnd.IntN(len(forms))]
	answer, err := form.ask(context.Background(), who.mapper)
	return form, answer, err
}

// F2: what the server served before a lookup began is not "no match".
func TestMissesSeeWhatWasServedBefore(t *testing.T) {
	eachTenant(t, 25, func(t *testing.T, who *tenant, round int) {
		kind := fmt.Sprintf("K%sx%d", who.group[:2], round) // in no other group: some forms name none
		who.server.PutVersion(who.group, fakeVersion("v1", "Always", kind))
		if form, answer, err := who.ask(kind); err != nil || answer != form.want {
			t.Errorf("%s: %q, %v", form.name, answer, err)
		}
	})
}
