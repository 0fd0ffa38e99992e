// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"errors"
	"iter"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// The aggregated document is read field by field and not with the generated types, for
// two reasons. It can be split into groups without decoding them. And it can be read
// without its short names, categories and subresources, which are most of it. v2 and
// v2beta1 have the same wire form.

// protobufMagic begins every protobuf message of an API server
// (k8s.io/apimachinery/pkg/runtime/serializer/protobuf).
const protobufMagic = "k8s\x00"

// Field numbers, from generated.proto of k8s.io/apimachinery/pkg/runtime (Unknown,
// TypeMeta), of k8s.io/apimachinery/pkg/apis/meta/v1 (ObjectMeta,
// GroupVersionKind) and of k8s.io/api/apidiscovery/v2.
const (
	unknownTypeMeta, unknownRaw = 1, 2
	typeAPIVersion, typeKind    = 1, 2

	listItems = 2

	groupMeta, groupVersions = 1, 2
	metaName                 = 1

	versionName, versionResources, versionFreshness = 1, 2, 3

	resourceName, resourceKind, resourceScope, resourceSingular, resourceVerbs = 1, 2, 3, 4, 5

	kindKind = 3
)

var errWire = errors.New("the aggregated document is malformed protobuf")

// wire reads messages until there is an error.
type wire struct {
	remaining int // how many elements there may still be
	err       error
}

// fields returns the length-delimited fields of a message, and skips the others.
func (w *wire) fields(message []byte) iter.Seq2[protowire.Number, []byte] {
	return func(yield func(protowire.Number, []byte) bool) {
		for len(message) > 0 && w.err == nil {
			field, wireType, tagSize := protowire.ConsumeTag(message)
			if tagSize < 0 {
				w.err = errWire
				return
			}
			size := protowire.ConsumeFieldValue(field, wireType, message[tagSize:])
			if size < 0 {
				w.err = errWire
				return
			}
			value := message[tagSize : tagSize+size]
			message = message[tagSize+size:]
			if wireType != protowire.BytesType {
				continue
			}
			value, _ = protowire.ConsumeBytes(value)
			if !yield(field, value) {
				return
			}
		}
	}
}

// field returns one field of a message, or nil. If it comes twice, the last one counts.
func (w *wire) field(message []byte, number protowire.Number) (last []byte) {
	for field, value := range w.fields(message) {
		if field == number {
			last = value
		}
	}
	return last
}

// count counts an element before it is made.
func (w *wire) count() {
	w.remaining--
	if w.remaining < 0 {
		w.err = errElements
	}
}

// decodeDocumentProtobuf splits the document into groups and decodes those that no mapper of this process holds.
func decodeDocumentProtobuf(body []byte) (*groupList, error) {
	w := &wire{remaining: maxElements}
	unknown := body[len(protobufMagic):]
	typeMeta := w.field(unknown, unknownTypeMeta)
	doc := jsonDocument{
		Kind:       string(w.field(typeMeta, typeKind)),
		APIVersion: string(w.field(typeMeta, typeAPIVersion)),
	}
	list := w.field(unknown, unknownRaw)
	if w.err == nil && !doc.aggregated() {
		return nil, doc.wrongKind(aggregatedKind)
	}
	if w.err == nil && len(list) == 0 { // an empty list has at least its metadata
		w.err = errWire
	}
	var items [][]byte
	for field, item := range w.fields(list) {
		if field == listItems {
			items = append(items, item)
			w.err = checkGroupCount(len(items))
		}
	}
	if w.err != nil {
		return nil, w.err
	}
	w.remaining -= len(items)
	return shareGroups(items, "protobuf", w.group)
}

// group decodes a group.
func (w *wire) group(data []byte) (*snapshot.Group, error) {
	metadata := w.field(data, groupMeta)
	b := groupBuilder{name: string(w.field(metadata, metaName))}
	for field, value := range w.fields(data) {
		if field == groupVersions && !b.full() {
			w.version(&b, value)
		}
	}
	if w.err != nil {
		return nil, w.err
	}
	return b.group(), nil
}

// version decodes a version, and adds it to its group.
func (w *wire) version(b *groupBuilder, data []byte) {
	w.count()
	name, freshness := "", ""
	var resources []snapshot.Resource
	for field, value := range w.fields(data) {
		switch field {
		case versionName:
			name = string(value)
		case versionFreshness:
			freshness = string(value)
		case versionResources:
			w.count()
			if r, hasKind := w.resource(value); hasKind {
				resources = append(resources, r)
			}
		}
	}
	if w.err == nil {
		b.addServed(name, freshness, resources, nil)
	}
}

// resource decodes a resource. hasKind reports whether it has a kind of its own. Others are only the parents of
// subresources, and client-go drops those as well.
func (w *wire) resource(data []byte) (r snapshot.Resource, hasKind bool) {
	for field, value := range w.fields(data) {
		switch field {
		case resourceName:
			r.Name = string(value)
		case resourceSingular:
			r.Singular = string(value)
		case resourceScope:
			r.Namespaced = string(value) == scopeNamespaced
		case resourceVerbs:
			r.Verbs = r.Verbs.With(string(value))
		case resourceKind:
			for field, value := range w.fields(value) {
				hasKind = hasKind || len(value) > 0
				if field == kindKind {
					r.Kind = string(value)
				}
			}
		}
	}
	return r, hasKind
}
