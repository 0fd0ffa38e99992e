// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Reply is what an answer of the server says about the mapping that was used.
type Reply int

const (
	// ReplyFits: nothing speaks against the mapping.
	ReplyFits Reply = iota
	// ReplyNotFound: something was not found. Most likely it is the object, and not the path.
	ReplyNotFound
	// ReplyContradicts: the mapping is wrong, or the kind is not served any more. Nothing is served at
	// the path, client-go refused to send the request, or an object does not fit the scope.
	ReplyContradicts
)

// ReplyOf returns what the error of a request says about its mapping.
func ReplyOf(err error) Reply {
	if err == nil {
		return ReplyFits
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		// client-go's own, for a path with a namespace (k8s.io/client-go/rest, Request)
		if strings.HasPrefix(err.Error(), "an empty namespace may not be set") {
			return ReplyContradicts
		}
		return ReplyFits
	}
	if status.Status().Code != http.StatusNotFound {
		return ReplyFits
	}
	if isAboutPath(status.Status().Details) {
		return ReplyContradicts
	}
	return ReplyNotFound
}

// isAboutPath reports whether a 404 with these details is about the path. The API server's names no object: it is text,
// or from Kubernetes 1.38 on a metav1.Status without details. From text client-go makes a Status that has the name of
// the request, and the text as its cause (apierrors.NewGenericServerResponse).
func isAboutPath(details *metav1.StatusDetails) bool {
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

// ReplyOfList is ReplyOf for the answer to a list. An object that does not fit the scope contradicts the mapping: at
// the path of all namespaces the server lists a kind, whatever its scope.
func ReplyOfList(used *meta.RESTMapping, list runtime.Object, err error) Reply {
	if err != nil || !meta.IsListType(list) {
		return ReplyOf(err)
	}
	isNamespaced := used.Scope.Name() == meta.RESTScopeNameNamespace
	reply := ReplyFits
	_ = meta.EachListItem(list, func(item runtime.Object) error {
		if HasNamespace(item) != isNamespaced {
			reply = ReplyContradicts
		}
		return errFirstItem
	})
	return reply
}

// errFirstItem ends meta.EachListItem: the first object shows the scope of all.
var errFirstItem = errors.New("the first one is enough")

// HasNamespace reports whether an object is in a namespace.
func HasNamespace(obj runtime.Object) bool {
	object, err := meta.Accessor(obj)
	return err == nil && object.GetNamespace() != ""
}
