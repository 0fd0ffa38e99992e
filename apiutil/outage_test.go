// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A server that refuses everything is unhealthy, whatever is looked up meanwhile, and one
// line of the log tells since when.
func TestOutageOfRefusals(t *testing.T) {
	for _, code := range []int{401, 403, 429, 500, 503} {
		for name, opts := range map[string]apiutil.DynamicRESTMapperOptions{
			"refreshed": {RefreshInterval: time.Minute}, "asked for one version": {},
		} {
			t.Run(fmt.Sprintf("%d %s", code, name), func(t *testing.T) {
				eachServer(t, func(t *testing.T, server *fakeapi.Server) {
					log, logger := newTestLog()
					opts.Logger = logger
					m := newMapper(t, server, opts)
					readAll(t, m)
					stop := startMapper(t, m)
					time.Sleep(5 * time.Minute)
					log.take("")
					heal := server.SetFault(fakeapi.All(), fakeapi.Status(code, 0))
					since := time.Now()
					for range 20 {
						time.Sleep(30 * time.Second)
						if err := lookUp(m, newKind); err == nil || meta.IsNoMatchError(err) {
							t.Errorf("a lookup that cannot be answered: %v", err)
						}
					}
					status := m.Status()
					if status.LastSuccess.After(since) || status.LastError == nil || status.UnhealthySince.Sub(since) > time.Minute {
						t.Errorf("after 10 minutes: %+v", status)
					}
					if m.Healthz(nil) == nil {
						t.Error("Healthz is fine after 10 minutes")
					}
					heal()
					wantHealthyWithin(t, m, 2*defaultMaxAge+10*time.Second)
					if lines := withoutVerbose(log.take("")); len(lines) != 2 {
						t.Errorf("logged %q, want a line when it began and one when it ended", lines)
					}
					stop()
				})
			})
		}
	}
}

// documentFaults are what may be wrong with the document while single groups and
// versions answer.
func documentFaults() map[string]fakeapi.Fault {
	return map[string]fakeapi.Fault{
		"503": fakeapi.Status(503, 5), "timeout": fakeapi.Timeout(), "truncated": fakeapi.Truncated(),
		"empty list": fakeapi.EmptyGroupList(), "empty 404": fakeapi.Empty(404), "login page": fakeapi.LoginPage(),
	}
}

// A reset makes no lookup weaker: what a version serves is found, although the
// document, which comes first, cannot be read.
func TestVersionsAnswerBesideABrokenDocument(t *testing.T) {
	for name, fault := range documentFaults() {
		for when, reset := range map[string]func(*apiutil.DynamicRESTMapper){
			"no reset":   func(*apiutil.DynamicRESTMapper) {},
			"Reset":      func(m *apiutil.DynamicRESTMapper) { m.Reset() },
			"ResetGroup": func(m *apiutil.DynamicRESTMapper) { m.ResetGroup(lateKind.Group) },
		} {
			t.Run(name+"/"+when, func(t *testing.T) {
				eachServer(t, func(t *testing.T, server *fakeapi.Server) {
					m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
					readAll(t, m)
					serve(server, lateKind)
					serve(server, newKind)
					heal := server.SetFault(fakeapi.At("/apis"), fault)
					for range 2 {
						reset(m)
						wantServed(t, m, lateKind, newKind, fooKind)
					}
					heal()
					wantServed(t, m, lateKind, newKind, fooKind)
				})
			})
		}
	}
}

// F3: nor does a reset leave what was read before it, if the version itself can be read.
func TestResetBesideABrokenDocument(t *testing.T) {
	for name, fault := range documentFaults() {
		if name == "timeout" {
			continue // a lookup of something known waits for that no longer than mostPatient
		}
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
				readAll(t, m)
				server.SetFault(fakeapi.At("/apis"), fault)
				server.PutVersion(fooKind.Group, fakeVersion("v1", "Foo:cluster"))
				m.Reset()
				mapping, err := m.RESTMapping(fooKind.GroupKind(), "v1")
				if err != nil || mapping.Scope.Name() != meta.RESTScopeNameRoot {
					t.Errorf("answered from before the reset: %s", answered(mappingText(mapping), err))
				}
				m.Reset()
				wantAbsent(t, m, barKind)
			})
		})
	}
}

// A lookup that needs no document does not wait for one that hangs.
func TestVersionsBesideAHangingDocument(t *testing.T) {
	eachWarmMapper(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
		server.SetFault(fakeapi.At("/api", "/apis"), fakeapi.Timeout())
		stop := keepAsking(m, []string{"absent.example.com"})
		time.Sleep(5 * time.Second)
		for n := range 5 {
			took := timed(t, func() error {
				_, err := m.RESTMapping(schema.GroupKind{Group: "g0001.example.com", Kind: "Absent"}, "v1")
				return err
			})
			if took > latency*3/2 {
				t.Errorf("try %d took %v", n, took)
			}
			time.Sleep(13 * time.Second)
		}
		server.ClearFaults()
		stop()
	})
}

// F3: what Refresh has read of a group is served during an outage, too, even if nothing
// else was ever read.
func TestOutageAfterRefreshOfAGroup(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		if err := m.Refresh(context.Background(), fooKind.Group); err != nil {
			t.Fatal(err)
		}
		server.SetFault(fakeapi.All(), fakeapi.Status(503, 0))
		m.Reset()
		wantServed(t, m, fooKind, barKind)
		if _, err := m.RESTMapping(fooKind.GroupKind()); err != nil {
			t.Error(err)
		}
		if _, err := m.KindFor(schema.GroupVersionResource{Resource: "foos"}); err == nil || meta.IsNoMatchError(err) {
			t.Errorf("a lookup in all groups, of which it knows one: %v", err)
		}
		server.ClearFaults()
		wantServed(t, m, otherKind)
	})
}
