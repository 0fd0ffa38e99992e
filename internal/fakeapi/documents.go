// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"cmp"
	"encoding/json"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// An object is something that can be written in both encodings.
type object interface {
	runtime.Object
	Marshal() ([]byte, error)
}

// encode writes an object as the server's serializers do.
func encode(o object, protobuf bool) ([]byte, error) {
	if protobuf {
		return encodeProtobuf(o)
	}
	text, err := json.Marshal(o)
	return append(text, '\n'), err
}

// encodeProtobuf wraps the message in an envelope that names its type.
func encodeProtobuf(o object) ([]byte, error) {
	raw, err := o.Marshal()
	if err != nil {
		return nil, err
	}
	apiVersion, kind := o.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
	envelope := runtime.Unknown{
		TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind},
		Raw:      raw,
	}
	message, err := envelope.Marshal()
	return append([]byte(protobufMagic), message...), err
}

const protobufMagic = "k8s\x00"

// aggregatedList is the document of both aggregated versions: they differ in
// nothing but the version's name.
func aggregatedList(groups []Group, version string) *apidiscoveryv2.APIGroupDiscoveryList {
	list := &apidiscoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: discoveryKind, APIVersion: discoveryGroup + "/" + version},
		Items:    []apidiscoveryv2.APIGroupDiscovery{},
	}
	for _, group := range groups {
		item := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: group.Name}}
		for _, version := range group.Versions {
			item.Versions = append(item.Versions, aggregatedVersion(group.Name, version))
		}
		list.Items = append(list.Items, item)
	}
	return list
}

func aggregatedVersion(group string, version Version) apidiscoveryv2.APIVersionDiscovery {
	freshness := apidiscoveryv2.DiscoveryFreshnessCurrent
	if version.Stale {
		freshness = apidiscoveryv2.DiscoveryFreshnessStale
	}
	discovery := apidiscoveryv2.APIVersionDiscovery{Version: version.Name, Freshness: freshness}
	for _, resource := range version.Resources {
		discovery.Resources = append(discovery.Resources, aggregatedResource(group, version.Name, resource))
	}
	return discovery
}

func aggregatedResource(group, version string, resource Resource) apidiscoveryv2.APIResourceDiscovery {
	discovery := apidiscoveryv2.APIResourceDiscovery{
		Resource:         resource.Name,
		SingularResource: resource.Singular,
		Scope:            apidiscoveryv2.ScopeCluster,
		Verbs:            resourceVerbs(resource),
		ShortNames:       resource.ShortNames,
		Categories:       resource.Categories,
	}
	if resource.Namespaced {
		discovery.Scope = apidiscoveryv2.ScopeNamespace
	}
	if !resource.NoKind {
		kind := responseKind(group, version, resource.Kind)
		discovery.ResponseKind = &kind
	}
	for _, name := range resource.Subresources {
		kind := subresourceKind(group, version, resource, name)
		discovery.Subresources = append(discovery.Subresources, apidiscoveryv2.APISubresourceDiscovery{
			Subresource:  name,
			ResponseKind: &kind,
			Verbs:        subresourceVerbs(),
		})
	}
	return discovery
}

// legacyVersions returns the document of /api. It has no apiVersion, because that of the
// real server has none, nor has /api/v1.
func legacyVersions(core Group) *metav1.APIVersions {
	list := &metav1.APIVersions{
		TypeMeta: metav1.TypeMeta{Kind: "APIVersions"},
		Versions: []string{},
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{
			{ClientCIDR: "0.0.0.0/0", ServerAddress: "192.0.2.1:6443"},
		},
	}
	for _, version := range core.Versions {
		list.Versions = append(list.Versions, version.Name)
	}
	return list
}

func legacyGroupList(groups []Group) *metav1.APIGroupList {
	list := &metav1.APIGroupList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
		Groups:   []metav1.APIGroup{},
	}
	for _, group := range groups {
		list.Groups = append(list.Groups, legacyGroup(group))
	}
	return list
}

// legacyGroup returns a group without a kind, as it is inside a list.
func legacyGroup(group Group) metav1.APIGroup {
	legacy := metav1.APIGroup{
		Name:             group.Name,
		Versions:         []metav1.GroupVersionForDiscovery{},
		PreferredVersion: forDiscovery(group.Name, group.preferred()),
	}
	for _, version := range group.Versions {
		legacy.Versions = append(legacy.Versions, forDiscovery(group.Name, version.Name))
	}
	return legacy
}

func forDiscovery(group, version string) metav1.GroupVersionForDiscovery {
	if version == "" {
		return metav1.GroupVersionForDiscovery{}
	}
	return metav1.GroupVersionForDiscovery{
		GroupVersion: metav1.GroupVersion{Group: group, Version: version}.String(),
		Version:      version,
	}
}

func legacyResourceList(group string, version Version) *metav1.APIResourceList {
	list := &metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: cmp.Or(version.Claims, metav1.GroupVersion{Group: group, Version: version.Name}.String()),
		APIResources: []metav1.APIResource{},
	}
	if group == "" {
		list.APIVersion = ""
	}
	for _, resource := range version.Resources {
		list.APIResources = append(list.APIResources, legacyResources(group, version.Name, resource)...)
	}
	return list
}

// legacyResources returns the resource and an entry for each of its subresources.
func legacyResources(group, version string, resource Resource) []metav1.APIResource {
	var list []metav1.APIResource
	if !resource.NoKind {
		list = append(list, metav1.APIResource{
			Name:         resource.Name,
			SingularName: resource.Singular,
			Namespaced:   resource.Namespaced,
			Kind:         resource.Kind,
			Verbs:        resourceVerbs(resource),
			ShortNames:   resource.ShortNames,
			Categories:   resource.Categories,
		})
	}
	for _, name := range resource.Subresources {
		kind := subresourceKind(group, version, resource, name)
		subresource := metav1.APIResource{
			Name:       resource.Name + "/" + name,
			Namespaced: resource.Namespaced,
			Kind:       kind.Kind,
			Verbs:      subresourceVerbs(),
		}
		if name == "scale" {
			subresource.Group, subresource.Version = kind.Group, kind.Version
		}
		list = append(list, subresource)
	}
	return list
}

func subresourceKind(group, version string, parent Resource, name string) metav1.GroupVersionKind {
	if name == "scale" {
		return metav1.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}
	}
	return responseKind(group, version, parent.Kind)
}

// responseKind returns the response kind of a resource. For built-in resources the real
// server leaves out the group and version, which stands for those of the document. Here
// that goes for all groups without a dot.
func responseKind(group, version, kind string) metav1.GroupVersionKind {
	if !strings.Contains(group, ".") {
		group, version = "", ""
	}
	return metav1.GroupVersionKind{Group: group, Version: version, Kind: kind}
}

func resourceVerbs(resource Resource) metav1.Verbs {
	if resource.Verbs != nil {
		return resource.Verbs
	}
	return metav1.Verbs{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}
}

func subresourceVerbs() metav1.Verbs {
	return metav1.Verbs{"get", "patch", "update"}
}
