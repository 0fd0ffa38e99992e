// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A server that does not answer costs hits nothing and is not asked again and again.
func TestMaxAgeDuringAnOutage(t *testing.T) {
	for name, fault := range map[string]fakeapi.Fault{
		"timeout": fakeapi.Timeout(), "503": fakeapi.Status(503, 5), "refused": fakeapi.Refused(), "empty 404": fakeapi.Empty(404),
	} {
		t.Run(name, func(t *testing.T) {
			withAge(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper, age time.Duration) {
				heal := server.SetFault(fakeapi.All(), fault)
				for range 1000 {
					wantImmediate(t, m, "during an outage", fooKind)
					time.Sleep(age / 100)
				}
				if n := len(server.TakeRequests()); n == 0 || n > 50 {
					t.Errorf("%d requests in 10 times MaxAge", n)
				}
				server.PutVersion("example.com", fakeVersion("v1", "Bar"))
				heal()
				for start := time.Now(); time.Since(start) < 3*age && lookUp(m, fooKind) == nil; {
					time.Sleep(age / 10)
				}
				wantAbsent(t, m, fooKind)
			})
		})
	}
}

// F9: a group that hangs does not keep other mappings from being confirmed.
func TestMaxAgeBesideAHangingGroup(t *testing.T) {
	withAge(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper, age time.Duration) {
		server.SetFault(fakeapi.InGroup(otherKind.Group), fakeapi.Timeout())
		stop := keepAsking(m, []string{otherKind.Group}, "v1")
		server.PutVersion("example.com", fakeVersion("v1", "Foo:cluster", "Bar"))
		time.Sleep(age + time.Second)
		wantImmediate(t, m, "the first hit", fooKind)
		time.Sleep(time.Second)
		mapping, err := m.RESTMapping(fooKind.GroupKind(), "v1")
		if err != nil || mapping.Scope.Name() != meta.RESTScopeNameRoot {
			t.Errorf("the hit after the refresh: %v", answered(mappingText(mapping), err))
		}
		wantImmediate(t, m, "a kind of the group that hangs", otherKind)
		server.ClearFaults()
		stop()
	})
}

// For a refresh of MaxAge, too, a repeated document is no news: what was read live stays,
// and is confirmed live.
func TestMaxAgeBesideALaggingDocument(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		m := laggingServer(t, server, false, apiutil.DynamicRESTMapperOptions{})
		serve(server, lateKind)
		wantServed(t, m, lateKind)
		for range 5 {
			time.Sleep(defaultMaxAge + time.Second)
			wantImmediate(t, m, "a kind that the document lacks", lateKind)
			synctest.Wait()
		}
		server.RemoveVersion(lateKind.Group, lateKind.Version)
		time.Sleep(defaultMaxAge + time.Second)
		_ = lookUp(m, lateKind)
		time.Sleep(time.Second)
		wantAbsent(t, m, lateKind)
	})
}

// Nothing goes while a server boots.
func TestMaxAgeThroughABoot(t *testing.T) {
	booting(t, apiutil.DynamicRESTMapperOptions{}, func(t *testing.T, _ *fakeapi.Server, m *apiutil.DynamicRESTMapper, boot func() func()) {
		ready := boot()
		for range 5 {
			time.Sleep(defaultMaxAge + time.Second)
			wantServed(t, m, fooKind, otherKind)
			synctest.Wait()
		}
		ready()
		wantServed(t, m, fooKind, otherKind)
	})
}
