// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/freshmapper/freshmapper/internal/share"
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

// decodeProtobuf splits the document into groups and decodes those that are new.
func decodeProtobuf(body []byte) (*share.Document, error) {
	var apiVersion, kind string
	var raw []byte
	err := eachField(body[len(protobufMagic):], func(field protowire.Number, value []byte) error {
		switch field {
		case unknownTypeMeta:
			return eachField(value, func(field protowire.Number, value []byte) error {
				switch field {
				case typeAPIVersion:
					apiVersion = string(value)
				case typeKind:
					kind = string(value)
				}
				return nil
			})
		case unknownRaw:
			raw = value
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if kind != aggregatedKind || !strings.HasPrefix(apiVersion, aggregatedGroup) {
		return nil, fmt.Errorf("the response is not of kind %s but of kind %q in %q", aggregatedKind, kind, apiVersion)
	}
	items, err := splitItems(raw)
	if err != nil {
		return nil, err
	}
	left := maxElements - len(items)
	return shareGroups(items, "protobuf", func(data []byte) (*snapshot.Group, error) {
		return decodeProtobufGroup(data, &left)
	})
}

func splitItems(list []byte) ([][]byte, error) {
	var items [][]byte
	err := eachField(list, func(field protowire.Number, value []byte) error {
		if field != listItems {
			return nil
		}
		items = append(items, value)
		return checkCount(len(items))
	})
	return items, err
}

func decodeProtobufGroup(data []byte, left *int) (*snapshot.Group, error) {
	a := aggregated{}
	// The name comes first on the wire, but nothing guarantees that.
	if err := eachField(data, func(field protowire.Number, value []byte) error {
		if field != groupMeta {
			return nil
		}
		return eachField(value, func(field protowire.Number, value []byte) error {
			if field == metaName {
				a.name = string(value)
			}
			return nil
		})
	}); err != nil {
		return nil, err
	}
	err := eachField(data, func(field protowire.Number, value []byte) error {
		if field != groupVersions {
			return nil
		}
		return a.decodeVersion(value, left)
	})
	if err != nil {
		return nil, err
	}
	return a.group(a.preferred), nil
}

func (a *aggregated) decodeVersion(data []byte, left *int) error {
	if a.full() {
		return nil
	}
	if err := take(left); err != nil {
		return err
	}
	name, freshness := "", ""
	var resources []snapshot.Resource
	err := eachField(data, func(field protowire.Number, value []byte) error {
		switch field {
		case versionName:
			name = string(value)
		case versionFreshness:
			freshness = string(value)
		case versionResources:
			if err := take(left); err != nil {
				return err
			}
			r, ok, err := decodeResource(value)
			if err != nil || !ok {
				return err
			}
			resources = append(resources, r)
		}
		return nil
	})
	if err != nil {
		return err
	}
	a.addVersion(name, freshness, resources)
	return nil
}

// decodeResource decodes a resource. ok reports whether it has a kind of its own.
func decodeResource(data []byte) (r snapshot.Resource, ok bool, err error) {
	err = eachField(data, func(field protowire.Number, value []byte) error {
		switch field {
		case resourceName:
			r.Name = string(value)
		case resourceSingular:
			r.Singular = string(value)
		case resourceScope:
			r.Namespaced = string(value) == "Namespaced"
		case resourceVerbs:
			r.Verbs = r.Verbs.With(string(value))
		case resourceKind:
			return eachField(value, func(field protowire.Number, value []byte) error {
				ok = ok || len(value) > 0
				if field == kindKind {
					r.Kind = string(value)
				}
				return nil
			})
		}
		return nil
	})
	return r, ok, err
}

// eachField calls visit for every length-delimited field of a message, and skips the
// others.
func eachField(message []byte, visit func(field protowire.Number, value []byte) error) error {
	for len(message) > 0 {
		field, wireType, n := protowire.ConsumeTag(message)
		if n < 0 {
			return errWire
		}
		message = message[n:]
		if wireType != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(field, wireType, message); n < 0 {
				return errWire
			}
			message = message[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(message)
		if n < 0 {
			return errWire
		}
		if err := visit(field, value); err != nil {
			return err
		}
		message = message[n:]
	}
	return nil
}
