// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

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
