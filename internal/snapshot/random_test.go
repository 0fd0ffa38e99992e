// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
		"apps", "", "", "app", "a", "apps.example.com", "apps.example", "storage.k8s.io", "storage", "example.com", "Apps", "appsx",
	}
	versionWords = []string{"v1", "v1beta1", "v2", "v2alpha1", "v10", "v1beta10", "odd", "1"}
	kindWords    = []string{
		"Foo", "foo", "FOO", "Bar", "FooList", "List", "ListList", "FooListList", "Lists", "fooList", "Foolist",
		"Policy", "Status", "Endpoints", "FooEndpoints", "Foos", "Barlist", "", "Ä", "İx", "list",
	}
	nameWords = []string{
		"foos", "foo", "bars", "bar", "lists", "list", "listlists", "listlist", "foolists", "foolist", "barlists", "barlist",
		"policies", "statuses", "endpoints", "fooendpoints", "Foos", "foolistlists", "s", "", "äs", "endpointslists",
	}
)

// randomDocument makes up to six groups of up to five versions of a few resources each.
func randomDocument(d dice) document {
	var doc document
	for range d.IntN(7) {
		name := pick(d, groupWords)
		if !slices.ContainsFunc(doc, func(g docGroup) bool { return g.name == name }) {
			doc = append(doc, randomGroup(d, name))
		}
	}
	return doc
}

// servable is d without the resources that claim a name of another one of their version, or the
// name of a list.
func (d document) servable() document {
	for _, g := range d {
		for i := range g.versions {
			v := &g.versions[i]
			claimed := map[string]string{"list": "", "lists": "", "List": ""} // forms, and the kind that each belongs to
			v.resources = slices.DeleteFunc(v.resources, func(r Resource) bool { return !r.claim(claimed) })
		}
	}
	return d
}

// claim claims the forms of a resource, and reports whether it could. Several may have one kind.
func (r Resource) claim(claimed map[string]string) bool {
	if r.Kind == "" || strings.Contains(r.Name, "/") {
		return r.Kind != ""
	}
	singular := r.Singular
	if singular == "" {
		_, singular = guess(r.Kind)
	}
	plurals, list := guess(r.Kind + listSuffix)
	names := []string{r.Name}
	if singular != r.Name {
		names = append(names, singular)
	}
	kinds := []string{r.Kind, r.Kind + listSuffix, plurals, list, strings.ToLower(r.Kind) + "\x00"}
	for _, name := range names {
		if _, taken := claimed[name]; taken || slices.Contains(kinds, name) && name != r.Kind {
			return false
		}
	}
	for _, kind := range kinds {
		if of, taken := claimed[kind]; taken && of != r.Kind {
			return false
		}
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

func randomGroup(d dice, name string) docGroup {
	g := docGroup{name: name}
	for range d.IntN(4) + d.IntN(3) {
		version := pick(d, versionWords)
		if slices.ContainsFunc(g.versions, func(v docVersion) bool { return v.name == version }) {
			continue
		}
		v := docVersion{name: version, read: !oneIn(d, 8), resources: randomResources(d)}
		if len(g.versions) > 0 && oneIn(d, 2) {
			// As servers do: much the same in another version.
			v.resources = append(v.resources[:len(v.resources)/2:len(v.resources)/2], pick(d, g.versions).resources...)
		}
		g.versions = append(g.versions, v)
	}
	if len(g.versions) > 0 && !oneIn(d, 6) {
		g.preferred = pick(d, g.versions).name
	} else if oneIn(d, 2) {
		g.preferred = pick(d, versionWords)
	}
	return g
}

func randomResources(d dice) []Resource {
	resources := make([]Resource, 0, 5)
	for range d.IntN(4) + d.IntN(4) {
		resources = append(resources, randomResource(d))
	}
	return resources
}

func randomResource(d dice) Resource {
	kind := pick(d, kindWords)
	plural, singular := guess(kind)
	part := pick(d, nameWords) + "/" + pick(d, []string{"status", "scale", ""})
	name := pick(d, []string{plural, plural, plural, singular, pick(d, nameWords), part})
	return Resource{
		Kind: kind, Namespaced: oneIn(d, 2), Name: name,
		Singular: pick(d, []string{"", "", singular, singular, pick(d, nameWords), name}),
	}
}

// randomQuery asks, more often than not, for something that is in doc.
func randomQuery(d dice, doc document) query {
	group, version, r := randomResourceOf(d, doc)
	q := query{method: method(d.IntN(int(methods)))}
	switch q.method {
	case restMapping, restMappings:
		q.gk = schema.GroupKind{Group: randomGroupName(d, group), Kind: randomKind(d, r)}
		q.versions = randomVersions(d, doc, version)
	case resourceSingularizer:
		q.resource = randomName(d, r)
	default:
		q.gvr = schema.GroupVersionResource{
			Group: randomGroupPart(d, group), Version: randomVersion(d, doc, version), Resource: randomName(d, r),
		}
	}
	return q
}

func randomResourceOf(d dice, doc document) (group, version string, r Resource) {
	for range min(len(doc), 4) {
		if g := pick(d, doc); len(g.versions) > 0 {
			if v := pick(d, g.versions); len(v.resources) > 0 {
				return g.name, v.name, pick(d, v.resources)
			}
		}
	}
	return pick(d, groupWords), pick(d, versionWords), randomResource(d)
}

func randomGroupName(d dice, group string) string {
	if oneIn(d, 10) {
		return pick(d, groupWords)
	}
	return group
}

// randomGroupPart returns also the beginning of the group, or nothing.
func randomGroupPart(d dice, group string) string {
	name := randomGroupName(d, group)
	return pick(d, []string{"", "", group[:d.IntN(len(group)+1)], name, name, name, name, name})
}

func randomVersion(d dice, doc document, version string) string {
	_, elsewhere, _ := randomResourceOf(d, doc)
	odd := pick(d, []string{"__internal", "v9", "*", pick(d, versionWords)})
	return pick(d, []string{"", "", odd, elsewhere, version, version, version, version})
}

func randomVersions(d dice, doc document, version string) []string {
	if !oneIn(d, 3) {
		return pick(d, [][]string{nil, {version}})
	}
	versions := []string{}
	for range d.IntN(4) {
		versions = append(versions, randomVersion(d, doc, version))
	}
	return versions
}

func randomKind(d dice, r Resource) string {
	list, lower, upper := r.Kind+"List", strings.ToLower(r.Kind), strings.ToUpper(r.Kind)
	return pick(d, []string{r.Kind, r.Kind, r.Kind, lower, upper, list, strings.ToLower(list), pick(d, kindWords)})
}

func randomName(d dice, r Resource) string {
	plural, singular := guess(r.Kind + "List")
	name := pick(d, []string{
		r.Name, r.Name, r.Name, r.Singular, strings.ToLower(r.Kind), pick(d, nameWords), plural, singular,
	})
	if name == "" && !oneIn(d, 8) {
		name = r.Name
	}
	if oneIn(d, 8) {
		name = strings.ToUpper(name)
	}
	return name
}
