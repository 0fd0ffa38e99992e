// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A document has news of a group only if it says something else than it said before.

// documentForms are the forms in which a document may come, with validators and
// without.
var documentForms = map[string]fakeapi.Forms{
	"protobuf": fakeapi.Aggregated(), "JSON": {V2: true, ETag: true}, "no ETag": {V2: true, Protobuf: true},
	"JSON, no ETag": {V2: true}, "v2beta1": fakeapi.V2Beta1Only(),
}

// eachDocument runs test with a mapper that is started and knows all of a server,
// in each form of document.
func eachDocument(t *testing.T, test func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper)) {
	eachMode(t, documentForms, func(t *testing.T, forms fakeapi.Forms) {
		inBubble(t, func(t *testing.T) {
			server := newServer(forms)
			m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: 5 * time.Second})
			readAll(t, m)
			stop := startMapper(t, m)
			synctest.Wait()
			test(t, server, m)
			stop()
		})
	})
}

// If a document changes in one group, that is no news of the other groups: what it says
// of them is as old as before.
func TestNewsOfAnotherGroupIsNoNews(t *testing.T) {
	const lag = time.Minute
	liveOnly := schema.GroupVersionKind{Group: "live.example.com", Version: "v1", Kind: "Live"}
	eachDocument(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
		s := subscribe(m)
		s.take(t)
		server.SetLag(fakeapi.PartDocument, lag)
		serve(server, newKind)
		time.Sleep(lag - 5*time.Second)
		s.want(t, "before the document has it")
		serve(server, lateKind)
		serve(server, liveOnly)
		wantServed(t, m, lateKind)
		s.want(t, "after a live read", "Added example.com/v2 Late -> lates, namespace")
		wantServed(t, m, liveOnly)
		s.want(t, "after a live read", "Added live.example.com/v1 Live -> lives, namespace")
		time.Sleep(20 * time.Second)
		wantServed(t, m, lateKind, newKind, liveOnly)
		if _, err := m.RESTMapping(lateKind.GroupKind()); err != nil {
			t.Error(err)
		}
		s.want(t, "when the document has the first alone", "Added new.example.com/v1 New -> news, namespace")
		time.Sleep(lag)
		wantServed(t, m, lateKind, newKind, liveOnly)
		s.want(t, "when it has all")
		s.close(t)
	})
}

// A server that contradicts itself gets a limited number of requests, and the lookup
// returns an answer all the same.
func TestServerThatContradictsItselfGetsFewRequests(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		for _, version := range []string{"v2", "v3", "v4", "v5"} {
			server.PutVersion(fooKind.Group, fakeVersion(version, "In"+version))
		}
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		server.SetLag(fakeapi.PartDocument, fakeapi.Forever)
		server.SetLag(fakeapi.PartLists, fakeapi.Forever)
		server.Remove(fooKind.Group) // all its versions, whatever the documents say
		absent := schema.GroupKind{Group: fooKind.Group, Kind: "Absent"}
		for _, reset := range []func(){func() {}, m.Reset, func() { m.ResetGroup(fooKind.Group) }} {
			for _, versions := range [][]string{nil, {"v1"}, {"v9", "v5"}} {
				reset()
				server.TakeRequests()
				if _, err := m.RESTMapping(absent, versions...); !meta.IsNoMatchError(err) {
					t.Errorf("versions %q: %v", versions, err)
				}
				if requests := server.TakeRequests(); len(requests) > 12 {
					t.Errorf("versions %q: %d requests: %v", versions, len(requests), requests)
				}
			}
		}
		wantServed(t, m, otherKind)
	})
}

// The same if some of the groups hang. Each refresh ends with the first that hangs, and
// the next one begins with those that were not asked. Those that hang stay until they
// answer.
func TestDocumentDropsManyGroupsOfWhichSomeHang(t *testing.T) {
	const groups, interval = 30, 10 * time.Second
	const timeout = 10 * time.Second
	for _, hanging := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(hanging), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				server := fakeapi.New(fakeapi.Typical(groups, 1, 1)...)
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: interval, RequestTimeout: timeout})
				readAll(t, m)
				stop := startMapper(t, m)
				synctest.Wait()
				for n := 2; n <= groups; n++ {
					name := fmt.Sprintf("g%04d.example.com", n)
					if server.Remove(name); n%2 == 0 && n <= 2*hanging {
						server.SetFault(fakeapi.InGroup(name), fakeapi.Timeout())
					}
				}
				time.Sleep(time.Duration(hanging+1) * (interval + timeout + time.Second)) // a 404 is doubted for a second
				if got := m.Status().Groups; got != 2+hanging {
					t.Errorf("%d groups are known after %d refreshes, want %d", got, hanging+1, 2+hanging)
				}
				server.ClearFaults()
				time.Sleep(2 * time.Minute)
				if got := m.Status().Groups; got != 2 {
					t.Errorf("%d groups are known in the end, want 2", got)
				}
				stop()
			})
		})
	}
}

// Reset does not wait for the server.
func TestResetDoesNotWait(t *testing.T) {
	for name, reset := range waysToReset {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
				readAll(t, m)
				server.SetFault(fakeapi.All(), fakeapi.Timeout())
				start := time.Now()
				reset(m)
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				_, err := m.RESTMappingWithContext(ctx, fooKind.GroupKind(), "v1")
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				reset(m)
				if took := time.Since(start); took != time.Second {
					t.Errorf("took %v", took)
				}
				time.Sleep(time.Minute) // until the request has timed out
			})
		})
	}
}

// F3: the last read found a version dead. That is no reason to answer from before a Reset
// only because the server is slow.
func TestResetOfSlowServerBesideDeadVersion(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		server.SetFault(fakeapi.At("/apis/other.example.com/v1"), fakeapi.Status(503, 0))
		absent := otherKind
		absent.Kind = "Absent"
		if err := lookUp(m, absent); err == nil || m.Status().LastError == nil {
			t.Fatalf("a lookup in the dead version: %v", err)
		}
		server.PutVersion(fooKind.Group, fakeVersion(fooKind.Version, "Foo:cluster"))
		server.SetLatency(5 * time.Second)
		m.Reset()
		mapping, err := m.RESTMapping(fooKind.GroupKind(), fooKind.Version)
		if err != nil || mapping.Scope.Name() != meta.RESTScopeNameRoot {
			t.Errorf("answered from before the reset: %v, %v", mapping, err)
		}
	})
}

// A version that only the aggregated document has, and not the list of its group, is not
// found by a lookup without a version in a known group: that reads no document. It is found
// after a Reset, which ResetOnNoMatch makes.
func TestResetGroupBesideALateListWithoutVersion(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		serve(server, newKind)
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		server.SetFault(fakeapi.At("/apis/new.example.com"), fakeapi.Status(404, 0))
		serve(server, schema.GroupVersionKind{Group: newKind.Group, Version: "v2", Kind: "Later"})
		m.ResetGroup(newKind.Group)
		later := schema.GroupKind{Group: newKind.Group, Kind: "Later"}
		_, err := m.RESTMapping(later)
		if !apiutil.ResetOnNoMatch(err, m) {
			t.Errorf("not reset on %v", err)
		}
		if _, err := m.RESTMapping(later); err != nil {
			t.Error(err)
		}
	})
}
