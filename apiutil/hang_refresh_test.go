// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// Work in the background goes on beside groups that hang.

// beforeHang is a group that the tests' server lists before all others that change.
const beforeHang = "a.example.com"

// hangingServer is a server of which m knows all, and one group of which hangs.
func hangingServer(t *testing.T, server *fakeapi.Server, opts apiutil.DynamicRESTMapperOptions) *apiutil.DynamicRESTMapper {
	t.Helper()
	server.SetGroups(
		fakeGroup("", fakeVersion("v1", "Pod", "Node:cluster")),
		fakeGroup(beforeHang, fakeVersion("v1", "A"), fakeVersion("v2", "A"), fakeVersion("v3", "A")),
		fakeGroup("example.com", fakeVersion("v1", "Foo", "Bar")),
		fakeGroup("other.example.com", fakeVersion("v1", "Other")),
	)
	m := newMapper(t, server, opts)
	readAll(t, m)
	server.SetFault(fakeapi.InGroup(beforeHang), fakeapi.Timeout())
	return m
}

// What goes is noticed although another group hangs. A refresh waits for its reads, so the
// next one is at most a RequestTimeout late.
func TestRefreshBesideAHangingGroup(t *testing.T) {
	const interval, timeout = 10 * time.Second, 5 * time.Second
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := hangingServer(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: interval, RequestTimeout: timeout})
		stop := startMapper(t, m)
		for n := range 5 {
			time.Sleep(37 * time.Second)
			server.PutVersion("example.com", fakeVersion("v1", "Bar"))
			time.Sleep(interval + timeout + time.Second)
			wantAbsent(t, m, fooKind)
			server.PutVersion("example.com", fakeVersion("v1", "Foo:cluster", "Bar"))
			time.Sleep(interval + timeout + time.Second)
			mapping, err := m.RESTMapping(fooKind.GroupKind(), "v1")
			if err != nil || mapping.Scope.Name() != meta.RESTScopeNameRoot {
				t.Errorf("round %d: %s", n, answered(mappingText(mapping), err))
			}
			server.PutVersion("example.com", fakeVersion("v1", "Foo", "Bar"))
			time.Sleep(interval + timeout + time.Second)
			wantServed(t, m, fooKind, schema.GroupVersionKind{Group: beforeHang, Version: "v1", Kind: "A"})
		}
		server.ClearFaults()
		stop()
	})
}

// A group that is read live because the document and the mapper disagree about it,
// and that hangs, does not keep a refresh from what the document has for others. The next
// refresh is at most a RequestTimeout late.
func TestRefreshBesideAHangingDisagreement(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ahead, behind := twoReplicas(fakeapi.Aggregated())
		documents := fakeapi.Balancer(func(req *http.Request) *fakeapi.Server {
			if req.URL.Path == "/api" || req.URL.Path == "/apis" {
				return behind
			}
			return ahead
		})
		const interval, timeout = 5 * time.Second, 4 * time.Second
		m := newMapperThrough(t, ahead, documents, apiutil.DynamicRESTMapperOptions{RefreshInterval: interval, RequestTimeout: timeout})
		readAll(t, m)
		stop := startMapper(t, m)
		synctest.Wait()
		wantServed(t, m, lateKind, newKind)
		ahead.SetFault(fakeapi.InGroup(lateKind.Group, newKind.Group), fakeapi.Timeout())
		for range 5 {
			time.Sleep(17 * time.Second)
			behind.Remove(otherKind.Group)
			ahead.Remove(otherKind.Group)
			time.Sleep(interval + timeout + time.Second)
			wantAbsent(t, m, otherKind)
			serve(behind, otherKind)
			serve(ahead, otherKind)
			time.Sleep(interval + timeout + time.Second)
			if got := m.Status().Groups; got != 4 {
				t.Errorf("%d groups known, want 4", got)
			}
			wantServed(t, m, otherKind, lateKind, newKind)
		}
		ahead.ClearFaults()
		stop()
	})
}

// A wait for a kind does not wait for another group that hangs.
func TestWaitForKindsBesideAHangingGroup(t *testing.T) {
	for how, others := range askings {
		t.Run(how, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				m := hangingServer(t, server, apiutil.DynamicRESTMapperOptions{})
				stop := keepAsking(m, []string{beforeHang}, others...)
				time.Sleep(5 * time.Second)
				waitFor(m, fooKind, otherKind).wantWithin(t, 0)
				w := waitFor(m, newKind)
				time.Sleep(500 * time.Millisecond)
				w.wantStill(t)
				serve(server, newKind)
				w.wantWithin(t, 2*time.Second)
				server.ClearFaults()
				stop()
			})
		})
	}
}
