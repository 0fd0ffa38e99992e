// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

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

// jsonDocument has the fields of every document that is read in JSON.
type jsonDocument struct {
	Kind        string            `json:"kind"`
	APIVersion  string            `json:"apiVersion"`
	Items       []json.RawMessage `json:"items"`  // APIGroupDiscoveryList
	Groups      []listedGroup     `json:"groups"` // APIGroupList
	listedGroup                   // APIGroup; of APIVersions the versions

	GroupVersion string           `json:"groupVersion"` // APIResourceList
	Resources    []listedResource `json:"resources"`
}

// listedGroup is a group of a legacy document, which has versions without their resources.
type listedGroup struct {
	Name      string          `json:"name"`
	Versions  []listedVersion `json:"versions"`
	Preferred listedVersion   `json:"preferredVersion"`
}

// listedVersion is an object in a group, and a name in APIVersions.
type listedVersion struct {
	Version string `json:"version"`
}

func (v *listedVersion) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		return json.Unmarshal(data, &v.Version)
	}
	type object listedVersion // without this method
	return json.Unmarshal(data, (*object)(v))
}

func (g *listedGroup) group() *snapshot.Group {
	b := builder{name: g.Name, preferred: g.Preferred.Version}
	for _, v := range g.Versions {
		b.add(snapshot.Version{Name: v.Version})
	}
	return b.group()
}

type listedResource struct {
	Name         string `json:"name"`
	SingularName string `json:"singularName"`
	Kind         string `json:"kind"`
	Namespaced   bool   `json:"namespaced"`
	Verbs        verbs  `json:"verbs"`
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
func parseJSON(body []byte) (*jsonDocument, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, errors.New("the response is empty")
	}
	if bytes.Count(body, []byte{','}) > maxElements && elements(body) > maxElements {
		return nil, errElements
	}
	doc := &jsonDocument{}
	if err := json.Unmarshal(body, doc); err != nil {
		return nil, fmt.Errorf("the response is not a discovery document: %w", err)
	}
	return doc, nil
}

// decodedDepth is the depth of the lists that are decoded: the items, their versions, and
// the resources of these, each in an object. Deeper lists are skipped.
const decodedDepth = 6

// elements counts the commas in the lists that are decoded: a comma costs a server little
// to send, and stands for an element that takes much memory. Most commas that honest
// servers send are elsewhere. If the body is no JSON, the count means nothing.
func elements(body []byte) (commas int) {
	var list [decodedDepth + 1]bool // whether a list is open at each depth
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
			if depth++; depth <= decodedDepth {
				list[depth] = c == '['
			}
		case ']', '}':
			depth = max(depth-1, 0)
		case ',':
			if depth <= decodedDepth && list[depth] {
				commas++
			}
		}
	}
	return commas
}

func (d *jsonDocument) aggregated() bool {
	return d.Kind == aggregatedKind && strings.HasPrefix(d.APIVersion, aggregatedGroup)
}

func (d *jsonDocument) wrongKind(want string) error {
	return fmt.Errorf("the response is not of kind %s but of kind %q in %q", want, d.Kind, d.APIVersion)
}

// decodeBulk decodes an answer of /api or /apis, in any of the forms in acceptBulk.
func decodeBulk(body []byte, path string) (doc *share.Document, err error) {
	if bytes.HasPrefix(body, []byte(protobufMagic)) {
		doc, err = decodeProtobuf(body)
	} else {
		doc, err = decodeJSON(body, path)
	}
	if err == nil && len(doc.Groups) == 0 {
		err = errors.New("the server lists no API groups")
	}
	return doc, err
}

func decodeJSON(body []byte, path string) (*share.Document, error) {
	doc, err := parseJSON(body)
	if err != nil {
		return nil, err
	}
	switch {
	case doc.aggregated():
		return shareGroups(doc.Items, "json", decodeJSONGroup)
	case path == corePath && doc.Kind == "APIVersions":
		if len(doc.Versions) == 0 {
			return nil, errNoVersions
		}
		doc.Groups = []listedGroup{{Versions: doc.Versions, Preferred: doc.Versions[0]}} // preferred as in client-go
	case path == corePath:
		return nil, doc.wrongKind("APIGroupDiscoveryList or APIVersions")
	case doc.Kind != "APIGroupList":
		return nil, doc.wrongKind("APIGroupDiscoveryList or APIGroupList")
	}
	if err := checkCount(len(doc.Groups)); err != nil {
		return nil, err
	}
	all := &share.Document{}
	for _, g := range doc.Groups {
		all.Groups = append(all.Groups, g.group())
	}
	return all, nil
}

// shareGroups returns the groups of items. It decodes only those that no mapper of this
// process holds.
func shareGroups[T ~[]byte](items []T, form string, decode func([]byte) (*snapshot.Group, error)) (*share.Document, error) {
	if err := checkCount(len(items)); err != nil {
		return nil, err
	}
	doc := &share.Document{Groups: make([]*snapshot.Group, len(items))}
	keys := make([]share.Key, len(items))
	for i, item := range items {
		keys[i] = share.KeyOf(form, item)
		g, err := share.Group(keys[i], func() (*snapshot.Group, error) { return decode(item) })
		if err != nil {
			return nil, err
		}
		doc.Groups[i] = g
	}
	doc.Key = share.KeyOfAll(keys...)
	return doc, nil
}

// aggregatedJSON is an APIGroupDiscovery without what lookups do not need.
type aggregatedJSON struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Versions []struct {
		Version   string `json:"version"`
		Freshness string `json:"freshness"`
		Resources []struct {
			Resource     string `json:"resource"`
			Singular     string `json:"singularResource"`
			Scope        string `json:"scope"`
			Verbs        verbs  `json:"verbs"`
			ResponseKind struct {
				Group, Version, Kind string
			} `json:"responseKind"`
		} `json:"resources"`
	} `json:"versions"`
}

func decodeJSONGroup(data []byte) (*snapshot.Group, error) {
	group := aggregatedJSON{}
	if err := json.Unmarshal(data, &group); err != nil {
		return nil, fmt.Errorf("a group of the aggregated document is malformed: %w", err)
	}
	b := builder{name: group.Metadata.Name}
	for _, v := range group.Versions {
		var rows []snapshot.Resource
		for _, r := range v.Resources {
			if kind := r.ResponseKind; kind.Group+kind.Version+kind.Kind != "" {
				rows = append(rows, snapshot.Resource{
					Name: r.Resource, Singular: r.Singular, Kind: kind.Kind, Namespaced: r.Scope == namespaced, Verbs: snapshot.Verbs(r.Verbs),
				})
			}
		}
		b.addServed(v.Version, v.Freshness, rows)
	}
	return b.group(), nil
}

var errNoVersions = errors.New("the server lists no versions of the group")

// decodeGroup reads the answer of /api, or of /apis/<group>, to a request for the plain
// form. A cache that drops Vary may send the aggregated form of /api. Then only the list of
// versions is used, because the resources may be of any age. Single groups and versions
// have one form only, so this can't happen there.
func decodeGroup(body []byte, gv schema.GroupVersion) (*snapshot.Group, error) {
	if gv.Group == "" {
		doc, err := decodeBulk(body, corePath)
		if err != nil {
			return nil, err
		}
		if len(doc.Groups) != 1 || doc.Groups[0].Name() != "" {
			return nil, errors.New("the response is not about the core group")
		}
		return checkList(doc.Groups[0])
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
	return checkList(doc.group())
}

// decodeTable reads the answer of /apis/<group>/<version>.
func decodeTable(body []byte, gv schema.GroupVersion) (*snapshot.Table, error) {
	doc, err := parseJSON(body)
	if err != nil {
		return nil, err
	}
	// Kind or group-version is enough: servers behind APIServices may leave out one.
	unnamed := doc.Kind == "" && doc.GroupVersion != ""
	if doc.Kind != "APIResourceList" && !unnamed {
		return nil, doc.wrongKind("APIResourceList")
	}
	if doc.GroupVersion != "" && doc.GroupVersion != gv.String() {
		return nil, fmt.Errorf("the response is about %q", doc.GroupVersion)
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
	return snapshot.NewTable(resources), nil
}
