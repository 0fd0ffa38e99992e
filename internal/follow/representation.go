// SPDX-License-Identifier: Apache-2.0

package follow

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Representation is the sort of Go type in which a program wants objects or lists.
type Representation int

const (
	// Typed is a Go type of its own for each kind.
	Typed Representation = iota
	// Unstructured is runtime.Unstructured. The object says of which kind it is.
	Unstructured
	// MetadataOnly is metav1.PartialObjectMetadata or a list of these. The object says of which kind it is.
	MetadataOnly
)

// RepresentationOf returns the representation of an object or of a list.
func RepresentationOf(obj runtime.Object) Representation {
	switch obj.(type) {
	case runtime.Unstructured:
		return Unstructured
	case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		return MetadataOnly
	default:
		return Typed
	}
}
