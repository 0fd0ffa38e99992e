// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"testing"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// The very first lookup believes the document, but not after a reset: a program that
// resets the mapper knows that something has come, and the document may be behind.
func TestResetBeforeTheFirstLookup(t *testing.T) {
	resets := map[string]func(*apiutil.DynamicRESTMapper){
		"all":   (*apiutil.DynamicRESTMapper).Reset,
		"group": func(m *apiutil.DynamicRESTMapper) { m.ResetGroup(lateKind.Group) },
	}
	for name, reset := range resets {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				server.SetLag(fakeapi.PartDocument, fakeapi.Forever)
				server.SetLag(fakeapi.PartLists, fakeapi.Forever)
				serve(server, lateKind)
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
				reset(m)
				wantServed(t, m, lateKind)
			})
		})
	}
}
