// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A server ends watches all the time; what happened in between is not lost.
func TestWatchGoesOn(t *testing.T) {
	watchInBubble(t, apiutil.DynamicRESTMapperOptions{}, nil,
		func(t *testing.T, server *fakeapi.Server, watched *watchServer, m *apiutil.DynamicRESTMapper) {
			settled(t, server, m)
			list := watched.lists[crdsPath]
			for n := range 10 {
				list.drop()
				serve(server, newKind)
				list.put(fmt.Sprintf("news%d", n))
				time.Sleep(5 * time.Second)
				server.TakeRequests()
				wantServed(t, m, newKind)
				wantRequests(t, server, "what happened while the watch was closed")
				server.Remove(newKind.Group)
				list.put(fmt.Sprintf("news%d", n))
				time.Sleep(time.Minute)
			}
		})
}

// Start ends at once even if the watch waits between two tries at that moment.
func TestWatchEndsWhileServerIsDown(t *testing.T) {
	for name, failure := range map[string]listFailure{
		"refused": {refused: true}, "429": {code: http.StatusTooManyRequests}, "403": {code: http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			watchInBubble(t, apiutil.DynamicRESTMapperOptions{},
				func(s *watchServer) {
					s.lists[crdsPath].setFailure(failure)
					s.lists[apiServicesPath].setFailure(failure)
				},
				func(t *testing.T, server *fakeapi.Server, _ *watchServer, _ *apiutil.DynamicRESTMapper) {
					server.SetFault(fakeapi.All(), fakeapi.Refused())
					time.Sleep(10*time.Minute + 7*time.Second)
				})
		})
	}
}
