// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Doubt is how strongly an answer speaks against the mapping that was used.
type Doubt int

const (
	// None: the answer does not speak against the mapping.
	None Doubt = iota
	// Slight: something was not found. Most likely it is the object, and not the path.
	Slight
	// Contradiction: the mapping is wrong, or the kind is gone. Nothing is served at the path,
	// client-go refused to send the request, or an object does not fit the scope.
	Contradiction
)

// DoubtOf returns the doubt that the error of a request casts on its mapping.
func DoubtOf(err error) Doubt {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return None
	case !errors.As(err, &status):
		// client-go's own, for a path with a namespace (k8s.io/client-go/rest, Request)
		if strings.HasPrefix(err.Error(), "an empty namespace may not be set") {
			return Contradiction
		}
		return None
	case status.Status().Code != http.StatusNotFound:
		return None
	case isPath(status.Status().Details):
		return Contradiction
	}
	return Slight
}

// isPath reports whether a 404 with these details is about the path. The API server's names no object:
// it is text, or from Kubernetes 1.38 on a metav1.Status without details. From text client-go makes a
// Status that has the name of the request, and the text as its cause
// (apierrors.NewGenericServerResponse).
func isPath(details *metav1.StatusDetails) bool {
	if details == nil {
		return true
	}
	for _, cause := range details.Causes {
		if cause.Type == metav1.CauseTypeUnexpectedServerResponse {
			return cause.Message == "404 page not found"
		}
	}
	return details.Name == ""
}

// DoubtOfList is DoubtOf for the answer to a list. An object that does not fit the scope is a contradiction:
// at the path of all namespaces the server lists whatever scope the kind has.
func DoubtOfList(used *meta.RESTMapping, list runtime.Object, err error) Doubt {
	if err != nil || !meta.IsListType(list) {
		return DoubtOf(err)
	}
	doubt := None
	_ = meta.EachListItem(list, func(item runtime.Object) error {
		if HasNamespace(item) != (used.Scope.Name() == meta.RESTScopeNameNamespace) {
			doubt = Contradiction
		}
		return context.Canceled // the first one tells
	})
	return doubt
}

// HasNamespace reports whether an object is in a namespace.
func HasNamespace(obj runtime.Object) bool {
	object, err := meta.Accessor(obj)
	return err == nil && object.GetNamespace() != ""
}
