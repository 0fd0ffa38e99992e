// SPDX-License-Identifier: Apache-2.0

package apiutil_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/restmapper"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// Mappers that count how often they are reset, in the ways there are.
type (
	plainMapper       struct{ meta.RESTMapper }
	resettableMapper  struct{ plainMapper }
	withContextMapper struct{ plainMapper }
	bothMapper        struct {
		resettableMapper
		withContextMapper
		meta.RESTMapper
	}
)

// What has been called of those mappers.
var resets, resetsWithContext int

func (resettableMapper) Reset() { resets++ }

func (withContextMapper) ResetWithContext(ctx context.Context) {
	resetsWithContext++
	_ = ctx.Err() // which must not be nil
}

func takeResets() (plain, withContext int) {
	defer func() { resets, resetsWithContext = 0, 0 }()
	return resets, resetsWithContext
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
	for wrapping, wrap := range map[string]func(error) error{
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
	} {
		for want, errs := range map[bool]map[string]error{true: stale, false: other} {
			for name, err := range errs {
				if err == nil && wrapping != "bare" || wrapping == "in a discovery failure" && apierrors.IsNotFound(err) && !want {
					continue
				}
				got := apiutil.ResetOnNoMatch(wrap(err), resettableMapper{})
				if n, _ := takeResets(); got != want || (n == 1) != want {
					t.Errorf("%s, %s: returned %t after %d resets; want %t", wrapping, name, got, n, want)
				}
				if apiutil.ResetOnNoMatch(wrap(err)) {
					t.Errorf("%s, %s: returned true, nothing was there to reset", wrapping, name)
				}
			}
		}
	}
}

func TestResetOnNoMatchMappers(t *testing.T) {
	own := newMapper(t, newServer(fakeapi.Aggregated()), apiutil.DynamicRESTMapperOptions{})
	var nilPlain *plainMapper
	for name, test := range map[string]struct {
		mappers            []meta.RESTMapper
		plain, withContext int
		want               bool
	}{
		"none":                {},
		"nil":                 {mappers: []meta.RESTMapper{nil, nil}},
		"nil pointers":        {mappers: []meta.RESTMapper{(*apiutil.DynamicRESTMapper)(nil), nilPlain, (*restmapper.DeferredDiscoveryRESTMapper)(nil)}},
		"that cannot be":      {mappers: []meta.RESTMapper{plainMapper{}, meta.NewDefaultRESTMapper(nil)}},
		"one that can":        {mappers: []meta.RESTMapper{resettableMapper{}}, plain: 1, want: true},
		"only with a context": {mappers: []meta.RESTMapper{withContextMapper{}}, withContext: 1, want: true},
		"in both ways":        {mappers: []meta.RESTMapper{bothMapper{}}, withContext: 1, want: true},
		"our own":             {mappers: []meta.RESTMapper{own}, want: true},
		"many": {
			[]meta.RESTMapper{
				nil, resettableMapper{}, (*apiutil.DynamicRESTMapper)(nil), plainMapper{}, withContextMapper{}, own, bothMapper{}, resettableMapper{},
			}, 2, 2, true,
		},
	} {
		if apiutil.ResetOnNoMatch(nil, test.mappers...) || apiutil.ResetOnNoMatch(errors.New("any"), test.mappers...) {
			t.Errorf("%s: reset without reason", name)
		}
		got := apiutil.ResetOnNoMatch(fmt.Errorf("wrapped: %w", &meta.NoKindMatchError{}), test.mappers...)
		if plain, withContext := takeResets(); got != test.want || plain != test.plain || withContext != test.withContext {
			t.Errorf("%s: returned %t after %d resets and %d with a context; want %+v", name, got, plain, withContext, test)
		}
	}
}
