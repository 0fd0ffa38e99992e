// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

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

// One version that hangs, an APIService that is down say, is no reason to restart
// the program: the server answers when it is asked itself.
func TestHangingVersionIsNotUnhealthy(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		log, logger := newTestLog()
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{Logger: logger})
		readAll(t, m)
		server.SetFault(fakeapi.Under("/apis/example.com/v1"), fakeapi.Timeout())
		absent := fooKind
		absent.Kind = "Absent"
		for range 20 {
			if err := lookUp(m, absent); err == nil || meta.IsNoMatchError(err) {
				t.Errorf("a lookup that cannot be answered: %v", err)
			}
			// At once: the next hit may start a refresh, whose document has the version.
			if m.Status().FailedGroupVersions[fooKind.GroupVersion()] == nil {
				t.Error("the version that hangs is not among those that failed")
			}
			wantServed(t, m, fooKind, otherKind)
		}
		if err := m.Healthz(nil); err != nil || !m.Status().UnhealthySince.IsZero() {
			t.Errorf("Healthz: %v, status %+v", err, m.Status())
		}
		if lines := withoutVerbose(log.take("")); len(lines) != 0 {
			t.Errorf("logged %q", lines)
		}
		time.Sleep(time.Minute)
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
					if m.Healthz(nil) == nil {
						t.Error("a live read of a version hides that the document fails")
					}
					time.Sleep(time.Minute) // until the next refresh
					wantHealthy(t, m, "after the first success")
				}
			})
		})
	}
}

// Failures that are over soon are never reported.
func TestHealthzForgivesShortFailures(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: 10 * time.Second})
		stop := startMapper(t, m)
		defer stop()
		for range 20 {
			heal := server.SetFault(fakeapi.All(), fakeapi.Refused())
			for range 100 {
				time.Sleep(time.Second)
				wantHealthy(t, m, "during a short failure")
			}
			if m.Status().ConsecutiveFailures == 0 {
				t.Error("nothing has failed")
			}
			heal()
			time.Sleep(15 * time.Second)
		}
	})
}

func wantHealthy(t *testing.T, m *apiutil.DynamicRESTMapper, when string) {
	t.Helper()
	if err := m.Healthz(nil); err != nil {
		t.Errorf("%s: %v", when, err)
	}
}
