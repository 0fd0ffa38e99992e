// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A cache that drops Vary hands the aggregated form of /api to everybody.
func TestCacheWithoutVary(t *testing.T) {
	for name, accept := range map[string]string{
		"JSON":     "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
		"protobuf": "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
	} {
		inBubble(t, func(t *testing.T) {
			server := newServer(fakeapi.Aggregated())
			next := server.Client().Transport
			m := newMapperThrough(t, server, through(func(req *http.Request) (*http.Response, error) {
				if req.URL.Path == "/api" {
					req = req.Clone(req.Context())
					req.Header.Set("Accept", accept)
				}
				return next.RoundTrip(req)
			}), apiutil.DynamicRESTMapperOptions{})
			readAll(t, m)
			for range 2 {
				if _, err := m.RESTMapping(schema.GroupKind{Kind: "Absent"}); !meta.IsNoMatchError(err) {
					t.Errorf("%s: %v", name, err)
				}
			}
			server.PutVersion("", fakeVersion("v1", "Pod", "Later"))
			if _, err := m.RESTMapping(schema.GroupKind{Kind: "Later"}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}
