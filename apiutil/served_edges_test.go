// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// That a kind has gone is noticed even if other APIs change all the time.
func TestRunWhileServedAmongChanges(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		c := runController(m, fooKind)
		stop := keepResetting(m, otherKind)
		time.Sleep(5 * time.Minute)
		c.want(t, 1, 0)
		server.Remove(fooKind.Group)
		time.Sleep(noticed)
		c.want(t, 1, 1)
		serve(server, fooKind)
		time.Sleep(noticed)
		c.want(t, 2, 1)
		stop()
		c.wantReturn(t, true, nil)
	})
}

func TestRunWhileServedWithoutPermissionToWatch(t *testing.T) {
	watchInBubble(t, apiutil.DynamicRESTMapperOptions{}, func(s *watchServer) {
		s.lists[apiServicesPath].setFailure(listFailure{code: http.StatusForbidden})
	}, func(t *testing.T, server *fakeapi.Server, watched *watchServer, m *apiutil.DynamicRESTMapper) {
		c := runController(m, fooKind)
		time.Sleep(10 * time.Minute)
		server.Remove(fooKind.Group)
		time.Sleep(noticed)
		c.want(t, 1, 1)
		c.wantReturn(t, true, nil)
	})
}

// A kind that goes just when run is about to begin: run may begin, and be
// cancelled, but does not go on without the kind.
func TestRunWhileServedWhenKindsGoAtOnce(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		for range 200 {
			server.Remove(newKind.Group)
			serve(server, otherKind)
			m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
			wantServed(t, m, otherKind)
			c := runController(m, otherKind, newKind)
			time.Sleep(100 * time.Millisecond)
			serve(server, newKind)
			done := make(chan struct{})
			go func() {
				defer close(done)
				wantServed(t, m, newKind)
				server.Remove(otherKind.Group)
				m.ResetGroup(otherKind.Group)
				_ = lookUp(m, otherKind)
			}()
			<-done
			time.Sleep(10 * time.Second)
			if c.now.Load() != 0 {
				t.Fatal("runs without one of the kinds")
			}
			c.wantReturn(t, true, nil)
		}
	})
}

// RunWhileServed in rare cases: see the names.
func TestRunWhileServedEdges(t *testing.T) {
	serve := func(t *testing.T, run func(*apiutil.DynamicRESTMapper, *fakeapi.Server, context.Context, context.CancelFunc)) {
		inBubble(t, func(t *testing.T) {
			server := newServer(fakeapi.Aggregated())
			m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Second})
			stop := startMapper(t, m)
			defer stop()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			run(m, server, ctx, cancel)
		})
	}
	until := func(result func(error) error) func(context.Context) error {
		return func(ctx context.Context) error { <-ctx.Done(); return result(ctx.Err()) }
	}
	t.Run("its own error beside the cancellation", func(t *testing.T) {
		serve(t, func(m *apiutil.DynamicRESTMapper, server *fakeapi.Server, ctx context.Context, _ context.CancelFunc) {
			own := errors.New("could not flush")
			time.AfterFunc(time.Minute, func() { server.Remove("example.com") })
			err := m.RunWhileServed(ctx, until(func(err error) error { return fmt.Errorf("stopping: %w", errors.Join(err, own)) }), fooKind)
			if !errors.Is(err, own) {
				t.Errorf("returned %v", err)
			}
		})
	})
	t.Run("another version is preferred, then its own goes", func(t *testing.T) {
		serve(t, func(m *apiutil.DynamicRESTMapper, server *fakeapi.Server, ctx context.Context, cancel context.CancelFunc) {
			runs := 0
			v1, v2 := fakeVersion("v1", "Foo", "Bar"), fakeVersion("v2", "Foo")
			time.AfterFunc(1*time.Minute, func() { server.Put(fakeGroup("example.com", v2, v1)) })
			time.AfterFunc(2*time.Minute, func() {
				if runs != 1 {
					t.Errorf("%d runs while the kind never went", runs)
				}
				server.Put(fakeGroup("example.com", v2))
			})
			time.AfterFunc(3*time.Minute, cancel)
			err := m.RunWhileServed(ctx, func(ctx context.Context) error { runs++; <-ctx.Done(); return nil },
				schema.GroupVersionKind{Group: "example.com", Kind: "Foo"})
			if err != nil || runs != 2 {
				t.Errorf("%v after %d runs", err, runs)
			}
		})
	})
	t.Run("ctx has ended", func(t *testing.T) {
		serve(t, func(m *apiutil.DynamicRESTMapper, _ *fakeapi.Server, ctx context.Context, cancel context.CancelFunc) {
			wantServed(t, m, fooKind)
			cancel()
			err := m.RunWhileServed(ctx, func(context.Context) error { return errors.New("it was run") }, fooKind)
			if err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("run panics", func(t *testing.T) {
		serve(t, func(m *apiutil.DynamicRESTMapper, _ *fakeapi.Server, ctx context.Context, _ context.CancelFunc) {
			defer func() {
				if recover() != "from run" {
					t.Error("the panic did not reach the caller")
				}
			}()
			_ = m.RunWhileServed(ctx, func(context.Context) error { panic("from run") }, fooKind)
		})
	})
}
