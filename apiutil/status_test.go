// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"errors"
	"fmt"
	"net/http"
	"path"
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

// A version that fails says nothing against the health of the server.
func TestFailedVersionSaysNothingOfTheServer(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{UnhealthyAfter: time.Second, RefreshInterval: time.Minute})
		dead := fakeVersion("v1", "New")
		dead.Stale = true
		server.PutVersion(newKind.Group, dead)
		stop := startMapper(t, m)
		readAll(t, m)
		time.Sleep(10 * time.Minute)
		status := m.Status()
		failed := status.FailedGroupVersions
		if len(failed) != 1 || failed[newKind.GroupVersion()] == nil {
			t.Errorf("failed group-versions: %v", failed)
		}
		if !status.UnhealthySince.IsZero() {
			t.Errorf("the server is healthy, but: %+v", status)
		}
		if aggregated := path.Base(t.Name()) == "aggregated"; aggregated && (status.LastError != nil || status.ConsecutiveFailures != 0) {
			t.Errorf("no read has failed, but: %+v", status)
		}
		if err := m.Healthz(nil); err != nil {
			t.Errorf("Healthz: %v", err)
		}
		failed[schema.GroupVersion{}] = errors.New("spoiled") // it belongs to the caller

		heal := server.SetFault(fakeapi.At("/apis/other.example.com/v1"), fakeapi.Status(503, 0))
		m.ResetGroup(otherKind.Group)
		wantServed(t, m, otherKind)
		if failed := m.Status().FailedGroupVersions; len(failed) != 2 || failed[otherKind.GroupVersion()] == nil {
			t.Errorf("failed group-versions: %v", failed)
		}
		if err := m.Healthz(nil); err != nil {
			t.Errorf("Healthz: %v", err)
		}

		heal()
		serve(server, newKind)
		time.Sleep(2 * time.Minute)
		wantServed(t, m, otherKind, newKind) // without the aggregated document only a lookup asks for what was never read
		if failed := m.Status().FailedGroupVersions; len(failed) != 0 {
			t.Errorf("failed group-versions after recovery: %v", failed)
		}
		stop()
	})
}

// Healthz fails once reads of the document have failed for longer than UnhealthyAfter,
// says since when and why, and is fine again when one of them succeeds.
func TestHealthzFailsWhileTheDocumentFails(t *testing.T) {
	for name, after := range map[string]time.Duration{"default": 0, "a second": time.Second, "ten minutes": 10 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{UnhealthyAfter: after, RefreshInterval: time.Minute})
				if after == 0 {
					after = 2 * time.Minute
				}
				stop := startMapper(t, m)
				defer stop()
				wantHealthy(t, m, "at first")
				time.Sleep(10 * time.Minute)
				wantHealthy(t, m, "after ten minutes of work")
				for range 3 {
					heal := server.SetFault(fakeapi.All(), fakeapi.Status(503, 0))
					for m.Status().ConsecutiveFailures == 0 {
						wantHealthy(t, m, "before the first failure")
						time.Sleep(time.Second)
					}
					since := m.Status().UnhealthySince
					if failing := time.Since(since); failing < 0 || failing > 2*time.Second {
						t.Errorf("unhealthy for %v", failing)
					}
					time.Sleep(time.Until(since.Add(after)))
					wantHealthy(t, m, "while failures are young")

					// Only another failure shows that the server still fails. The next
					// read comes after 2 minutes at most.
					time.Sleep(133 * time.Second)
					err := m.Healthz(&http.Request{})
					if err == nil {
						t.Fatalf("healthy after failures for %v", time.Since(since))
					}
					for _, want := range []string{since.UTC().Format(time.RFC3339), "503", "/api", "in a row"} {
						if !strings.Contains(err.Error(), want) {
							t.Errorf("no %q in: %v", want, err)
						}
					}
					if strings.Contains(err.Error(), fakeapi.Token) {
						t.Errorf("the token is in: %v", err)
					}
					if !errors.Is(err, m.Status().LastError) {
						t.Errorf("%v does not wrap the last error", err)
					}
					heal()
					wantAbsent(t, m, newKind)
					time.Sleep(time.Minute) // until the next refresh, at the latest
					wantHealthy(t, m, "after the first success")
				}
			})
		})
	}
}

func wantHealthy(t *testing.T, m *apiutil.DynamicRESTMapper, when string) {
	t.Helper()
	if err := m.Healthz(nil); err != nil {
		t.Errorf("%s: %v", when, err)
	}
}
