// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// At first the server is read until that succeeds.
func TestSubscribeDuringOutage(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		for _, opts := range []apiutil.DynamicRESTMapperOptions{{}, {RefreshInterval: time.Minute}} {
			heal := server.SetFault(fakeapi.All(), fakeapi.Refused())
			m := newMapper(t, server, opts)
			stop := startMapper(t, m)
			s, impatient := subscribe(m), subscribe(m)
			time.Sleep(10 * time.Minute)
			s.want(t, "during the outage")
			impatient.close(t)
			if n := len(server.TakeRequests()); n < 20 || n > 100 {
				t.Errorf("%d requests in 10 minutes", n)
			}
			heal()
			time.Sleep(time.Minute)
			if got := s.take(t); len(got) != 5 {
				t.Errorf("after the outage: %q", got)
			}
			s.close(t)
			stop()
		}
	})
}

// A server may list its versions and answer for none: that is not all there is.
func TestSubscribeWhileNoVersionAnswers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Legacy())
		versions := []string{"/api/v1", "/apis/example.com/v1", "/apis/other.example.com/v1"}
		heal := server.SetFault(fakeapi.At(versions...), fakeapi.Status(503, 0))
		s := subscribe(newMapper(t, server, apiutil.DynamicRESTMapperOptions{}))
		time.Sleep(10 * time.Minute)
		s.want(t, "while no version answers")
		heal()
		time.Sleep(time.Minute)
		if got := s.take(t); len(got) != 5 {
			t.Errorf("afterwards: %q", got)
		}
		s.close(t)
	})
}

// If the service of an API is down at first, a subscriber receives its kinds once it
// answers.
func TestSubscribeWithDeadVersion(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		dead := fakeVersion("v1", "New")
		dead.Stale = true
		server.PutVersion(newKind.Group, dead)
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute})
		stop := startMapper(t, m)
		s := subscribe(m)
		if got := s.take(t); len(got) != 5 || strings.Contains(fmt.Sprint(got), "New") {
			t.Errorf("at first: %q", got)
		}
		serve(server, newKind)
		time.Sleep(67 * time.Second)
		s.want(t, "when it answers", "Added new.example.com/v1 New -> news, namespace")
		server.PutVersion(newKind.Group, dead)
		time.Sleep(67 * time.Second)
		s.want(t, "when it is down again")
		s.close(t)
		stop()
	})
}
