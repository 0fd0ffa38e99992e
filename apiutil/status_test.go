// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"errors"
	"net/http"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// statusText is a status without its errors' text.
type statusText struct {
	Groups, Kinds, Failures              int
	Attempt, Success, Since              time.Duration // after start; -1: zero
	Failed, Watching                     bool
	FailedGroupVersions, FailedWithError int
}

func statusOf(m *apiutil.DynamicRESTMapper, start time.Time) statusText {
	synctest.Wait()
	s := m.Status()
	after := func(t time.Time) time.Duration {
		if t.IsZero() {
			return -1
		}
		return t.Sub(start)
	}
	text := statusText{
		Groups: s.Groups, Kinds: s.Kinds, Failures: s.ConsecutiveFailures, Failed: s.LastError != nil, Watching: s.Watching,
		Attempt: after(s.LastAttempt), Success: after(s.LastSuccess), Since: after(s.UnhealthySince),
		FailedGroupVersions: len(s.FailedGroupVersions),
	}
	for _, err := range s.FailedGroupVersions {
		if err != nil {
			text.FailedWithError++
		}
	}
	return text
}

func wantStatus(t *testing.T, what string, m *apiutil.DynamicRESTMapper, start time.Time, want statusText) {
	t.Helper()
	if diff := cmp.Diff(want, statusOf(m, start)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestStatus(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const s = time.Second // between two steps; failures are those of the document and those of the version
		start := time.Now()
		server := newServer(fakeapi.Aggregated())
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		wantStatus(t, "of a new mapper", m, start, statusText{Attempt: -1, Success: -1, Since: -1})

		heal := server.SetFault(fakeapi.All(), fakeapi.Status(503, 0))
		time.Sleep(s)
		_ = lookUp(m, fooKind)
		wantStatus(t, "after a failure", m, start, statusText{Failed: true, Failures: 2, Attempt: s, Success: -1, Since: s})
		time.Sleep(s)
		_ = lookUp(m, fooKind)
		wantStatus(t, "after two failures", m, start, statusText{Failed: true, Failures: 4, Attempt: 2 * s, Success: -1, Since: s})

		heal()
		time.Sleep(s)
		wantServed(t, m, fooKind)
		good := statusText{Groups: 3, Kinds: 5, Failed: true, Failures: 2, Attempt: 3 * s, Success: 3 * s, Since: -1}
		wantStatus(t, "after a success of the document", m, start, good)
		time.Sleep(s)
		wantServed(t, m, fooKind)
		wantStatus(t, "after a hit", m, start, good)
		m.Reset()
		wantStatus(t, "after a reset", m, start, good)
		wantServed(t, m, fooKind)
		good.Attempt, good.Success = 4*s, 4*s
		wantStatus(t, "after a read that found no change", m, start, good)
		wantAbsent(t, m, newKind)
		good.Failed, good.Failures = false, 0
		wantStatus(t, "after a live read, which found nothing", m, start, good)

		heal = server.SetFault(fakeapi.All(), fakeapi.Timeout())
		time.Sleep(s)
		m.Reset()
		ctx, cancel := context.WithTimeout(context.Background(), s)
		defer cancel()
		_, _ = m.RESTMappingWithContext(ctx, newKind.GroupKind(), "v1")
		wantStatus(t, "after a lookup that gave up", m, start, good)
		time.Sleep(time.Minute)
		bad := good
		bad.Failed, bad.Failures, bad.Attempt, bad.Since = true, 1, 35*s, 35*s
		wantStatus(t, "after the request timed out", m, start, bad)
		heal()
	})
}

// A version that fails says nothing against the health of the server.
func TestStatusOfFailedGroupVersions(t *testing.T) {
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
func TestHealthz(t *testing.T) {
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
