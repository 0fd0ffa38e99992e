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
	stale           = "Stale"
	namespaced      = "Namespaced"
)

// document has the fields of every document in JSON. What none of them has together is
// read together, and does no harm.
type document struct {
	Kind           string
	APIVersion     string
	Items          []json.RawMessage // APIGroupDiscoveryList
	Groups         []group[version]  // APIGroupList
	group[version]                   // APIGroup; of APIVersions the versions

	GroupVersion string // APIResourceList
	Resources    []resource
}

// group is a group of any document.
type group[V any] struct {
	Name      string
	Metadata  struct{ Name string } // aggregated
	Versions  []V
	Preferred V `json:"preferredVersion"`
}

// served is a version of an aggregated document.
type served struct {
	Version   string
	Freshness string
	Resources []resource
}

// version is a version of a legacy document: an object, and in APIVersions a name.
type version struct{ Version string }

func (v *version) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		return json.Unmarshal(data, &v.Version)
	}
	type object version // without this method
	return json.Unmarshal(data, (*object)(v))
}

// resource has the fields of an APIResource, and then those of an APIResourceDiscovery,
// which name the same.
type resource struct {
	Name, SingularName, Kind string
	Namespaced               bool
	Verbs                    verbs

	Resource, SingularResource, Scope string
	ResponseKind                      struct{ Group, Version, Kind string }
}

// verbs is what stands between quotes, and is a verb. No verb has an escape in it. What is
// no list of verbs is no error, so that no kind is lost because of its verbs.
type verbs snapshot.Verbs

func (v *verbs) UnmarshalJSON(list []byte) error {
	set, quoted := snapshot.Verbs(0), false
	for len(list) > 0 {
		text, rest, _ := bytes.Cut(list, []byte{'"'})
		if quoted {
			set = set.With(string(text))
		}
		list, quoted = rest, !quoted
	}
	*v = verbs(set)
	return nil
}

// parseJSON reads any JSON document of discovery.
func parseJSON(body []byte) (*document, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, errors.New("the response is empty")
	}
	if !elementsWithin(body, decodedDepth, maxElements) {
		return nil, errElements
	}
	doc := &document{}
	if err := json.Unmarshal(body, doc); err != nil {
		return nil, fmt.Errorf("the response is not a discovery document: %w", err)
	}
	return doc, nil
}

// decodedDepth is the depth of the lists that are decoded: the items, their versions, and
// the resources of these, each in an object. Deeper lists are skipped. keptDepth is that of the lists in what a
// discovery cache returns: subresources, and the verbs of these.
const (
	decodedDepth = 6
	keptDepth    = 10
)

// elementsWithin reports whether the lists that are decoded, which are those up to a depth, have no more than most
// elements. A body with fewer commas than that has no more elements either.
func elementsWithin(body []byte, depth, most int) bool {
	return bytes.Count(body, []byte{','}) <= most || elements(body, depth) <= most
}

// elements counts the commas in the lists up to a depth, keptDepth at most: a comma costs a server little
// to send, and stands for an element that takes much memory. Most commas that honest
// servers send are elsewhere. If the body is no JSON, the count means nothing.
func elements(body []byte, most int) (commas int) {
	var list [keptDepth + 1]bool // whether a list is open at each depth
	depth := 0
	for i := 0; i < len(body); i++ {
		switch c := body[i]; c {
		case '"':
			for i++; i < len(body) && body[i] != '"'; i++ {
				if body[i] == '\\' {
					i++
				}
			}
		case '[', '{':
			depth++
			if depth <= most {
				list[depth] = c == '['
			}
		case ']', '}':
			depth = max(depth-1, 0)
		case ',':
			if depth <= most && list[depth] {
				commas++
			}
		}
	}
	return commas
}

func (d *document) aggregated() bool {
	return d.Kind == aggregatedKind && strings.HasPrefix(d.APIVersion, aggregatedGroup)
}

func (d *document) wrongKind(want string) error {
	return fmt.Errorf("the response is not of kind %s but of kind %q in %q", want, d.Kind, d.APIVersion)
}

// decodeBulk decodes an answer of /api or /apis, in any of the forms in acceptBulk. keepLists is whether the resource
// lists are kept, too. An answer in protobuf has none: it was not asked for then.
func decodeBulk(body []byte, path string, keepLists bool) (*half, error) {
	if bytes.HasPrefix(body, []byte(protobufMagic)) {
		return decodeProtobuf(body)
	}
	return decodeJSON(body, path, keepLists)
}

func decodeJSON(body []byte, path string, keepLists bool) (*half, error) {
	doc, err := parseJSON(body)
	if err != nil {
		return nil, err
	}
	switch {
	case doc.aggregated() && keepLists && elementsWithin(body, keptDepth, maxKeptElements):
		return ownGroups(doc.Items)
	case doc.aggregated():
		return shareGroups(doc.Items, "json", func(item []byte) (*snapshot.Group, error) {
			return decodeJSONGroup(item, nil)
		})
	case path == corePath && doc.Kind == "APIVersions":
		if len(doc.Versions) > 0 {
			doc.Groups = []group[version]{{Versions: doc.Versions, Preferred: doc.Versions[0]}} // preferred as in client-go
		}
	case path == corePath:
		return nil, doc.wrongKind("APIGroupDiscoveryList or APIVersions")
	case doc.Kind != "APIGroupList":
		return nil, doc.wrongKind("APIGroupDiscoveryList or APIGroupList")
	}
	if err := checkCount(len(doc.Groups)); err != nil {
		return nil, err
	}
	read := &half{}
	for _, g := range doc.Groups {
		read.groups = append(read.groups, listed(g))
	}
	return read, nil
}

// shareGroups returns the groups of items. It decodes only those that no mapper of this
// process holds.
func shareGroups[T ~[]byte](items []T, form string, decode func([]byte) (*snapshot.Group, error)) (*half, error) {
	if err := checkCount(len(items)); err != nil {
		return nil, err
	}
	read := &half{groups: make([]*snapshot.Group, len(items)), hasResources: true}
	keys := make([]byte, 0, len(items)*len(share.Key{}))
	for i, item := range items {
		key := share.KeyOf(form, item)
		g, err := share.Groups.Get(key, func() (*snapshot.Group, error) { return decode(item) })
		if err != nil {
			return nil, err
		}
		read.groups[i], keys = g, append(keys, key[:]...)
	}
	read.key = share.KeyOf("groups", keys)
	return read, nil
}

// ownGroups returns the groups of items with their resource lists. Other mappers share none of them: who gets a list
// from a discovery cache should not change it, and might.
func ownGroups(items []json.RawMessage) (*half, error) {
	if err := checkCount(len(items)); err != nil {
		return nil, err
	}
	read := &half{groups: make([]*snapshot.Group, len(items)), hasResources: true}
	for i, item := range items {
		g, err := decodeJSONGroup(item, resourceListsOf(item))
		if err != nil {
			return nil, err
		}
		read.groups[i] = g
	}
	return read, nil
}

// decodeJSONGroup reads a group of the aggregated document. lists are its resource lists, or nil.
func decodeJSONGroup(data []byte, lists []*metav1.APIResourceList) (*snapshot.Group, error) {
	g := group[served]{}
	if err := json.Unmarshal(data, &g); err != nil {
		return nil, fmt.Errorf("a group of the aggregated document is malformed: %w", err)
	}
	b := builder{name: g.Metadata.Name}
	for i, v := range g.Versions {
		var list *metav1.APIResourceList
		if i < len(lists) {
			list = lists[i]
		}
		rows := make([]snapshot.Resource, 0, len(v.Resources))
		for _, r := range v.Resources {
			if kind := r.ResponseKind; kind.Group+kind.Version+kind.Kind != "" {
				rows = append(rows, snapshot.Resource{
					Name: r.Resource, Singular: r.SingularResource, Kind: kind.Kind, Namespaced: r.Scope == namespaced, Verbs: snapshot.Verbs(r.Verbs),
				})
			}
		}
		b.addServed(v.Version, v.Freshness, rows, list)
	}
	return b.group(), nil
}

func listed(g group[version]) *snapshot.Group {
	b := builder{name: g.Name, preferred: g.Preferred.Version}
	for _, v := range g.Versions {
		b.add(snapshot.Version{Name: v.Version})
	}
	return b.group()
}

var errNoVersions = errors.New("the server lists no versions of the group")

// decodeGroup reads the answer of /api, or of /apis/<group>, to a request for the plain
// form. A cache that drops Vary may send the aggregated form of /api. Then only the list of
// versions is used, because the resources may be of any age. Single groups and versions
// have one form only, so this can't happen there.
func decodeGroup(body []byte, gv schema.GroupVersion) (*snapshot.Group, error) {
	if gv.Group == "" {
		read, err := decodeBulk(body, corePath, false)
		if err != nil {
			return nil, err
		}
		if len(read.groups) != 1 || read.groups[0].Name() != "" {
			return nil, errors.New("the response is not about the core group")
		}
		return checkList(read.groups[0])
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
	return checkList(listed(doc.group))
}

// decodeTable reads the answer of /apis/<group>/<version>. The path says of which version that is:
// extension servers answer with a list that calls itself another version of the group
// (kubevirt#10899). A list of another group is an error. keepLists is whether the table gets the resource list, too.
func decodeTable(body []byte, gv schema.GroupVersion, keepLists bool) (*snapshot.Table, error) {
	doc, err := parseJSON(body)
	if err != nil {
		return nil, err
	}
	// Kind or group-version is enough: servers behind APIServices may leave out one.
	unnamed := doc.Kind == "" && doc.GroupVersion != ""
	if doc.Kind != "APIResourceList" && !unnamed {
		return nil, doc.wrongKind("APIResourceList")
	}
	if said, err := schema.ParseGroupVersion(doc.GroupVersion); doc.GroupVersion != "" && (err != nil || said.Group != gv.Group) {
		return nil, fmt.Errorf("the response is about %q, and not about a version of the group", doc.GroupVersion)
	}
	resources := make([]snapshot.Resource, 0, len(doc.Resources))
	for _, r := range doc.Resources {
		resources = append(resources, snapshot.Resource{
			Name: r.Name, Singular: r.SingularName, Kind: r.Kind, Namespaced: r.Namespaced, Verbs: snapshot.Verbs(r.Verbs),
		})
	}
	if err := checkRows(resources); err != nil {
		return nil, err
	}
	table := snapshot.NewTable(resources)
	if keepLists {
		table = table.WithResourceList(resourceListOf(body, gv))
	}
	return table, nil
}
