// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// statusText writes down a status. Times count from start; "-" is one that is zero.
func statusText(m *apiutil.DynamicRESTMapper, start time.Time) string {
	synctest.Wait()
	s := m.Status()
	at := func(t time.Time) string {
		if t.IsZero() {
			return "-"
		}
		return t.Sub(start).String()
	}
	return fmt.Sprintf("%d groups, %d kinds; %d failures, failed %t; attempt %s, success %s, unhealthy %s; %d versions failed; watching %t",
		s.Groups, s.Kinds, s.ConsecutiveFailures, s.LastError != nil, at(s.LastAttempt), at(s.LastSuccess), at(s.UnhealthySince), len(s.FailedGroupVersions), s.Watching)
}

// A version that fails is in the status until it recovers, and says nothing against the health
// of the server.
func TestFailedVersionSaysNothingOfTheServer(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{UnhealthyAfter: time.Second, RefreshInterval: time.Minute})
		dead := fakeVersion("v1", "New")
		dead.Stale = true
		server.PutVersion(newKind.Group, dead)
		heal := server.SetFault(fakeapi.At("/apis/other.example.com/v1"), fakeapi.Status(503, 0))
		defer startMapper(t, m)()
		readAll(t, m)
		m.ResetGroup(otherKind.Group)
		_ = lookUp(m, otherKind)
		time.Sleep(10 * time.Minute)
		status := m.Status()
		if failed := status.FailedGroupVersions; len(failed) != 2 || failed[newKind.GroupVersion()] == nil || failed[otherKind.GroupVersion()] == nil {
			t.Errorf("failed group-versions: %v", failed)
		}
		if err := m.Healthz(nil); err != nil || !status.UnhealthySince.IsZero() {
			t.Errorf("the server is healthy, but: %v, %+v", err, status)
		}
		status.FailedGroupVersions[schema.GroupVersion{}] = errors.New("spoiled") // it belongs to the caller

		heal()
		serve(server, newKind)
		time.Sleep(2 * time.Minute)
		wantServed(t, m, otherKind, newKind) // without the aggregated document only a lookup asks for what was never read
		if failed := m.Status().FailedGroupVersions; len(failed) != 0 {
			t.Errorf("failed group-versions after recovery: %v", failed)
		}
	})
}

// Healthz fails once reads of the document have failed for longer than UnhealthyAfter, and
// says since when and why.
func TestHealthzFailsWhileTheDocumentFails(t *testing.T) {
	for _, after := range []time.Duration{0, time.Second, 10 * time.Minute} {
		eachServer(t, func(t *testing.T, server *fakeapi.Server) {
			m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{UnhealthyAfter: after, RefreshInterval: time.Minute})
			defer startMapper(t, m)()
			for range 3 {
				time.Sleep(10 * time.Minute)
				heal := server.SetFault(fakeapi.All(), fakeapi.Status(503, 0))
				for m.Status().ConsecutiveFailures == 0 {
					time.Sleep(time.Second)
				}
				since := m.Status().UnhealthySince
				time.Sleep(time.Until(since.Add(cmp.Or(after, 2*time.Minute))))
				if err := m.Healthz(nil); err != nil || time.Since(since) > cmp.Or(after, 2*time.Minute)+2*time.Second {
					t.Errorf("while failures are young, since %v: %v", since, err)
				}
				// Only another failure shows that the server still fails. The next read comes
				// after 2 minutes at most.
				time.Sleep(133 * time.Second)
				err := m.Healthz(&http.Request{})
				if err == nil || !errors.Is(err, m.Status().LastError) || strings.Contains(err.Error(), fakeapi.Token) {
					t.Fatalf("after failures for %v: %v; want the last error, and no token", time.Since(since), err)
				}
				for _, want := range []string{since.UTC().Format(time.RFC3339), "503", "/api", "in a row"} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("no %q in: %v", want, err)
					}
				}
				heal()
				time.Sleep(133 * time.Second) // until the next refresh, at the latest
				if err := m.Healthz(nil); err != nil {
					t.Errorf("after a success: %v", err)
				}
			}
		})
	}
}
