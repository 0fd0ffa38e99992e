// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
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

// One APIService says nothing of the server, whatever it answers and whoever else
// is asked for at the time.
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

// A server that fails once, at whatever moment, is not one that has failed since an
// APIService did.
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
					wantAlwaysHealthy(t, m, service, time.Second, 15*time.Minute)
				})
			})
		}
	}
}

// A server that does fail is unhealthy in time, beside a dead APIService too, and
// healthy again after its first answer.
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
				time.Sleep(time.Minute)
				if err := lookUp(m, newKind); !meta.IsNoMatchError(err) {
					t.Errorf("healed: %v", err)
				}
				if err := m.Healthz(nil); err != nil {
					t.Errorf("healed: %v", err)
				}
			})
		})
	}
}
