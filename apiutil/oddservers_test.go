// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// The path says of which version a list is (R1). Extension servers answer at each version of their
// group with a list that names one of them (kubevirt#10899).
func TestListThatClaimsAnotherVersion(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		claiming := func(version string) fakeapi.Version {
			v := fakeVersion(version, "Thing")
			v.Claims = "claims.example.com/v1alpha3"
			return v
		}
		server.Put(fakeGroup("claims.example.com", claiming("v1"), claiming("v1alpha3")))
		thing := schema.GroupVersionKind{Group: "claims.example.com", Version: "v1", Kind: "Thing"}
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		for _, when := range []string{"at first", "known", "after a reset", "after a reset of the group"} {
			switch when {
			case "after a reset":
				m.Reset()
			case "after a reset of the group":
				m.ResetGroup(thing.Group)
			}
			for _, form := range lookupForms(thing) {
				if form.what != "kinds" && form.what != "kinds-of" && form.what != "resources" || form.version != "" { // both versions have it
					form.wantAnswer(t, m, when)
				}
			}
			wantServed(t, m, schema.GroupVersionKind{Group: "claims.example.com", Version: "v1alpha3", Kind: "Thing"})
			if _, err := m.ResourceFor(schema.GroupVersionResource{Resource: "absents"}); !meta.IsNoMatchError(err) {
				t.Errorf("%s, what no group serves: %v; want NoMatch", when, err)
			}
		}
		if failed := m.Status().FailedGroupVersions; len(failed) > 0 {
			t.Errorf("failed: %v", failed)
		}
		if err := m.Refresh(context.Background(), thing.Group); err != nil {
			t.Errorf("a refresh of the group: %v", err)
		}
	})
}

// A list of another group is an error, whatever path it comes from.
func TestListThatClaimsAnotherGroup(t *testing.T) {
	for _, claim := range []string{"other.example.com/v1", "v1", "example.com/v1/v1"} {
		eachServer(t, func(t *testing.T, server *fakeapi.Server) {
			claiming := fakeVersion("v1", "Foo")
			claiming.Claims = claim
			server.Put(fakeGroup("example.com", claiming))
			m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{MaxAge: -1})
			readAll(t, m)
			absent := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Absent"}
			if err := lookUp(m, absent); err == nil || meta.IsNoMatchError(err) {
				t.Errorf("%s: %v; want an error that is not NoMatch", claim, err)
			}
		})
	}
}
