// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// WaitForKinds notices at once what another lookup finds.
func TestWaitForKindsHearsOfOtherLookups(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		w := waitFor(m, newKind)
		time.Sleep(10 * time.Minute)
		serve(server, newKind)
		w.wantStill(t)
		wantServed(t, m, newKind)
		w.wantWithin(t, 0)
	})
}

// The same, while its own request hangs.
func TestWaitForKindsHearsOfOthersWhileItAsks(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		heal := server.SetFault(fakeapi.InGroup(newKind.Group), fakeapi.Timeout())
		w := waitFor(m, newKind)
		heal()
		serve(server, newKind)
		if err := m.Refresh(context.Background()); err != nil {
			t.Error(err)
		}
		w.wantWithin(t, 0)
	})
}

// Changes of other APIs, however frequent, do not keep it from asking.
func TestWaitForKindsAmongChanges(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		w := waitFor(m, newKind)
		defer keepResetting(m, otherKind)()
		time.Sleep(5 * time.Minute)
		serve(server, newKind)
		w.wantWithin(t, noticed)
	})
}

// keepResetting resets the group of a kind every half second, and looks it up.
func keepResetting(m *apiutil.DynamicRESTMapper, gvk schema.GroupVersionKind) (stop func()) {
	ended, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-ended:
				return
			case <-time.After(500 * time.Millisecond):
				m.ResetGroup(gvk.Group)
				_ = lookUp(m, gvk)
			}
		}
	}()
	return func() { close(ended); <-stopped }
}

// All kinds must be served at the same time.
func TestWaitForKindsThatAreNeverThereTogether(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		wantServed(t, m, fooKind)
		first, second := fooKind, newKind
		second.Version = ""
		server.SetGroups(fakeGroup("", fakeVersion("v1", "Pod")), fakeGroup(second.Group, fakeVersion("v1", second.Kind)))
		w, c := waitFor(m, first, second), runController(m, first, second)
		time.Sleep(10 * time.Minute)
		w.wantStill(t)
		c.want(t, 0, 0)
		serve(server, fooKind)
		w.wantWithin(t, noticed)
		time.Sleep(noticed)
		c.want(t, 1, 0)
		c.wantReturn(t, true, nil)
	})
}

// After Reset what is known does not count: it may have gone.
func TestWaitForKindsAfterReset(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		wantServed(t, m, fooKind)
		server.Remove(fooKind.Group)
		m.Reset()
		w := waitFor(m, fooKind)
		w.wantStill(t)
		serve(server, fooKind)
		w.wantWithin(t, 2*time.Second)
	})
}
