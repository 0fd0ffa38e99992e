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
	"k8s.io/apimachinery/pkg/api/meta"
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

// wantAlwaysHealthy looks up a kind of an APIService, and another one that is a hit, each
// interval, and fails the test as soon as the mapper is not healthy.
func wantAlwaysHealthy(t *testing.T, m *apiutil.DynamicRESTMapper, service schema.GroupVersionKind, interval, during time.Duration) {
	t.Helper()
	for start := time.Now(); time.Since(start) < during; time.Sleep(interval) {
		if err := lookUp(m, service); meta.IsNoMatchError(err) {
			t.Fatalf("a kind of an APIService that does not answer: %v", err)
		}
		if err := m.Healthz(nil); err != nil {
			t.Fatalf("after %v: %v; the server itself is well: %+v", time.Since(start), err, m.Status())
		}
		wantServed(t, m, fooKind)
	}
}

// One APIService does not make the server unhealthy, whatever it answers and whatever
// else is read at the time.
func TestHealthBesideOneDeadAPIService(t *testing.T) {
	service := schema.GroupVersionKind{Group: otherKind.Group, Version: "v1", Kind: "Absent"}
	for name, fault := range map[string]fakeapi.Fault{
		"401": fakeapi.Status(401, 0), "403": fakeapi.Status(403, 0), "503": fakeapi.Status(503, 0), "503, later": fakeapi.Status(503, 5),
		"a login page": fakeapi.LoginPage(), "an empty 404": fakeapi.Empty(404), "timeout": fakeapi.Timeout(), "reset": fakeapi.ResetMidBody(),
	} {
		for how, opts := range map[string]apiutil.DynamicRESTMapperOptions{
			"on demand": {}, "with refreshes": {RefreshInterval: 10 * time.Second},
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				eachServer(t, func(t *testing.T, server *fakeapi.Server) {
					m := newMapper(t, server, opts)
					readAll(t, m)
					server.SetFault(fakeapi.InGroup(service.Group), fault)
					defer startMapper(t, m)()
					wantAlwaysHealthy(t, m, service, 10*time.Second, 20*time.Minute)
				})
			})
		}
	}
}

// A server that fails once stays healthy: only its own failures count, not those of an
// APIService.
func TestHealthAfterOneFailure(t *testing.T) {
	service := schema.GroupVersionKind{Group: otherKind.Group, Version: "v1", Kind: "Absent"}
	for name, fault := range map[string]fakeapi.Fault{
		"503": fakeapi.Status(503, 0), "401": fakeapi.Status(401, 0), "refused": fakeapi.Refused(), "timeout": fakeapi.Timeout(),
	} {
		for which, path := range map[string]string{"/api": "/api", "/apis": "/apis", "any": ""} {
			t.Run(name+"/"+which, func(t *testing.T) {
				eachServer(t, func(t *testing.T, server *fakeapi.Server) {
					m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
					readAll(t, m)
					if path == "" {
						server.SetFault(fakeapi.All(), fakeapi.Times(1, fault))
					} else {
						server.SetFault(fakeapi.At(path), fakeapi.Times(1, fault))
					}
					server.SetFault(fakeapi.InGroup(service.Group), fakeapi.Status(503, 0))
					wantAlwaysHealthy(t, m, service, time.Second, 5*time.Minute)
				})
			})
		}
	}
}

// wantHealthyWithin fails the test unless the mapper is healthy within that time, in which
// it looks something up now and then: without Start only that starts a refresh.
func wantHealthyWithin(t *testing.T, m *apiutil.DynamicRESTMapper, most time.Duration) {
	t.Helper()
	for start := time.Now(); m.Healthz(nil) != nil; time.Sleep(5 * time.Second) {
		if time.Since(start) > most {
			t.Errorf("healed %v ago: %v", time.Since(start), m.Healthz(nil))
			return
		}
		wantAbsent(t, m, newKind)
	}
}

// A server that does fail is unhealthy in time, beside a dead APIService too, and
// healthy again after the next refresh.
func TestHealthOfADeadServer(t *testing.T) {
	service := schema.GroupVersionKind{Group: otherKind.Group, Version: "v1", Kind: "Absent"}
	for name, fault := range map[string]fakeapi.Fault{
		"401": fakeapi.Status(401, 0), "503": fakeapi.Status(503, 0), "refused": fakeapi.Refused(), "timeout": fakeapi.Timeout(),
	} {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{UnhealthyAfter: time.Minute})
				readAll(t, m)
				server.SetFault(fakeapi.InGroup(service.Group), fakeapi.Status(503, 0))
				wantAlwaysHealthy(t, m, service, 10*time.Second, 5*time.Minute)
				heal := server.SetFault(fakeapi.All(), fault)
				start := time.Now()
				for m.Healthz(nil) == nil && time.Since(start) < time.Hour {
					_ = lookUp(m, service)
					time.Sleep(time.Second)
				}
				// UnhealthyAfter, and as long again until the server itself is asked.
				if took := time.Since(start); took < time.Minute || took > 4*time.Minute {
					t.Errorf("unhealthy after %v", took)
				}
				heal()
				if name == "timeout" {
					time.Sleep(30 * time.Second) // for the refresh that hangs
				}
				wantHealthyWithin(t, m, 2*defaultMaxAge+10*time.Second)
			})
		})
	}
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

// Generation moves when the served API changes, and only then.
func TestGeneration(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		last := m.Generation()
		check := func(what string, moves bool) {
			t.Helper()
			readAll(t, m)
			now := m.Generation()
			if (now != last) != moves || now < last {
				t.Errorf("%s: generation %d after %d", what, now, last)
			}
			if m.Status().Generation != now {
				t.Errorf("%s: generation %d, Status says %d", what, now, m.Status().Generation)
			}
			last = now
		}
		foo := func(edit func(*fakeapi.Resource)) {
			v := fakeVersion("v1", "Foo", "Bar")
			edit(&v.Resources[0])
			server.PutVersion("example.com", v)
		}
		check("the first read", true)
		check("a read again", false)
		server.PutVersion("example.com", fakeVersion("v1", "Foo", "Bar"))
		check("the same again", false)
		foo(func(r *fakeapi.Resource) {
			r.ShortNames, r.Categories, r.Subresources = []string{"f"}, []string{"all"}, nil
		})
		check("what is no part of the mapping", false)

		server.PutVersion("example.com", fakeVersion("v1", "Foo", "Bar", "Baz"))
		check("a new kind", true)
		server.PutVersion("example.com", fakeVersion("v1", "Foo", "Bar"))
		check("without it", true)
		foo(func(r *fakeapi.Resource) { r.Namespaced = false })
		check("another scope", true)
		foo(func(r *fakeapi.Resource) { r.Name = "phooeys" })
		check("another resource name", true)
		server.PutVersion("example.com", fakeVersion("v2", "Foo"))
		check("a new version", true)
		server.Put(fakeGroup("example.com", fakeVersion("v2", "Foo"), fakeVersion("v1", "Foo")))
		check("another order of versions", true)
		server.RemoveVersion("example.com", "v1")
		check("a version less", true)
		serve(server, newKind)
		check("a new group", true)
		server.Remove(newKind.Group)
		check("a group less", true)

		heal := server.SetFault(fakeapi.All(), fakeapi.Status(503, 0))
		m.Reset()
		m.ResetGroup("example.com")
		for range 3 {
			_ = lookUp(m, newKind)
			_, _ = m.RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Foo"})
		}
		if m.Generation() != last {
			t.Errorf("resets and failures: generation %d after %d", m.Generation(), last)
		}
		heal()
		check("recovery", false)

		dead := fakeVersion("v2", "Foo")
		dead.Stale = true
		server.PutVersion("example.com", dead)
		check("a service that is down", false)
		server.PutVersion("example.com", fakeVersion("v2", "Foo"))
		check("a service that is up again", false)
	})
}
