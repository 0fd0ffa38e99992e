// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// The order of a group's versions was read live and differs from the document's.
// After a reset that order is as old as anything else, for lookups without a group too.
func TestResetOfTheOrderOfVersions(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		first, second := fakeVersion("v1", "Foo"), fakeVersion("v2", "Foo")
		server.Put(fakeGroup("example.com", first, second))
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{MaxAge: -1})
		readAll(t, m)

		server.Put(fakeGroup("example.com", second, first))
		m.ResetGroup("example.com")
		wantVersionOfFoos(t, m, "v2")

		server.Put(fakeGroup("example.com", first, second))
		m.Reset()
		wantVersionOfFoos(t, m, "v1")
		server.TakeRequests()
		wantVersionOfFoos(t, m, "v1")
		wantRequests(t, server, "the second lookup")
	})
}

func wantVersionOfFoos(t *testing.T, m *apiutil.DynamicRESTMapper, version string) {
	t.Helper()
	kind, err := m.KindFor(schema.GroupVersionResource{Resource: "foos"})
	if err != nil || kind.Version != version {
		t.Errorf("foos are in %v, %v; want %s", kind, err, version)
	}
}
