// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"context"
	"net/http"
	"reflect" //nolint:depguard // Only it can tell a nil pointer of a type that is not ours.

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/freshmapper/freshmapper/internal/engine"
)

// Reset makes the mapper read the server again: every lookup that begins after Reset has
// returned is answered from a read that began after the reset. Reset sends no request and
// does not wait: the next lookup reads. While the server cannot be read, known kinds are
// still served and the reset stays pending.
func (m *DynamicRESTMapper) Reset() { m.ResetWithContext(context.Background()) }

// ResetWithContext is Reset, for meta.ResettableRESTMapperWithContext of newer versions of
// apimachinery. It ignores the context, because there is nothing to cancel: it sends no
// request and waits for nobody. The lookups that read the server afterwards have contexts of
// their own.
func (m *DynamicRESTMapper) ResetWithContext(context.Context) { m.engine.Reloader.Reset() }

// Refresh reads the server now: the discovery document and what differs from it, or, if groups are given, the paths of
// these groups and their versions; "" is the core group. Every lookup after Refresh knows what it found. Without
// groups the error is nil if the server could be read, even if single versions did not answer: Status has those. With
// groups the error joins the errors of all failed reads. Refresh returns when it is done or when ctx ends.
func (m *DynamicRESTMapper) Refresh(ctx context.Context, groups ...string) error {
	if len(groups) == 0 {
		return m.engine.Reloader.Refresh(ctx)
	}
	return m.engine.Reloader.RefreshGroups(ctx, groups)
}

// ResetOnNoMatch resets the mappers if err, however wrapped or joined, means that
// discovery is stale. Three errors mean that: a NoMatch of a kind or a resource, an
// *ErrResourceDiscoveryFailed around one, and the 404 of an API server for a resource
// that it does not serve. A 404 for an object does not. ResetOnNoMatch reports whether it
// has reset a mapper.
//
// It ignores a nil err, nil mappers, and mappers that cannot be reset, such as that of
// controller-runtime v0.25 and before.
func ResetOnNoMatch(err error, mappers ...meta.RESTMapper) bool {
	if !meta.IsNoMatchError(err) && !engine.AnyError(err, isUnservedResource) {
		return false
	}
	reset := false
	for _, mapper := range mappers {
		if v := reflect.ValueOf(mapper); v.Kind() == reflect.Pointer && v.IsNil() { // of an optional field
			continue
		}
		switch mapper := mapper.(type) {
		case interface{ ResetWithContext(context.Context) }: // not every supported apimachinery has a name for it
			mapper.ResetWithContext(context.Background())
			reset = true
		case meta.ResettableRESTMapper:
			mapper.Reset()
			reset = true
		}
	}
	return reset
}

// isUnservedResource reports whether err is the answer for a path that the server does
// not know. Such an answer names no object. client-go may fill in the name from the
// request; then it adds a cause for a body that was no metav1.Status
// (apierrors.NewGenericServerResponse).
func isUnservedResource(err error) bool {
	status, ok := err.(apierrors.APIStatus)
	if !ok || status.Status().Code != http.StatusNotFound {
		return false
	}
	details := status.Status().Details
	return details == nil || details.Name == "" ||
		apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
