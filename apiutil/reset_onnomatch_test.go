// SPDX-License-Identifier: Apache-2.0

package apiutil_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// Mappers that count how often they are reset, in the ways there are.
type (
	plainMapper       struct{ meta.RESTMapper }
	resettableMapper  struct{ meta.RESTMapper }
	withContextMapper struct{ meta.RESTMapper }
	bothMapper        struct{ meta.RESTMapper }
)

func (resettableMapper) Reset() { resetCounts.plain.Add(1) }

func (bothMapper) Reset() { resetCounts.plain.Add(1) }

func (withContextMapper) ResetWithContext(context.Context) { resetCounts.withContext.Add(1) }

func (bothMapper) ResetWithContext(ctx context.Context) {
	resetCounts.withContext.Add(1)
	_ = ctx.Err() // which must not be nil
}

// resetCounts is told of all resets of those mappers.
var resetCounts struct{ plain, withContext atomic.Int32 }

func takeResets() (plain, withContext int32) {
	return resetCounts.plain.Swap(0), resetCounts.withContext.Swap(0)
}

func discoveryFailed(err error) *apiutil.ErrResourceDiscoveryFailed {
	return &apiutil.ErrResourceDiscoveryFailed{{Group: "example.com", Version: "v1"}: err}
}

func TestResetOnNoMatchErrors(t *testing.T) {
	resource := schema.GroupResource{Group: "example.com", Resource: "foos"}
	missingObject := apierrors.NewNotFound(resource, "my-foo")
	unserved := apierrors.NewGenericServerResponse(http.StatusNotFound, "get", resource, "my-foo", "404 page not found", 0, true)
	unservedList := apierrors.NewGenericServerResponse(http.StatusNotFound, "list", resource, "", "404 page not found", 0, true)
	unservedStatus := &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: "the server could not find the requested resource", Details: &metav1.StatusDetails{},
	}}
	withoutDetails := &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound}}
	noKind := &meta.NoKindMatchError{GroupKind: fooKind.GroupKind(), SearchedVersions: []string{"v1"}}
	noResource := &meta.NoResourceMatchError{PartialResource: resource.WithVersion("v1")}

	stale := map[string]error{
		"no kind": noKind, "no resource": noResource,
		"discovery failed around no kind":           discoveryFailed(noKind),
		"discovery failed around no resource":       discoveryFailed(fmt.Errorf("wrapped: %w", noResource)),
		"discovery failed around NotFound":          discoveryFailed(apierrors.NewNotFound(schema.GroupResource{}, "")),
		"discovery failed around a named NotFound":  discoveryFailed(missingObject),
		"not served, as client-go makes it":         unserved,
		"not served, as client-go makes it, a list": unservedList,
		"not served, as a Status":                   unservedStatus,
		"not served, as a Status without details":   withoutDetails,
	}
	forbidden := apierrors.NewForbidden(resource, "my-foo", errors.New("no"))
	other := map[string]error{
		"nil":                             nil,
		"any error":                       errors.New("the server could not find the requested resource"),
		"a missing object":                missingObject,
		"403":                             forbidden,
		"500":                             apierrors.NewInternalError(errors.New("broken")),
		"503, not from the API server":    apierrors.NewGenericServerResponse(http.StatusServiceUnavailable, "get", resource, "my-foo", "", 0, true),
		"gone":                            apierrors.NewResourceExpired("gone"),
		"an ambiguous kind":               &meta.AmbiguousKindError{},
		"discovery failed":                discoveryFailed(errors.New("503")),
		"discovery failed around a 403":   discoveryFailed(forbidden),
		"discovery failed around nothing": &apiutil.ErrResourceDiscoveryFailed{},
		"the end of a context":            context.Canceled,
	}
	wrappings := map[string]func(error) error{
		"bare":    func(err error) error { return err },
		"wrapped": func(err error) error { return fmt.Errorf("get: %w", fmt.Errorf("again: %w", err)) },
		"joined":  func(err error) error { return errors.Join(errors.New("first"), err) },
		"joined behind a missing object": func(err error) error {
			return fmt.Errorf("both: %w", errors.Join(missingObject, fmt.Errorf("wrapped: %w", err)))
		},
		"joined in the text": func(err error) error { return fmt.Errorf("%w and %w", forbidden, err) },
		"aggregated": func(err error) error {
			return fmt.Errorf("both: %w", utilerrors.NewAggregate([]error{errors.New("first"), err}))
		},
		"in a discovery failure": func(err error) error { return discoveryFailed(errors.Join(forbidden, err)) },
	}
	for wrapping, wrap := range wrappings {
		for name, err := range stale {
			wantResetOnNoMatch(t, wrapping+", "+name, wrap(err), true)
		}
		for name, err := range other {
			if err == nil && wrapping != "bare" || wrapping == "in a discovery failure" && apierrors.IsNotFound(err) {
				continue
			}
			wantResetOnNoMatch(t, wrapping+", "+name, wrap(err), false)
		}
	}
}

func wantResetOnNoMatch(t *testing.T, name string, err error, want bool) {
	t.Helper()
	if got := apiutil.ResetOnNoMatch(err, resettableMapper{}); got != want {
		t.Errorf("%s: returned %t; want %t", name, got, want)
	}
	if plain, _ := takeResets(); (plain == 1) != want {
		t.Errorf("%s: %d resets", name, plain)
	}
	if apiutil.ResetOnNoMatch(err) {
		t.Errorf("%s: returned true, nothing was there to reset", name)
	}
}

func TestResetOnNoMatchMappers(t *testing.T) {
	own := newMapper(t, newServer(fakeapi.Aggregated()), apiutil.DynamicRESTMapperOptions{})
	tests := []struct {
		name               string
		mappers            []meta.RESTMapper
		plain, withContext int32
		want               bool
	}{
		{name: "none"},
		{name: "nil", mappers: []meta.RESTMapper{nil, nil}},
		{name: "one that cannot be reset", mappers: []meta.RESTMapper{plainMapper{}, meta.NewDefaultRESTMapper(nil)}},
		{name: "one that can", mappers: []meta.RESTMapper{resettableMapper{}}, plain: 1, want: true},
		{name: "only with a context", mappers: []meta.RESTMapper{withContextMapper{}}, withContext: 1, want: true},
		{name: "in both ways", mappers: []meta.RESTMapper{bothMapper{}}, withContext: 1, want: true},
		{name: "our own", mappers: []meta.RESTMapper{own}, want: true},
		{
			name: "many", plain: 2, withContext: 2, want: true,
			mappers: []meta.RESTMapper{
				nil, resettableMapper{}, plainMapper{}, withContextMapper{}, own, bothMapper{}, resettableMapper{},
			},
		},
	}
	for _, tt := range tests {
		if got := apiutil.ResetOnNoMatch(fmt.Errorf("wrapped: %w", &meta.NoKindMatchError{}), tt.mappers...); got != tt.want {
			t.Errorf("%s: returned %t", tt.name, got)
		}
		if plain, withContext := takeResets(); plain != tt.plain || withContext != tt.withContext {
			t.Errorf("%s: %d resets and %d with a context; want %d and %d", tt.name, plain, withContext, tt.plain, tt.withContext)
		}
		if apiutil.ResetOnNoMatch(nil, tt.mappers...) || apiutil.ResetOnNoMatch(errors.New("any"), tt.mappers...) {
			t.Errorf("%s: reset without reason", tt.name)
		}
		if plain, withContext := takeResets(); plain+withContext != 0 {
			t.Errorf("%s: reset without reason", tt.name)
		}
	}
}
