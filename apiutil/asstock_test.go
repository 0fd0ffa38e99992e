// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// named is a mapper that a program has made around another one.
type named struct {
	meta.RESTMapper
}

func mapped(mapping *meta.RESTMapping, err error) string {
	return answerWord(mappingText(mapping), err)
}

// Who asks as stock's client does gets the first mapping, without a request, also if the
// kind is gone or the mapper was reset, through whatever the program has made of the mapper.
// Nobody else does.
func TestAsStock(t *testing.T) {
	none := meta.NewDefaultRESTMapper(nil)
	for name, combine := range map[string]func(m meta.RESTMapper) meta.RESTMapper{
		"alone":   func(m meta.RESTMapper) meta.RESTMapper { return m },
		"wrapped": func(m meta.RESTMapper) meta.RESTMapper { return &named{RESTMapper: struct{ meta.RESTMapper }{m}} },
		"multi":   func(m meta.RESTMapper) meta.RESTMapper { return meta.MultiRESTMapper{none, m} },
		"firsthit": func(m meta.RESTMapper) meta.RESTMapper {
			return meta.FirstHitRESTMapper{MultiRESTMapper: meta.MultiRESTMapper{none, m}}
		},
		"priority": func(m meta.RESTMapper) meta.RESTMapper {
			return &meta.PriorityRESTMapper{Delegate: meta.MultiRESTMapper{none, m}}
		},
	} {
		eachServer(t, func(t *testing.T, server *fakeapi.Server) {
			m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{MaxAge: -1})
			combined := combine(m)
			ask := func(kind string) (string, int) {
				server.TakeRequests()
				got := mapped(combined.RESTMapping(schema.GroupKind{Group: fooKind.Group, Kind: kind}, apiutil.AsStock("v1")...))
				return got, len(server.TakeRequests())
			}
			if got, _ := ask("Late"); got != "no match" {
				t.Errorf("%s: a kind that is not there: %s", name, got)
			}
			first, _ := ask("Foo")
			server.PutVersion(fooKind.Group, fakeVersion("v1", "Bar", "Late:cluster"))
			if err := m.Refresh(context.Background()); err != nil {
				t.Fatal(err)
			}
			meta.MaybeResetRESTMapper(combined)
			if got, requests := ask("Foo"); got != first || requests > 0 {
				t.Errorf("%s: a kind that is gone: %s after %d requests", name, got, requests)
			}
			list := strings.Replace(first, "Foo -> foos", "FooList -> foolists", 1) // it may be a kind of its own: nothing of it goes to foos
			if got, _ := ask("FooList"); got != list {
				t.Errorf("%s: its list: %s", name, got)
			}
			if got, requests := ask("FooList"); got != list || requests > 0 {
				t.Errorf("%s: its list again: %s after %d requests", name, got, requests)
			}
			if got, _ := ask("Late"); got != "example.com/v1 Late -> lates, root" {
				t.Errorf("%s: a new kind: %s", name, got)
			}
			if got := mapped(combined.RESTMapping(fooKind.GroupKind(), "v1")); got != "no match" {
				t.Errorf("%s: without AsStock: %s", name, got)
			}
		})
	}
}

// A mapping is replaced if its resource is known to be of other kinds only. A kind that nobody has
// the resource of is only gone.
func TestReplaced(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m, used := useFoo(t, server)
		foos := func(kinds ...string) (version fakeapi.Version) {
			version.Name = fooKind.Version
			for _, kind := range append(kinds, "Bar") {
				version.Resources = append(version.Resources, fakeapi.Resource{Name: "foos", Singular: "foo", Kind: kind, Namespaced: true})
			}
			version.Resources[len(kinds)].Name = "bars"
			return version
		}
		for _, test := range []struct {
			kinds []string
			want  bool
		}{{[]string{"Foo"}, false}, {[]string{"Other"}, true}, {[]string{"Other", "Foo"}, false}, {nil, false}} {
			server.PutVersion(fooKind.Group, foos(test.kinds...))
			if err := m.Refresh(context.Background(), fooKind.Group); err != nil {
				t.Fatal(err)
			}
			if got := m.Replaced(used); got != test.want {
				t.Errorf("foos of %q: %t", test.kinds, got)
			}
		}
	})
}
