// SPDX-License-Identifier: Apache-2.0

package freshmapper_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/freshmapper/freshmapper/apiutil"
)

// captured answers requests with the documents that hack/capture.sh has written.
type captured struct {
	dir   string
	plain map[string]json.RawMessage // of each path
	form  string                     // "pb", "json", or "" for a server without aggregated discovery
}

func (c captured) RoundTrip(req *http.Request) (*http.Response, error) {
	body, code := []byte(c.plain[req.URL.Path]), http.StatusOK
	if bulk := req.URL.Path == "/api" || req.URL.Path == "/apis"; bulk && c.form != "" && strings.Contains(req.Header.Get("Accept"), "apidiscovery") {
		var err error
		if body, err = os.ReadFile(filepath.Join(c.dir, "aggregated."+strings.TrimPrefix(req.URL.Path, "/")+"."+c.form)); err != nil {
			return nil, err
		}
	}
	if body == nil {
		code, body = http.StatusNotFound, []byte("404 page not found\n")
	}
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Header: http.Header{}, Request: req,
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}, nil
}

// TestCapturedDocuments asks for every kind and every resource in the documents of
// real API servers, by every method, and compares with client-go's mapper.
func TestCapturedDocuments(t *testing.T) {
	for _, server := range []string{"latest", "legacy"} {
		for _, form := range []string{"pb", "json", ""} {
			t.Run(server+"/"+form, func(t *testing.T) {
				c := captured{dir: filepath.Join("testdata", "discovery", server), form: form}
				text, err := os.ReadFile(filepath.Join(c.dir, "plain.json"))
				if err != nil {
					t.Fatal(err)
				}
				if err := json.Unmarshal(text, &c.plain); err != nil {
					t.Fatal(err)
				}
				groups := c.groups(t)
				cfg := &rest.Config{Host: "http://captured.invalid", QPS: -1}
				mapper, err := apiutil.NewDynamicRESTMapper(cfg, &http.Client{Transport: c})
				if err != nil {
					t.Fatal(err)
				}
				theirs, asked := restmapper.NewDiscoveryRESTMapper(groups), 0
				for _, group := range groups {
					for version, resources := range group.VersionedResources {
						for _, r := range resources {
							gv := schema.GroupVersion{Group: group.Group.Name, Version: version}
							want := answers(theirs, gv, r)
							if diff := cmp.Diff(want, answers(mapper, gv, r)); diff != "" {
								t.Errorf("%s of %s (-client-go +ours):\n%s", r.Name, gv, diff)
							}
							asked += len(want)
						}
					}
				}
				wantVerbs(t, mapper.(*apiutil.DynamicRESTMapper), groups)
				if asked < 4000 {
					t.Errorf("only %d questions asked", asked)
				}
			})
		}
	}
}

// groups reads the plain documents with client-go, in the server's order.
func (c captured) groups(t *testing.T) []*restmapper.APIGroupResources {
	cfg := &rest.Config{Host: "http://captured.invalid", QPS: -1}
	client, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, &http.Client{Transport: captured{plain: c.plain}})
	if err != nil {
		t.Fatal(err)
	}
	groups, err := restmapper.GetAPIGroupResources(client.WithLegacy())
	if err != nil {
		t.Fatal(err)
	}
	return groups
}

// wantVerbs compares the verbs that a subscriber is told with those that client-go reads.
func wantVerbs(t *testing.T, mapper *apiutil.DynamicRESTMapper, groups []*restmapper.APIGroupResources) {
	t.Helper()
	want, got := map[schema.GroupVersionKind][]string{}, map[schema.GroupVersionKind][]string{}
	for _, group := range groups {
		for version, resources := range group.VersionedResources {
			for _, r := range resources {
				if !strings.Contains(r.Name, "/") {
					gvk := schema.GroupVersionKind{Group: group.Group.Name, Version: version, Kind: r.Kind}
					want[gvk] = slices.Sorted(slices.Values(r.Verbs))
				}
			}
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, change := range <-mapper.Subscribe(ctx) {
		got[change.Mapping.GroupVersionKind] = change.Verbs
	}
	if diff := cmp.Diff(want, got); diff != "" || len(want) < 50 {
		t.Errorf("verbs of %d kinds (-client-go's +ours):\n%s", len(want), diff)
	}
}

// answers puts every question about a resource to a mapper, and returns each with the answer.
func answers(m meta.RESTMapper, gv schema.GroupVersion, r metav1.APIResource) (all []string) {
	note := func(question string, answer any, err error) {
		all = append(all, fmt.Sprintf("%s: %v, %T %v", question, answer, err, err))
	}
	for _, kind := range []string{r.Kind, strings.ToLower(r.Kind), r.Kind + "List"} {
		for _, versions := range [][]string{nil, {gv.Version}, {"v0", gv.Version}, {"v0"}} {
			gk := schema.GroupKind{Group: gv.Group, Kind: kind}
			mapping, err := m.RESTMapping(gk, versions...)
			note(fmt.Sprintf("RESTMapping(%v, %q)", gk, versions), mapping, err)
			mappings, err := m.RESTMappings(gk, versions...)
			note(fmt.Sprintf("RESTMappings(%v, %q)", gk, versions), len(mappings), err)
			for _, mapping := range mappings {
				note("and", mapping, nil)
			}
		}
	}
	if strings.Contains(r.Name, "/") {
		return all // a subresource: every other question would be a miss
	}
	prefix, _, _ := strings.Cut(gv.Group, ".")
	for _, name := range slices.Compact([]string{r.Name, r.SingularName, strings.ToUpper(r.Name)}) {
		singular, err := m.ResourceSingularizer(name)
		note("ResourceSingularizer "+name, singular, err)
		for _, q := range []schema.GroupVersionResource{
			gv.WithResource(name), {Group: gv.Group, Resource: name}, {Version: gv.Version, Resource: name},
			{Resource: name}, {Group: prefix, Resource: name},
		} {
			kind, err := m.KindFor(q)
			note(fmt.Sprint("KindFor ", q), kind, err)
			kinds, err := m.KindsFor(q)
			note(fmt.Sprint("KindsFor ", q), kinds, err)
			resource, err := m.ResourceFor(q)
			note(fmt.Sprint("ResourceFor ", q), resource, err)
			resources, err := m.ResourcesFor(q)
			note(fmt.Sprint("ResourcesFor ", q), resources, err)
		}
	}
	return all
}
