// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/share"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

const (
	aggregatedGroup = "apidiscovery.k8s.io/"
	aggregatedKind  = "APIGroupDiscoveryList"
	freshnessStale  = "Stale"
	scopeNamespaced = "Namespaced"
)

// jsonDocument has the fields of every discovery document in JSON. No document has all of them, so that they are
// decoded together does no harm.
type jsonDocument struct {
	Kind       string
	APIVersion string

	Items []json.RawMessage // of an APIGroupDiscoveryList: its groups

	Groups []jsonGroup[jsonListedVersion] // of an APIGroupList

	jsonGroup[jsonListedVersion] // of an APIGroup; APIVersions has the versions alone

	GroupVersion string         // of an APIResourceList
	Resources    []jsonResource // of an APIResourceList
}

// jsonGroup is a group of any document. V is its version.
type jsonGroup[V any] struct {
	Name      string
	Metadata  struct{ Name string } // of the aggregated document, which has no Name
	Versions  []V
	Preferred V `json:"preferredVersion"`
}

// jsonServedVersion is a version of an aggregated document.
type jsonServedVersion struct {
	Version   string
	Freshness string
	Resources []jsonResource
}

// jsonListedVersion is a version of a legacy document: an object, and in APIVersions a name.
type jsonListedVersion struct{ Version string }

// UnmarshalJSON decodes both.
func (v *jsonListedVersion) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		return json.Unmarshal(data, &v.Version)
	}
	type object jsonListedVersion // without this method
	return json.Unmarshal(data, (*object)(v))
}

// jsonResource has the fields of an APIResource and of an APIResourceDiscovery.
type jsonResource struct {
	// Of both.
	Verbs jsonVerbs

	// Of an APIResource.
	Name         string
	SingularName string
	Kind         string
	Namespaced   bool

	// Of an APIResourceDiscovery.
	Resource         string
	SingularResource string
	Scope            string
	ResponseKind     struct{ Group, Version, Kind string }
}

// jsonVerbs are the verbs of a resource: whatever stands between quotes and is a verb. No verb has an escape in it.
// What is no list of verbs is no error, so that no kind is lost because of its verbs.
type jsonVerbs snapshot.Verbs

// UnmarshalJSON decodes a list of verbs.
func (v *jsonVerbs) UnmarshalJSON(list []byte) error {
	set := snapshot.Verbs(0)
	quoted := false
	for len(list) > 0 {
		text, rest, _ := bytes.Cut(list, []byte{'"'})
		if quoted {
			set = set.With(string(text))
		}
		list, quoted = rest, !quoted
	}
	*v = jsonVerbs(set)
	return nil
}

// parseJSON reads any JSON document of discovery.
func parseJSON(body []byte) (*jsonDocument, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, errors.New("the response is empty")
	}
	if !elementsWithin(body, decodedDepth, maxElements) {
		return nil, errElements
	}
	doc := &jsonDocument{}
	if err := json.Unmarshal(body, doc); err != nil {
		return nil, fmt.Errorf("the response is not a discovery document: %w", err)
	}
	return doc, nil
}

const (
	// decodedDepth is the depth of the lists that are decoded: the items, their versions, and the resources of these,
	// each in an object. Deeper lists are skipped.
	decodedDepth = 6
	// keptDepth is that of the lists in what a discovery cache returns: the verbs of subresources are the deepest.
	keptDepth = 10
)

// elementsWithin reports whether the lists down to a depth have no more than limit elements. A body with so few commas
// has no more elements either, so most bodies need not be searched.
func elementsWithin(body []byte, depth, limit int) bool {
	return bytes.Count(body, []byte{','}) <= limit || countElements(body, depth) <= limit
}

// countElements counts the commas in the lists down to maxDepth, which is keptDepth at most: a comma costs a server
// little to send, and stands for an element that takes much memory. Most commas that honest servers send are elsewhere.
// If the body is no JSON, the count means nothing.
func countElements(body []byte, maxDepth int) (commas int) {
	var isList [keptDepth + 1]bool // whether what is open at each depth is a list, and no object
	depth := 0
	for i := 0; i < len(body); i++ {
		switch c := body[i]; c {
		case '"':
			i = endOfString(body, i)
		case '[', '{':
			depth++
			if depth <= maxDepth {
				isList[depth] = c == '['
			}
		case ']', '}':
			depth = max(depth-1, 0)
		case ',':
			if depth <= maxDepth && isList[depth] {
				commas++
			}
		}
	}
	return commas
}

// endOfString returns where the string ends that begins at start.
func endOfString(body []byte, start int) int {
	for i := start + 1; i < len(body); i++ {
		switch body[i] {
		case '"':
			return i
		case '\\':
			i++ // whatever is escaped
		}
	}
	return len(body)
}

func (d *jsonDocument) aggregated() bool {
	return d.Kind == aggregatedKind && strings.HasPrefix(d.APIVersion, aggregatedGroup)
}

func (d *jsonDocument) wrongKind(want string) error {
	return fmt.Errorf("the response is not of kind %s but of kind %q in %q", want, d.Kind, d.APIVersion)
}

// decodeDocument decodes an answer of /api or /apis, in any of the formats in acceptDocument. keepLists is whether the
// resource lists are kept, too. An answer in protobuf has none: it was not asked for then.
func decodeDocument(body []byte, path string, keepLists bool) (*groupList, error) {
	if bytes.HasPrefix(body, []byte(protobufMagic)) {
		return decodeDocumentProtobuf(body)
	}
	doc, err := parseJSON(body)
	if err != nil {
		return nil, err
	}
	if doc.aggregated() {
		keepLists = keepLists && elementsWithin(body, keptDepth, maxKeptElements)
		return decodeAggregated(doc.Items, keepLists)
	}
	groups, err := doc.listedGroups(path)
	if err != nil {
		return nil, err
	}
	if err := checkGroupCount(len(groups)); err != nil {
		return nil, err
	}
	read := &groupList{}
	for _, g := range groups {
		read.groups = append(read.groups, groupOf(g))
	}
	return read, nil
}

// listedGroups returns the groups of a legacy document: that of /api has the versions of the core group, that of /apis
// all other groups.
func (d *jsonDocument) listedGroups(path string) ([]jsonGroup[jsonListedVersion], error) {
	if path == corePath {
		if d.Kind != "APIVersions" {
			return nil, d.wrongKind("APIGroupDiscoveryList or APIVersions")
		}
		if len(d.Versions) == 0 {
			return d.Groups, nil
		}
		preferred := d.Versions[0] // as in client-go
		return []jsonGroup[jsonListedVersion]{{Versions: d.Versions, Preferred: preferred}}, nil
	}
	if d.Kind != "APIGroupList" {
		return nil, d.wrongKind("APIGroupDiscoveryList or APIGroupList")
	}
	return d.Groups, nil
}

// decodeAggregated returns the groups of an aggregated document. With resource lists they belong to this mapper alone:
// who gets a list from a discovery cache should not change it, and might.
func decodeAggregated(items []json.RawMessage, keepLists bool) (*groupList, error) {
	if !keepLists {
		return shareGroups(items, "json", func(item []byte) (*snapshot.Group, error) {
			return decodeGroupJSON(item, nil)
		})
	}
	if err := checkGroupCount(len(items)); err != nil {
		return nil, err
	}
	read := &groupList{groups: make([]*snapshot.Group, len(items)), hasResources: true}
	for i, item := range items {
		g, err := decodeGroupJSON(item, resourceListsOf(item))
		if err != nil {
			return nil, err
		}
		read.groups[i] = g
	}
	return read, nil
}

// shareGroups returns the groups of items. It decodes only those that no mapper of this process holds.
func shareGroups[T ~[]byte](
	items []T, format string, decode func([]byte) (*snapshot.Group, error),
) (*groupList, error) {
	if err := checkGroupCount(len(items)); err != nil {
		return nil, err
	}
	read := &groupList{groups: make([]*snapshot.Group, len(items)), hasResources: true}
	keys := make([]byte, 0, len(items)*len(share.Key{}))
	for i, item := range items {
		key := share.KeyOf(format, item)
		g, err := share.Groups.Get(key, func() (*snapshot.Group, error) { return decode(item) })
		if err != nil {
			return nil, err
		}
		read.groups[i] = g
		keys = append(keys, key[:]...)
	}
	read.key = share.KeyOf("groups", keys)
	return read, nil
}

// decodeGroupJSON reads a group of the aggregated document. lists are its resource lists, or nil.
func decodeGroupJSON(data []byte, lists []*metav1.APIResourceList) (*snapshot.Group, error) {
	g := jsonGroup[jsonServedVersion]{}
	if err := json.Unmarshal(data, &g); err != nil {
		return nil, fmt.Errorf("a group of the aggregated document is malformed: %w", err)
	}
	b := groupBuilder{name: g.Metadata.Name}
	for i, v := range g.Versions {
		var list *metav1.APIResourceList
		if i < len(lists) {
			list = lists[i]
		}
		b.addServed(v.Version, v.Freshness, v.resources(), list)
	}
	return b.group(), nil
}

// resources returns the resources of a version that have a kind. Others are only the parents of subresources.
func (v *jsonServedVersion) resources() []snapshot.Resource {
	resources := make([]snapshot.Resource, 0, len(v.Resources))
	for _, r := range v.Resources {
		kind := r.ResponseKind
		if kind.Group == "" && kind.Version == "" && kind.Kind == "" {
			continue
		}
		resources = append(resources, snapshot.Resource{
			Name:       r.Resource,
			Singular:   r.SingularResource,
			Kind:       kind.Kind,
			Namespaced: r.Scope == scopeNamespaced,
			Verbs:      snapshot.Verbs(r.Verbs),
		})
	}
	return resources
}

// groupOf returns a group of a legacy document, whose versions have no resources yet.
func groupOf(g jsonGroup[jsonListedVersion]) *snapshot.Group {
	b := groupBuilder{name: g.Name, preferred: g.Preferred.Version}
	for _, v := range g.Versions {
		b.add(snapshot.Version{Name: v.Version})
	}
	return b.group()
}

var errNoVersions = errors.New("the server lists no versions of the group")

// decodeGroup reads the answer of /api, or of /apis/<group>, to a request for the plain format. A cache that drops Vary
// may send the aggregated format of /api. Then only the list of versions is used, because the resources may be of any
// age. Single groups and versions have one format only, so this can't happen there.
func decodeGroup(body []byte, gv schema.GroupVersion) (*snapshot.Group, error) {
	if gv.Group == "" {
		read, err := decodeDocument(body, corePath, false)
		if err != nil {
			return nil, err
		}
		if len(read.groups) != 1 || read.groups[0].Name() != "" {
			return nil, errors.New("the response is not about the core group")
		}
		return checkVersions(read.groups[0])
	}
	doc, err := parseJSON(body)
	if err != nil {
		return nil, err
	}
	if doc.Kind != "APIGroup" {
		return nil, doc.wrongKind("APIGroup")
	}
	if doc.Name != gv.Group {
		return nil, fmt.Errorf("the response is about group %q", doc.Name)
	}
	return checkVersions(groupOf(doc.jsonGroup))
}

// decodeTable reads the answer of /apis/<group>/<version>. keepLists is whether the table gets the resource list, too.
func decodeTable(body []byte, gv schema.GroupVersion, keepLists bool) (*snapshot.Table, error) {
	doc, err := parseJSON(body)
	if err != nil {
		return nil, err
	}
	if err := doc.checkResourceList(gv); err != nil {
		return nil, err
	}
	resources := make([]snapshot.Resource, 0, len(doc.Resources))
	for _, r := range doc.Resources {
		resources = append(resources, snapshot.Resource{
			Name:       r.Name,
			Singular:   r.SingularName,
			Kind:       r.Kind,
			Namespaced: r.Namespaced,
			Verbs:      snapshot.Verbs(r.Verbs),
		})
	}
	if err := checkResources(resources); err != nil {
		return nil, err
	}
	table := snapshot.NewTable(resources)
	if keepLists {
		table = table.WithResourceList(resourceListOf(body, gv))
	}
	return table, nil
}

// checkResourceList returns an error unless the document is an APIResourceList of a version of the group. The path says
// of which version: extension servers answer with a list that calls itself another one (kubevirt#10899).
func (d *jsonDocument) checkResourceList(gv schema.GroupVersion) error {
	// Kind or groupVersion is enough: servers behind APIServices may leave out one.
	hasNoKind := d.Kind == "" && d.GroupVersion != ""
	if d.Kind != "APIResourceList" && !hasNoKind {
		return d.wrongKind("APIResourceList")
	}
	if d.GroupVersion == "" {
		return nil
	}
	claimed, err := schema.ParseGroupVersion(d.GroupVersion)
	if err != nil || claimed.Group != gv.Group {
		return fmt.Errorf("the response is about %q, and not about a version of the group", d.GroupVersion)
	}
	return nil
}
