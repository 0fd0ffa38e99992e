// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"testing"
	"testing/synctest"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A mapper that knows which kinds are in use logs a line when one of them changes, also if
// it was gone meanwhile. Changes of others are logged at level 1.
func TestLogOfKindsInUse(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		log, logger := newTestLog()
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{Logger: logger})
		readAll(t, m)
		m.Use(fooKind)
		m.Use(fooKind)
		change := func(kinds ...string) []string {
			t.Helper()
			server.PutVersion(fooKind.Group, fakeVersion(fooKind.Version, kinds...))
			readAll(t, m)
			synctest.Wait()
			return log.take("INFO")
		}
		for _, kinds := range [][]string{{"Foo", "Bar", "Baz"}, {"Bar"}, {"Foo", "Bar"}} {
			if lines := change(kinds...); len(lines) > 0 {
				t.Errorf("%q: logged %q", kinds, lines)
			}
		}
		change("Bar")
		lines := change("Foo:cluster", "Bar")
		wantLine(t, lines, "the mapping of a kind in use has changed", `"oldScope"="namespace"`, `"scope"="root"`, `"resource"="foos"`)
		if lines := change("Foo:cluster", "Bar"); len(lines) > 0 {
			t.Errorf("nothing has changed: %q", lines)
		}
	})
}
