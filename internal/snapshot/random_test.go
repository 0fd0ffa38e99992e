// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/restmapper"
)

// dice decides what the random documents and queries look like: a random number
// generator, or the bytes that the fuzzer found.
type dice interface {
	IntN(n int) int
}

// fuzzDice throws one byte at a time, and zeros when none are left.
type fuzzDice struct{ bytes []byte }

func (d *fuzzDice) IntN(n int) int {
	if len(d.bytes) == 0 {
		return 0
	}
	b := d.bytes[0]
	d.bytes = d.bytes[1:]
	return int(b) % n
}

func oneIn(d dice, n int) bool { return d.IntN(n) == n-1 }

func pick[T any](d dice, from []T) T { return from[d.IntN(len(from))] }

// The words are few, so that they meet often.
var (
	groupWords = []string{
		"apps", "", "", "app", "a", "apps.example.com", "apps.example", "storage.k8s.io", "storage", "example.com",
		"Apps", "appsx",
	}
	versionWords = []string{"v1", "v1beta1", "v2", "v2alpha1", "v10", "v1beta10", "odd", "1"}
	kindWords    = []string{
		"Foo", "foo", "FOO", "Bar", "FooList", "List", "ListList", "FooListList", "Lists", "fooList", "Foolist",
		"Policy", "Status", "Endpoints", "FooEndpoints", "Foos", "Barlist", "", "Ä", "İx", "list",
		"DNS", "Class", "AllowList", "\u212a", "\xff", // the last but one is k in lower case
	}
	nameWords = []string{
		"foos", "foo", "bars", "bar", "lists", "list", "listlists", "listlist", "foolists", "foolist", "barlists", "barlist",
		"policies", "statuses", "endpoints", "fooendpoints", "Foos", "foolistlists", "s", "", "äs", "endpointslists",
		"dns", "classes", "allowlists", "allows", "k", "\u212a", "\xffs",
	}
)

// randomDocument makes up to six groups of up to five versions of a few resources each.
func randomDocument(d dice) document {
	var doc document
	for range d.IntN(7) {
		name := pick(d, groupWords)
		if !slices.ContainsFunc(doc, func(g *restmapper.APIGroupResources) bool { return g.Group.Name == name }) {
			doc = append(doc, randomGroup(d, name))
		}
	}
	return doc
}

// servable is d without the resources that claim a name of another one of their version, or the name of a list.
func (d document) servable() document {
	for _, g := range d {
		for version, resources := range g.VersionedResources {
			claimed := map[string]string{"list": "", "lists": "", "List": ""} // names, and the kind that each belongs to
			g.VersionedResources[version] = slices.DeleteFunc(resources, func(r metav1.APIResource) bool {
				return !claim(r, claimed)
			})
		}
	}
	return d
}

// claim claims the forms of a resource, and reports whether it could. Several may have one kind.
func claim(r metav1.APIResource, claimed map[string]string) bool {
	if r.Kind == "" || strings.Contains(r.Name, "/") {
		return r.Kind != ""
	}
	_, singular := guess(r.Kind)
	singular = cmp.Or(r.SingularName, singular)
	plurals, list := guess(r.Kind + listSuffix)
	kinds := []string{r.Kind, r.Kind + listSuffix, plurals, list, strings.ToLower(r.Kind) + "\x00"}
	names := slices.Compact([]string{r.Name, singular})
	ofAnother := func(kind string) bool { of, taken := claimed[kind]; return taken && of != r.Kind }
	taken := func(name string) bool {
		_, taken := claimed[name]
		return taken || name != r.Kind && slices.Contains(kinds, name)
	}
	if slices.ContainsFunc(names, taken) || slices.ContainsFunc(kinds, ofAnother) {
		return false
	}
	for _, form := range append(kinds, names...) {
		claimed[form] = r.Kind
	}
	return true
}

func guess(kind string) (plural, singular string) {
	p, s := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: kind})
	return p.Resource, s.Resource
}

func randomGroup(d dice, name string) *restmapper.APIGroupResources {
	g := newGroup(name)
	for range d.IntN(4) + d.IntN(3) {
		version := metav1.GroupVersionForDiscovery{Version: pick(d, versionWords)}
		if slices.Contains(g.Group.Versions, version) {
			continue
		}
		resources := randomResources(d)
		if len(g.Group.Versions) > 0 && oneIn(d, 2) { // as servers do: much the same in another version
			other := g.VersionedResources[pick(d, g.Group.Versions).Version]
			resources = append(resources[:len(resources)/2:len(resources)/2], other...)
		}
		if !oneIn(d, 8) { // else it is only listed
			g.VersionedResources[version.Version] = resources
		}
		g.Group.Versions = append(g.Group.Versions, version)
	}
	if len(g.Group.Versions) > 0 && !oneIn(d, 6) {
		g.Group.PreferredVersion = pick(d, g.Group.Versions)
	} else if oneIn(d, 2) {
		g.Group.PreferredVersion.Version = pick(d, versionWords)
	}
	return g
}

func randomResources(d dice) []metav1.APIResource {
	resources := make([]metav1.APIResource, 0, 5)
	for range d.IntN(4) * d.IntN(5) { // few, mostly, or more than fewRows
		resources = append(resources, randomResource(d))
	}
	return resources
}

func randomResource(d dice) metav1.APIResource {
	kind := pick(d, kindWords)
	plural, singular := guess(kind)
	part := pick(d, nameWords) + "/" + pick(d, []string{"status", "scale", ""})
	name := pick(d, []string{plural, plural, plural, singular, pick(d, nameWords), part})
	return metav1.APIResource{
		Kind: kind, Namespaced: oneIn(d, 2), Name: name,
		SingularName: pick(d, []string{"", "", singular, singular, pick(d, nameWords), name}),
	}
}

// randomQuery asks, more often than not, for something that is in doc.
func randomQuery(d dice, doc document) query {
	group, version, r := randomResourceOf(d, doc)
	if oneIn(d, 10) {
		group = pick(d, groupWords)
	}
	q := query{lookup: d.IntN(len(lookups))}
	if q.lookup < byKind {
		part := pick(d, []string{"", "", group[:d.IntN(len(group)+1)], group, group, group, group, group})
		q.gvr = schema.GroupVersionResource{Group: part, Version: randomVersion(d, doc, version), Resource: randomName(d, r)}
		return q
	}
	list, lower, upper := r.Kind+"List", strings.ToLower(r.Kind), strings.ToUpper(r.Kind)
	kinds := []string{r.Kind, r.Kind, r.Kind, lower, upper, list, strings.ToLower(list), pick(d, kindWords)}
	q.gk = schema.GroupKind{Group: group, Kind: pick(d, kinds)}
	q.versions = pick(d, [][]string{nil, {version}, {}})
	if q.versions != nil && len(q.versions) == 0 {
		for range d.IntN(4) {
			q.versions = append(q.versions, randomVersion(d, doc, version))
		}
	}
	return q
}

func randomResourceOf(d dice, doc document) (group, version string, r metav1.APIResource) {
	for range min(len(doc), 4) {
		if g := pick(d, doc); len(g.Group.Versions) > 0 {
			version := pick(d, g.Group.Versions).Version
			if resources := g.VersionedResources[version]; len(resources) > 0 {
				return g.Group.Name, version, pick(d, resources)
			}
		}
	}
	return pick(d, groupWords), pick(d, versionWords), randomResource(d)
}

func randomVersion(d dice, doc document, version string) string {
	_, elsewhere, _ := randomResourceOf(d, doc)
	odd := pick(d, []string{"__internal", "v9", "*", pick(d, versionWords)})
	return pick(d, []string{"", "", odd, elsewhere, version, version, version, version})
}

func randomName(d dice, r metav1.APIResource) string {
	plural, singular := guess(r.Kind + "List")
	name := pick(d, []string{
		r.Name, r.Name, r.Name, r.SingularName, strings.ToLower(r.Kind), pick(d, nameWords), plural, singular,
	})
	if name == "" && !oneIn(d, 8) {
		name = r.Name
	}
	if oneIn(d, 8) {
		name = strings.ToUpper(name)
	}
	return name
}
