// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"testing"
	"time"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// However short UnhealthyAfter is, the read that finds out whether the server fails does
// not cause another such read.
func TestTheLeastUnhealthyAfter(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{UnhealthyAfter: time.Nanosecond})
		readAll(t, m)
		server.SetLatency(10 * time.Millisecond)
		server.SetFault(fakeapi.All(), fakeapi.Refused())
		_ = lookUp(m, newKind)
		server.TakeRequests()
		time.Sleep(10 * time.Second)
		if n := len(server.TakeRequests()); n > 1 {
			t.Errorf("%d requests within 10 seconds in which nobody asked", n)
		}
		server.ClearFaults()
	})
}
