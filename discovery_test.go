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
				p := &parity{t: t, ours: mapper, theirs: restmapper.NewDiscoveryRESTMapper(groups)}
				for _, group := range groups {
					p.askAll(group)
				}
				wantVerbs(t, mapper.(*apiutil.DynamicRESTMapper), groups)
				if p.asked < 4000 {
					t.Errorf("only %d questions asked", p.asked)
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

// parity puts the same question to two mappers.
type parity struct {
	t            *testing.T
	ours, theirs meta.RESTMapper
	asked        int
}

func (p *parity) askAll(group *restmapper.APIGroupResources) {
	for version, resources := range group.VersionedResources {
		for _, r := range resources {
			p.kinds(schema.GroupVersion{Group: group.Group.Name, Version: version}, r)
			p.resources(schema.GroupVersion{Group: group.Group.Name, Version: version}, r)
		}
	}
}

func (p *parity) kinds(gv schema.GroupVersion, r metav1.APIResource) {
	for _, kind := range []string{r.Kind, strings.ToLower(r.Kind), r.Kind + "List"} {
		for _, versions := range [][]string{nil, {gv.Version}, {"v0", gv.Version}, {"v0"}} {
			gk := schema.GroupKind{Group: gv.Group, Kind: kind}
			ask(p, fmt.Sprintf("RESTMapping(%v, %q)", gk, versions), func(m meta.RESTMapper) (*meta.RESTMapping, error) {
				return m.RESTMapping(gk, versions...)
			})
			ask(p, fmt.Sprintf("RESTMappings(%v, %q)", gk, versions), func(m meta.RESTMapper) ([]*meta.RESTMapping, error) {
				return m.RESTMappings(gk, versions...)
			})
		}
	}
}

func (p *parity) resources(gv schema.GroupVersion, r metav1.APIResource) {
	if strings.Contains(r.Name, "/") {
		return // a subresource: every question would be a miss
	}
	prefix, _, _ := strings.Cut(gv.Group, ".")
	for _, name := range slices.Compact([]string{r.Name, r.SingularName, strings.ToUpper(r.Name)}) {
		ask(p, "ResourceSingularizer "+name, func(m meta.RESTMapper) (string, error) { return m.ResourceSingularizer(name) })
		for _, q := range []schema.GroupVersionResource{
			gv.WithResource(name), {Group: gv.Group, Resource: name}, {Version: gv.Version, Resource: name},
			{Resource: name}, {Group: prefix, Resource: name},
		} {
			ask(p, fmt.Sprintf("KindFor %v", q), func(m meta.RESTMapper) (schema.GroupVersionKind, error) { return m.KindFor(q) })
			ask(p, fmt.Sprintf("KindsFor %v", q), func(m meta.RESTMapper) ([]schema.GroupVersionKind, error) { return m.KindsFor(q) })
			ask(p, fmt.Sprintf("ResourceFor %v", q), func(m meta.RESTMapper) (schema.GroupVersionResource, error) { return m.ResourceFor(q) })
			ask(p, fmt.Sprintf("ResourcesFor %v", q), func(m meta.RESTMapper) ([]schema.GroupVersionResource, error) { return m.ResourcesFor(q) })
		}
	}
}

func ask[T any](p *parity, question string, put func(meta.RESTMapper) (T, error)) {
	p.asked++
	want, wantErr := put(p.theirs)
	got, gotErr := put(p.ours)
	if diff := cmp.Diff(want, got, sameScope); diff != "" {
		p.t.Errorf("%s: (-client-go +ours)\n%s", question, diff)
	}
	if diff := cmp.Diff(errorText(wantErr), errorText(gotErr)); diff != "" {
		p.t.Errorf("%s: (-client-go +ours)\n%s", question, diff)
	}
}

var sameScope = cmp.Comparer(func(a, b meta.RESTScope) bool { return a == b })

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return fmt.Sprintf("%T: %v", err, err)
}
