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

// captured answers requests with the documents that TestCapture of hack/e2e has written.
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

// TestCapturedDocuments reads the documents of real API servers in each form, and compares what the
// mapper knows of every resource with what client-go reads in the plain form. What lookups find in
// any document, the oracle in internal/snapshot tests.
func TestCapturedDocuments(t *testing.T) {
	check := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	for _, server := range []string{"latest", "legacy"} {
		c := captured{dir: filepath.Join("testdata", "discovery", server)}
		text, err := os.ReadFile(filepath.Join(c.dir, "plain.json"))
		check(err)
		check(json.Unmarshal(text, &c.plain))
		cfg := &rest.Config{Host: "http://captured.invalid", QPS: -1}
		client, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, &http.Client{Transport: c})
		check(err)
		groups, err := restmapper.GetAPIGroupResources(client.WithLegacy())
		check(err)
		for _, c.form = range []string{"pb", "json", ""} {
			mapper, err := apiutil.NewDynamicRESTMapper(cfg, &http.Client{Transport: c})
			check(err)
			t.Run(server+"/"+c.form, func(t *testing.T) { compare(t, mapper.(*apiutil.DynamicRESTMapper), groups) })
		}
	}
}

// compare compares a mapper with client-go's of the same groups: answers, and the verbs that subscribers are told.
func compare(t *testing.T, ours *apiutil.DynamicRESTMapper, groups []*restmapper.APIGroupResources) {
	theirs, resources := restmapper.NewDiscoveryRESTMapper(groups), 0
	verbs, told := map[schema.GroupVersionKind][]string{}, map[schema.GroupVersionKind][]string{}
	for _, group := range groups {
		for version, list := range group.VersionedResources {
			gv := schema.GroupVersion{Group: group.Group.Name, Version: version}
			for _, r := range list {
				if strings.Contains(r.Name, "/") {
					continue // no mapper knows subresources
				}
				resources++
				verbs[gv.WithKind(r.Kind)] = slices.Sorted(slices.Values(r.Verbs))
				if diff := cmp.Diff(answers(theirs, gv, r), answers(ours, gv, r)); diff != "" {
					t.Errorf("%s of %s (-client-go +ours):\n%s", r.Name, gv, diff)
				}
			}
		}
	}
	if resources < 50 {
		t.Errorf("client-go reads %d resources in plain.json; a real API server has more than 50", resources)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, change := range <-ours.Subscribe(ctx) {
		told[change.Mapping.GroupVersionKind] = change.Verbs
	}
	if diff := cmp.Diff(verbs, told); diff != "" {
		t.Errorf("verbs of all kinds (-client-go +ours):\n%s", diff)
	}
}

// answers asks a mapper about a resource, with its version and without, and returns each answer.
func answers(m meta.RESTMapper, gv schema.GroupVersion, r metav1.APIResource) (all []string) {
	note := func(question string, answer any, err error) {
		all = append(all, fmt.Sprintf("%s: %v, %T %v", question, answer, err, err))
	}
	gk := gv.WithKind(r.Kind).GroupKind()
	for _, versions := range [][]string{nil, {gv.Version}, {"v0", gv.Version}} {
		mapping, err := m.RESTMapping(gk, versions...)
		note(fmt.Sprintf("RESTMapping(%v, %q)", gk, versions), mapping, err)
	}
	for _, name := range []string{r.Name, r.SingularName} {
		singular, err := m.ResourceSingularizer(name)
		note("ResourceSingularizer "+name, singular, err)
		for _, q := range []schema.GroupVersionResource{gv.WithResource(name), {Group: gv.Group, Resource: name}, {Resource: name}} {
			kinds, err := m.KindsFor(q)
			note(fmt.Sprint("KindsFor ", q), kinds, err)
			resource, err := m.ResourceFor(q)
			note(fmt.Sprint("ResourceFor ", q), resource, err)
		}
	}
	return all
}
