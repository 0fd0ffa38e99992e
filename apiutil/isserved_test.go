// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

func wantServes(t *testing.T, m *apiutil.DynamicRESTMapper, gvk schema.GroupVersionKind, want bool) {
	t.Helper()
	if got, err := m.IsServed(context.Background(), gvk); got != want || err != nil {
		t.Errorf("%s: served %t, %v; want %t", gvk, got, err, want)
	}
}

// A kind is served or is not, as a read shows that begins after the call.
func TestIsServed(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{NegativeTTL: time.Hour})
		for range 2 {
			wantServes(t, m, fooKind, true)
			wantServes(t, m, otherKind, true)
			wantServes(t, m, schema.GroupVersionKind{Group: fooKind.Group, Kind: fooKind.Kind}, true)
			if n := len(server.TakeRequests()); n > 12 {
				t.Errorf("%d requests for three kinds", n)
			}
		}
		for _, gvk := range []schema.GroupVersionKind{newKind, lateKind, {Group: newKind.Group, Kind: newKind.Kind}} {
			wantServes(t, m, gvk, false)
			wantAbsent(t, m, gvk) // and NegativeTTL keeps that for lookups
		}
		serve(server, newKind)
		serve(server, lateKind)
		for _, gvk := range []schema.GroupVersionKind{newKind, lateKind, {Group: newKind.Group, Kind: newKind.Kind}} {
			wantServes(t, m, gvk, true)
		}
		server.Remove(newKind.Group)
		server.Remove(lateKind.Group)
		for _, gvk := range []schema.GroupVersionKind{newKind, lateKind, fooKind} {
			wantServes(t, m, gvk, false)
		}
	})
}

func TestIsServedIsAnErrorInAnOutage(t *testing.T) {
	for name, fault := range map[string]fakeapi.Fault{
		"refused": fakeapi.Refused(), "503": fakeapi.Status(503, 0), "403": fakeapi.Status(403, 0),
		"a gateway's 404": fakeapi.LostRoute(), "a login page": fakeapi.LoginPage(),
	} {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
				wantServes(t, m, fooKind, true)
				server.SetFault(fakeapi.All(), fault)
				for _, gvk := range []schema.GroupVersionKind{newKind, lateKind, fooKind, {Group: fooKind.Group, Kind: fooKind.Kind}} {
					if served, err := m.IsServed(context.Background(), gvk); served || err == nil || meta.IsNoMatchError(err) {
						t.Errorf("%s: served %t, %v; want an error that is no NoMatch", gvk, served, err)
					}
				}
				server.ClearFaults()
				time.Sleep(time.Minute)
				wantServes(t, m, newKind, false)
			})
		})
	}
}

func TestIsServedEndsWithItsContext(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		server.SetFault(fakeapi.All(), fakeapi.Timeout())
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		begun := time.Now()
		if served, err := newMapper(t, server, apiutil.DynamicRESTMapperOptions{}).IsServed(ctx, fooKind); served || err == nil || time.Since(begun) > time.Second {
			t.Errorf("served %t, %v after %v", served, err, time.Since(begun))
		}
	})
}
