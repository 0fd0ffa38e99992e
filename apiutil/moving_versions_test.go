// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"net/http"
	"sync"
	"testing"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A kind moves from one of the versions that are asked for to the other, between the
// reads of the two, so that each of them misses it. It was never absent.
func TestKindMovesBetweenTheVersionsAskedFor(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		server.Put(fakeGroup("example.com", fakeVersion("v1", "Bar"), fakeVersion("v2", "Foo")))
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		m.ResetGroup("example.com")
		var once sync.Once
		server.SetFault(func(req *http.Request) bool {
			if req.URL.Path == "/apis/example.com/v1" { // which is answered as it was until now
				once.Do(func() {
					server.Put(fakeGroup("example.com", fakeVersion("v1", "Foo"), fakeVersion("v2", "Bar")))
				})
			}
			return false
		}, fakeapi.Refused())
		if _, err := m.RESTMapping(fooKind.GroupKind(), "v1", "v2"); err != nil {
			t.Error(err)
		}

		// If the kind is gone, and the document says so, one pass settles that.
		server.Put(fakeGroup("example.com", fakeVersion("v1", "Bar"), fakeVersion("v2", "Bar")))
		m.Reset()
		server.TakeRequests()
		if _, err := m.RESTMapping(fooKind.GroupKind(), "v1", "v2"); err == nil {
			t.Error("Foo is gone, and mapped")
		}
		wantRequests(t, server, "a kind that is gone",
			"/api 304", "/apis 200", "/apis/example.com/v1 200", "/apis/example.com/v2 200")
	})
}
