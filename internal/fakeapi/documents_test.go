// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// sample has what is rare: a preferred version that is not the first, a stale
// version, a parent without a kind, a kind from another group.
func sample() []Group {
	return []Group{
		{Versions: []Version{{Name: "v1", Resources: []Resource{
			{Name: "pods", Singular: "pod", Kind: "Pod", Namespaced: true, Subresources: []string{"status"}},
			{Name: "nodes", Singular: "node", Kind: "Node"},
		}}}},
		{Name: "example.com", Preferred: "v1", Versions: []Version{
			{Name: "v2", Resources: []Resource{{Name: "foos", Singular: "foo", Kind: "Foo", Namespaced: true, Subresources: []string{"status", "scale"}}}},
			{Name: "v1", Resources: []Resource{
				{Name: "bars", Kind: "Bar"},
				{Name: "parents", NoKind: true, Kind: "Child", Subresources: []string{"children"}},
			}},
		}},
		{Name: "metrics.example.com", Versions: []Version{{
			Name: "v1beta1", Stale: true,
			Resources: []Resource{{Name: "pods", Singular: "pod", Kind: "PodMetrics", Namespaced: true}},
		}}},
	}
}

// wantResources is what client-go makes of sample; stale versions are not in it.
var wantResources = map[schema.GroupVersion][]string{
	{Version: "v1"}:                       {"pods Pod namespaced", "pods/status Pod namespaced", "nodes Node"},
	{Group: "example.com", Version: "v2"}: {"foos Foo namespaced", "foos/status Foo namespaced", "foos/scale autoscaling/v1 Scale namespaced"},
	{Group: "example.com", Version: "v1"}: {"bars Bar", "parents/children Child"},
}

// client-go reads what the server says, in each form that it asks for. Only of a legacy server
// it reads the versions themselves, and then a stale one is listed like any other.
func TestClientGoReadsWhatIsServed(t *testing.T) {
	aggregated := []string{" v1 (v1)", "example.com v2,v1 (v2)", "metrics.example.com  ()"}
	legacy := []string{" v1 (v1)", "example.com v2,v1 (v1)", "metrics.example.com v1beta1 (v1beta1)"}
	for form, tests := range map[string]struct {
		forms  []Forms
		groups []string
	}{
		"v2+json": {[]Forms{Aggregated(), {V2: true}}, aggregated},
		"legacy":  {[]Forms{Legacy(), {}}, legacy},
	} {
		for _, forms := range tests.forms {
			s := New(sample()...)
			s.SetForms(forms)
			client, err := discovery.NewDiscoveryClientForConfigAndClient(s.Config(), s.Client())
			if err != nil {
				t.Fatal(err)
			}
			groups, resources, failed, err := client.GroupsAndMaybeResources()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"GET /api  " + form + " 200", "GET /apis  " + form + " 200"}, lines(s.Requests())); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tests.groups, describeGroups(groups)); diff != "" {
				t.Errorf("%s: groups (-want +got):\n%s", form, diff)
			}
			if form == "legacy" {
				resources = map[schema.GroupVersion]*metav1.APIResourceList{}
				for gv := range wantResources {
					if resources[gv], err = client.ServerResourcesForGroupVersion(gv.String()); err != nil {
						t.Fatal(err)
					}
				}
			} else if stale := (schema.GroupVersion{Group: "metrics.example.com", Version: "v1beta1"}); len(failed) != 1 || failed[stale] == nil {
				t.Errorf("failed: %v, want %v alone", failed, stale)
			}
			if diff := cmp.Diff(wantResources, describeResources(resources)); diff != "" {
				t.Errorf("%s: resources (-want +got):\n%s", form, diff)
			}
		}
	}
}

func describeGroups(list *metav1.APIGroupList) []string {
	var lines []string
	for _, group := range list.Groups {
		var versions []string
		for _, version := range group.Versions {
			versions = append(versions, version.Version)
		}
		lines = append(lines, group.Name+" "+strings.Join(versions, ",")+" ("+group.PreferredVersion.Version+")")
	}
	return lines
}

func describeResources(lists map[schema.GroupVersion]*metav1.APIResourceList) map[schema.GroupVersion][]string {
	all := map[schema.GroupVersion][]string{}
	for gv, list := range lists {
		for _, r := range list.APIResources {
			line := r.Name
			if other := (schema.GroupVersion{Group: r.Group, Version: r.Version}); !other.Empty() && other != gv {
				line += " " + other.String()
			}
			line += " " + r.Kind
			if r.Namespaced {
				line += " namespaced"
			}
			all[gv] = append(all[gv], line)
		}
	}
	return all
}
