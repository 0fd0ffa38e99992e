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
	resettableMapper  struct{ meta.RESTMapper }
	withContextMapper struct{ meta.RESTMapper }
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

func discoveryFailed(err error) error {
	return &apiutil.ErrResourceDiscoveryFailed{{Group: "example.com", Version: "v1"}: err}
}

func TestResetOnNoMatchErrors(t *testing.T) {
	resource := schema.GroupResource{Group: "example.com", Resource: "foos"}
	answer := func(code int, verb, name string) error {
		return apierrors.NewGenericServerResponse(code, verb, resource, name, "404 page not found", 0, true)
	}
	status := func(details *metav1.StatusDetails) error {
		return &apierrors.StatusError{
			ErrStatus: metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Details: details},
		}
	}
	missingObject, forbidden := apierrors.NewNotFound(resource, "my-foo"), apierrors.NewForbidden(
		resource, "my-foo", errors.New("no"),
	)
	noKind := &meta.NoKindMatchError{GroupKind: fooKind.GroupKind(), SearchedVersions: []string{"v1"}}
	noResource := &meta.NoResourceMatchError{PartialResource: resource.WithVersion("v1")}
	for _, test := range []struct {
		name  string
		err   error
		stale bool // the mapper is reset for err
	}{
		{"no kind", noKind, true},
		{"no resource", noResource, true},
		{"discovery failed around no kind", discoveryFailed(noKind), true},
		{"discovery failed around no resource", discoveryFailed(fmt.Errorf("wrapped: %w", noResource)), true},
		{"discovery failed around NotFound", discoveryFailed(apierrors.NewNotFound(schema.GroupResource{}, "")), true},
		{"discovery failed around a named NotFound", discoveryFailed(missingObject), true},
		{"not served, as client-go makes it", answer(http.StatusNotFound, "get", "my-foo"), true},
		{"not served, as client-go makes it, a list", answer(http.StatusNotFound, "list", ""), true},
		{"not served, as a Status", status(&metav1.StatusDetails{}), true},
		{"not served, as a Status without details", status(nil), true},
		{"nil", nil, false},
		{"any error", errors.New("the server could not find the requested resource"), false},
		{"a missing object", missingObject, false},
		{"403", forbidden, false},
		{"503, not from the API server", answer(http.StatusServiceUnavailable, "get", "my-foo"), false},
		{"gone", apierrors.NewResourceExpired("gone"), false},
		{"an ambiguous kind", &meta.AmbiguousKindError{}, false},
		{"discovery failed", discoveryFailed(errors.New("503")), false},
		{"discovery failed around a 403", discoveryFailed(forbidden), false},
		{"discovery failed around nothing", &apiutil.ErrResourceDiscoveryFailed{}, false},
		{"the end of a context", context.Canceled, false},
	} {
		err := test.err
		wrapped := map[string]error{
			"bare":                           err,
			"wrapped":                        fmt.Errorf("get: %w", fmt.Errorf("again: %w", err)),
			"joined":                         errors.Join(errors.New("first"), err),
			"joined behind a missing object": fmt.Errorf("both: %w", errors.Join(missingObject, fmt.Errorf("wrapped: %w", err))),
			"aggregated":                     fmt.Errorf("both: %w", utilerrors.NewAggregate([]error{errors.New("first"), err})),
			"in a discovery failure":         discoveryFailed(errors.Join(forbidden, err)),
		}
		if !test.stale && apierrors.IsNotFound(test.err) {
			delete(wrapped, "in a discovery failure") // where it says so
		}
		for how, err := range wrapped {
			resets = 0
			got, without := apiutil.ResetOnNoMatch(err, resettableMapper{}), apiutil.ResetOnNoMatch(err)
			if got != test.stale || (resets == 1) != test.stale || without {
				t.Errorf("%s, %s: returned %t after %d resets, want %t; and %t without a mapper, want false",
					how, test.name, got, resets, test.stale, without)
			}
		}
	}
}

func TestResetOnNoMatchMappers(t *testing.T) {
	own, cannot := newMapper(
		t, newServer(fakeapi.Aggregated()), apiutil.DynamicRESTMapperOptions{},
	), meta.NewDefaultRESTMapper(nil)
	var nilOwn *apiutil.DynamicRESTMapper
	for name, test := range map[string]struct {
		mappers            []meta.RESTMapper
		plain, withContext int
		want               bool
	}{
		"none": {},
		"nil":  {mappers: []meta.RESTMapper{nil, nil}},
		"nil pointers": {
			mappers: []meta.RESTMapper{nilOwn, (*meta.DefaultRESTMapper)(nil), (*restmapper.DeferredDiscoveryRESTMapper)(nil)},
		},
		"that cannot be": {mappers: []meta.RESTMapper{cannot}},
		"our own":        {mappers: []meta.RESTMapper{own}, want: true},
		"in both ways":   {mappers: []meta.RESTMapper{bothMapper{}}, withContext: 1, want: true},
		"many":           {[]meta.RESTMapper{nil, resettableMapper{}, nilOwn, cannot, withContextMapper{}, own, bothMapper{}, resettableMapper{}}, 2, 2, true},
	} {
		resets, resetsWithContext = 0, 0
		if apiutil.ResetOnNoMatch(nil, test.mappers...) || apiutil.ResetOnNoMatch(errors.New("any"), test.mappers...) {
			t.Errorf("%s: reset without reason", name)
		}
		got := apiutil.ResetOnNoMatch(fmt.Errorf("wrapped: %w", &meta.NoKindMatchError{}), test.mappers...)
		if got != test.want || resets != test.plain || resetsWithContext != test.withContext {
			t.Errorf("%s: returned %t after %d resets and %d with a context; want %+v",
				name, got, resets, resetsWithContext, test)
		}
	}
}
