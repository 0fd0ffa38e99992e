// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// sample has what is rare: a preferred version that is not the first, a stale
// version, a parent without a kind, a kind from another group.
func sample() []Group {
	return []Group{
		core(),
		{
			Name:      "example.com",
			Preferred: "v1",
			Versions: []Version{
				{Name: "v2", Resources: []Resource{{Name: "foos", Singular: "foo", Kind: "Foo", Namespaced: true, Subresources: []string{"status", "scale"}}}},
				{Name: "v1", Resources: []Resource{
					{Name: "bars", Kind: "Bar"},
					{Name: "parents", NoKind: true, Kind: "Child", Subresources: []string{"children"}},
				}},
			},
		},
		{Name: "metrics.example.com", Versions: []Version{{
			Name: "v1beta1", Stale: true,
			Resources: []Resource{{Name: "pods", Singular: "pod", Kind: "PodMetrics", Namespaced: true}},
		}}},
	}
}

// wantResources is what client-go makes of sample; stale versions are not in it.
var wantResources = map[schema.GroupVersion][]string{
	{Version: "v1"}: {
		"configmaps ConfigMap namespaced",
		"namespaces Namespace",
		"namespaces/finalize Namespace",
		"namespaces/status Namespace",
		"nodes Node",
		"nodes/status Node",
		"pods Pod namespaced",
		"pods/status Pod namespaced",
		"replicationcontrollers ReplicationController namespaced",
		"replicationcontrollers/scale autoscaling/v1 Scale namespaced",
		"replicationcontrollers/status ReplicationController namespaced",
		"secrets Secret namespaced",
		"services Service namespaced",
		"services/status Service namespaced",
	},
	{Group: "example.com", Version: "v2"}: {
		"foos Foo namespaced",
		"foos/status Foo namespaced",
		"foos/scale autoscaling/v1 Scale namespaced",
	},
	{Group: "example.com", Version: "v1"}: {
		"bars Bar",
		"parents/children Child",
	},
}

func TestClientGoReadsAggregated(t *testing.T) {
	for name, forms := range map[string]Forms{
		"everything": Aggregated(),
		"bare":       {V2: true},
	} {
		t.Run(name, func(t *testing.T) {
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
			if diff := cmp.Diff(wantResources, describeResources(resources)); diff != "" {
				t.Errorf("resources (-want +got):\n%s", diff)
			}
			stale := schema.GroupVersion{Group: "metrics.example.com", Version: "v1beta1"}
			if len(failed) != 1 || failed[stale] == nil {
				t.Errorf("failed: %v, want %v alone", failed, stale)
			}
			want := []string{" v1 (v1)", "example.com v2,v1 (v2)", "metrics.example.com  ()"}
			if diff := cmp.Diff(want, describeGroups(groups)); diff != "" {
				t.Errorf("groups (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"GET /api  v2+json 200", "GET /apis  v2+json 200"}, lines(s.Requests())); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

func TestClientGoReadsLegacy(t *testing.T) {
	for _, forms := range []Forms{Legacy(), {}} {
		s := New(sample()...)
		s.SetForms(forms)
		client, err := discovery.NewDiscoveryClientForConfigAndClient(s.Config(), s.Client())
		if err != nil {
			t.Fatal(err)
		}
		groups, resources, _, err := client.GroupsAndMaybeResources()
		if err != nil {
			t.Fatal(err)
		}
		if resources != nil {
			t.Errorf("a legacy server gave resources: %v", resources)
		}
		want := []string{" v1 (v1)", "example.com v2,v1 (v1)", "metrics.example.com v1beta1 (v1beta1)"}
		if diff := cmp.Diff(want, describeGroups(groups)); diff != "" {
			t.Errorf("groups (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"GET /api  legacy 200", "GET /apis  legacy 200"}, lines(s.TakeRequests())); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}

		resources = map[schema.GroupVersion]*metav1.APIResourceList{}
		for gv := range wantResources {
			list, err := client.ServerResourcesForGroupVersion(gv.String())
			if err != nil {
				t.Fatal(err)
			}
			resources[gv] = list
		}
		if diff := cmp.Diff(wantResources, describeResources(resources)); diff != "" {
			t.Errorf("resources (-want +got):\n%s", diff)
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

func decodeJSON(t *testing.T, body string) apidiscoveryv2.APIGroupDiscoveryList {
	t.Helper()
	var list apidiscoveryv2.APIGroupDiscoveryList
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatal(err)
	}
	return list
}

func decodeProtobuf(t *testing.T, body string) runtime.Unknown {
	t.Helper()
	message, ok := strings.CutPrefix(body, "k8s\x00")
	if !ok {
		t.Fatalf("no protobuf: %q", body)
	}
	var envelope runtime.Unknown
	if err := envelope.Unmarshal([]byte(message)); err != nil {
		t.Fatal(err)
	}
	return envelope
}
