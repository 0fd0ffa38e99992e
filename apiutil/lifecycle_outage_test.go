// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A server that refuses everything is unhealthy, whatever the lookups meanwhile
// ask for, and one line says when that began.
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
					wantAbsent(t, m, newKind)
					time.Sleep(3 * time.Minute)
					if err := m.Healthz(nil); err != nil {
						t.Errorf("Healthz when all is well again: %v", err)
					}
					if lines := withoutVerbose(log.take("")); len(lines) != 2 {
						t.Errorf("logged %q, want a line when it began and one when it ended", lines)
					}
					stop()
				})
			})
		}
	}
}

func withoutVerbose(lines []string) []string {
	var rest []string
	for _, line := range lines {
		if !strings.HasPrefix(line, "V1") {
			rest = append(rest, line)
		}
	}
	return rest
}

// One version that hangs, an APIService that is down say, is no reason to restart
// the program: the server answers when it is asked itself.
func TestHangingVersionIsNotUnhealthy(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		log, logger := newTestLog()
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{Logger: logger})
		readAll(t, m)
		server.SetFault(fakeapi.Under("/apis/example.com/v1"), fakeapi.Timeout())
		absent := fooKind
		absent.Kind = "Absent"
		for range 20 {
			if err := lookUp(m, absent); err == nil || meta.IsNoMatchError(err) {
				t.Errorf("a lookup that cannot be answered: %v", err)
			}
			wantServed(t, m, fooKind, otherKind)
		}
		if err := m.Healthz(nil); err != nil || !m.Status().UnhealthySince.IsZero() {
			t.Errorf("Healthz: %v, status %+v", err, m.Status())
		}
		if m.Status().FailedGroupVersions[fooKind.GroupVersion()] == nil {
			t.Error("the version that hangs is not among those that failed")
		}
		if lines := withoutVerbose(log.take("")); len(lines) != 0 {
			t.Errorf("logged %q", lines)
		}
		time.Sleep(time.Minute)
	})
}

// Two versions in a row that hang do not hide what comes after them.
func TestHangingVersionsDoNotHideOthers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := fakeapi.New(
			fakeGroup("", fakeVersion("v1", "Pod")),
			fakeGroup("a.example.com", fakeVersion("v1", "A")),
			fakeGroup("b.example.com", fakeVersion("v1", "B")),
			fakeGroup("c.example.com", fakeVersion("v1", "C", "D")),
		)
		server.SetForms(fakeapi.Legacy())
		heal := server.SetFault(fakeapi.At("/apis/a.example.com/v1", "/apis/b.example.com/v1"), fakeapi.Timeout())
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: 5 * time.Minute})
		if _, err := m.KindFor(schema.GroupVersionResource{Resource: "cs"}); err != nil {
			t.Error(err)
		}
		stop := startMapper(t, m)
		server.PutVersion("c.example.com", fakeVersion("v1", "D")) // C goes
		time.Sleep(10 * time.Minute)
		if err := lookUp(m, schema.GroupVersionKind{Group: "c.example.com", Version: "v1", Kind: "C"}); !meta.IsNoMatchError(err) {
			t.Errorf("a kind that went two intervals ago: %v", err)
		}
		heal()
		stop()
		if _, err := m.KindFor(schema.GroupVersionResource{Resource: "as"}); err != nil {
			t.Errorf("healed: %v", err)
		}
	})
}

// F3: while the server does not answer after a Reset, known kinds are served, and
// only the first lookup waits for all of a timeout.
func TestResetOfSilentServer(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		heal := server.SetFault(fakeapi.All(), fakeapi.Timeout())
		m.Reset()
		for n := range 5 {
			start := time.Now()
			wantServed(t, m, fooKind)
			if took := time.Since(start); n > 0 && took > 3*time.Second {
				t.Errorf("lookup %d took %v", n+1, took)
			}
		}
		if err := lookUp(m, newKind); err == nil || meta.IsNoMatchError(err) {
			t.Errorf("an unknown kind: %v", err)
		}
		heal()
		server.Remove(fooKind.Group)
		time.Sleep(time.Minute) // the reads that were under way
		wantAbsent(t, m, fooKind)
	})
}

// F3: that a version is dead, which is the last that was heard of the server, is
// no reason to answer from before a Reset because the server takes its time.
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

// A refresh that is given up in the middle says nothing of what it has not read.
func TestStoppedRefreshFailsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Legacy())
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute})
		readAll(t, m)
		server.SetLatency(time.Second)
		stop := startMapper(t, m)
		time.Sleep(2500 * time.Millisecond)
		stop()
		if failed := m.Status().FailedGroupVersions; len(failed) > 0 {
			t.Errorf("failed: %v", failed)
		}
	})
}

// The list of a group may be behind the versions that are served.
func TestResetGroupBesideALateList(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		server.SetFault(fakeapi.At("/apis/new.example.com"), fakeapi.Status(404, 0))
		serve(server, newKind)
		m.ResetGroup(newKind.Group)
		wantServed(t, m, newKind)

		later := schema.GroupVersionKind{Group: newKind.Group, Version: "v2", Kind: "Later"}
		serve(server, later)
		m.ResetGroup(newKind.Group)
		wantServed(t, m, later)
	})
}

func TestResetGroupBesideALateListWithoutVersion(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		serve(server, newKind)
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		server.SetFault(fakeapi.At("/apis/new.example.com"), fakeapi.Status(404, 0))
		serve(server, schema.GroupVersionKind{Group: newKind.Group, Version: "v2", Kind: "Later"})
		m.ResetGroup(newKind.Group)
		if _, err := m.RESTMapping(schema.GroupKind{Group: newKind.Group, Kind: "Later"}); err != nil {
			t.Error(err)
		}
	})
}

// The one NoMatch that a legacy server's late list makes too old is not kept.
func TestNegativeTTLIsNotForALateList(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Legacy())
		server.Put(fakeGroup("example.com", fakeVersion("v2", "Foo"), fakeVersion("v1", "Bar")))
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{NegativeTTL: time.Hour})
		readAll(t, m)
		server.Put(fakeGroup("example.com", fakeVersion("v3", "Later"), fakeVersion("v1", "Bar")))
		later := schema.GroupKind{Group: "example.com", Kind: "Later"}
		_, _ = m.RESTMapping(later)
		if _, err := m.RESTMapping(later); err != nil {
			t.Error(err)
		}
	})
}

// What RunWhileServed does at its edges.
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
