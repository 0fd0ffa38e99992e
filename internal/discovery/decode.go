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
)

// jsonDocument has the fields of every document that is read in JSON.
type jsonDocument struct {
	Kind       string            `json:"kind"`
	APIVersion string            `json:"apiVersion"`
	Items      []json.RawMessage `json:"items"`    // APIGroupDiscoveryList
	Groups     []legacyGroup     `json:"groups"`   // APIGroupList
	Versions   []json.RawMessage `json:"versions"` // APIVersions: strings; APIGroup: objects
	Name       string            `json:"name"`     // APIGroup
	Preferred  legacyVersion     `json:"preferredVersion"`

	GroupVersion string           `json:"groupVersion"` // APIResourceList
	Resources    []legacyResource `json:"resources"`
}

type legacyGroup struct {
	Name      string          `json:"name"`
	Versions  []legacyVersion `json:"versions"`
	Preferred legacyVersion   `json:"preferredVersion"`
}

type legacyVersion struct {
	Version string `json:"version"`
}

type legacyResource struct {
	Name         string `json:"name"`
	SingularName string `json:"singularName"`
	Kind         string `json:"kind"`
	Namespaced   bool   `json:"namespaced"`
	Verbs        verbs  `json:"verbs"`
}

// verbs is a list of verbs. What is none is left out, and so is what comes after maxVerbs:
// no kind is lost because of its verbs.
type verbs snapshot.Verbs

func (v *verbs) UnmarshalJSON(list []byte) error {
	var names [maxVerbs]string
	_ = json.Unmarshal(list, &names) // as said above
	set := snapshot.Verbs(0)
	for _, name := range names {
		set = set.With(name)
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

func (d *jsonDocument) wrongKind(want string) error {
	return fmt.Errorf("the response is not of kind %s but of kind %q in %q", want, d.Kind, d.APIVersion)
}

// decodeBulk decodes an answer of /api or /apis, in any of the forms in acceptBulk.
func decodeBulk(body []byte, path string) (*share.Document, error) {
	doc, err := decodeForm(body, path)
	if err != nil {
		return nil, err
	}
	if len(doc.Groups) == 0 {
		return nil, errors.New("the server lists no API groups")
	}
	return doc, nil
}

func decodeForm(body []byte, path string) (*share.Document, error) {
	if bytes.HasPrefix(body, []byte(protobufMagic)) {
		return decodeProtobuf(body)
	}
	doc, err := parseJSON(body)
	if err != nil {
		return nil, err
	}
	switch {
	case doc.Kind == aggregatedKind && strings.HasPrefix(doc.APIVersion, aggregatedGroup):
		return shareGroups(doc.Items, "json", decodeJSONGroup)
	case path == corePath && doc.Kind == "APIVersions":
		core, err := doc.coreGroup()
		return &share.Document{Groups: []*snapshot.Group{core}}, err
	case path == namedPath && doc.Kind == "APIGroupList":
		return doc.groupList()
	case path == corePath:
		return nil, doc.wrongKind("APIGroupDiscoveryList or APIVersions")
	default:
		return nil, doc.wrongKind("APIGroupDiscoveryList or APIGroupList")
	}
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
	a := aggregated{builder: builder{name: group.Metadata.Name}}
	for _, v := range group.Versions {
		var rows []snapshot.Resource
		for _, r := range v.Resources {
			if kind := r.ResponseKind; kind.Group+kind.Version+kind.Kind != "" {
				rows = append(rows, snapshot.Resource{
					Name: r.Resource, Singular: r.Singular, Kind: kind.Kind, Namespaced: r.Scope == "Namespaced", Verbs: snapshot.Verbs(r.Verbs),
				})
			}
		}
		a.addVersion(v.Version, v.Freshness, rows)
	}
	return a.group(a.preferred), nil
}

// aggregated makes one group of an aggregated document. A resource without a response
// kind is only the parent of subresources. client-go drops such resources, and so do the
// callers of addVersion.
type aggregated struct {
	builder
	preferred string          // the first version is
	table     *snapshot.Table // the last one made
}

// addVersion adds a version. One that the server marks as stale gets no table: its
// resources "may be significantly out of date" (k8s.io/api/apidiscovery/v2), and client-go
// leaves it out as well.
func (a *aggregated) addVersion(name, freshness string, rows []snapshot.Resource) {
	if a.full() {
		return
	}
	if len(a.versions) == 0 {
		a.preferred = name
	}
	v, err := snapshot.Version{Name: name}, checkRows(rows)
	switch {
	case freshness == stale:
		gv := schema.GroupVersion{Group: a.name, Version: name}
		path, _ := versionPath(gv)
		v.Err = &Error{Path: path, GroupVersion: gv, Err: errStale}
	case err != nil:
		v.Err = exceeded(a.name, name, err)
	default:
		a.table = snapshot.NewTableLike(a.table, rows)
		v.Table = a.table
	}
	a.add(v)
}
