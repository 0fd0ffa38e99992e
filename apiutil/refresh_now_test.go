// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// Refresh reads now, everything or some groups, and returns an error if that failed.
func TestRefresh(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		ctx := context.Background()
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		wantServed(t, m, fooKind, otherKind)
		server.PutVersion(fooKind.Group, fakeVersion("v1", "Bar"))
		server.PutVersion(otherKind.Group, fakeVersion("v1", "Else"))
		if err := m.Refresh(ctx, fooKind.Group); err != nil {
			t.Fatal(err)
		}
		wantAbsent(t, m, fooKind)
		wantServed(t, m, otherKind) // nobody has read that
		if err := m.Refresh(ctx); err != nil {
			t.Fatal(err)
		}
		wantAbsent(t, m, otherKind)

		server.SetFault(fakeapi.InGroup(fooKind.Group), fakeapi.Status(503, 0))
		if err := m.Refresh(ctx); err != nil {
			t.Errorf("everything, while a group fails: %v", err)
		}
		if err := m.Refresh(ctx, otherKind.Group); err != nil {
			t.Errorf("another group: %v", err)
		}
		if err := m.Refresh(ctx, otherKind.Group, fooKind.Group); err == nil || !strings.Contains(err.Error(), "/apis/"+fooKind.Group) {
			t.Errorf("that group: %v", err)
		}
		server.SetFault(fakeapi.All(), fakeapi.Refused())
		if err := m.Refresh(ctx); err == nil || meta.IsNoMatchError(err) {
			t.Errorf("everything, while nothing answers: %v", err)
		}
	})
}

// A group that hangs does not keep the others of the same call from being read.
func TestRefreshOfGroupsBesideOneThatHangs(t *testing.T) {
	more := schema.GroupVersionKind{Group: otherKind.Group, Version: "v2", Kind: "More"}
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		wantServed(t, m, fooKind, otherKind)
		server.SetFault(fakeapi.InGroup(fooKind.Group), fakeapi.Timeout())
		serve(server, more)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err := m.Refresh(ctx, fooKind.Group, more.Group, fooKind.Group, "absent.example.com")
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), fooKind.Group) {
			t.Errorf("error %v", err)
		}
		server.TakeRequests()
		wantServed(t, m, more)
		wantRequests(t, server, "after the refresh")
	})
}
