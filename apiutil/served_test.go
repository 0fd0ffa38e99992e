// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// The error names the kinds that are missing, and what failed, if something did. The end of
// the context is TestCallsEndWithTheirContext.
func TestWaitForKindsSaysWhatIsMissing(t *testing.T) {
	const path = "/apis/example.com/v2"
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		serve(server, lateKind)
		for _, failing := range []bool{false, true} {
			if failing {
				server.SetFault(fakeapi.At(path), fakeapi.Status(503, 0))
			}
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			err := m.WaitForKinds(ctx, otherKind, lateKind.GroupVersion().WithKind("Absent"))
			cancel()
			if err == nil || !strings.Contains(err.Error(), "Absent") || strings.Contains(err.Error(), otherKind.Kind) {
				t.Errorf("%v; want the kind that is missing, and no other", err)
			} else if strings.Contains(err.Error(), path) != failing || strings.Contains(err.Error(), "503") != failing {
				t.Errorf("%v; want what has failed: %t", err, failing)
			}
		}
	})
}

// On its own the mapper asks every 30 seconds, or a tenth more.
const noticed = 34 * time.Second

func TestRunWhileServedReturns(t *testing.T) {
	failure := errors.New("failing")
	both := fmt.Errorf("stopping: %w", errors.Join(context.Canceled, failure))
	for _, test := range []struct {
		ends   string // why run ends: by itself, because the kind is gone, or because all ends
		result error  // of run
		calls  int    // of run, because the kind is soon back
		want   error
	}{
		{ends: "itself", calls: 1},
		{ends: "itself", result: failure, calls: 1, want: failure},
		{ends: "itself", result: context.Canceled, calls: 1, want: context.Canceled},
		{ends: "kind", calls: 2},
		{ends: "kind", result: context.Canceled, calls: 2},
		{ends: "kind", result: failure, calls: 1, want: failure},
		{ends: "kind", result: both, calls: 1, want: failure},
		{ends: "all", calls: 1},
		{ends: "all", result: context.Canceled, calls: 1},
		{ends: "all", result: failure, calls: 1},
		{ends: "before run", calls: 0},
	} {
		t.Run(fmt.Sprint(test.ends, test.result), func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				calls, returned := 0, make(chan error, 1)
				ctx, cancel := context.WithCancel(context.Background())
				if test.ends == "before run" {
					cancel()
				}
				go func() {
					returned <- newMapper(t, server, apiutil.DynamicRESTMapperOptions{}).RunWhileServed(ctx, func(ctx context.Context) error {
						calls++
						if test.ends != "itself" {
							<-ctx.Done()
						}
						return test.result
					}, fooKind)
				}()
				time.Sleep(time.Minute)
				if test.ends == "kind" {
					server.Remove(fooKind.Group)
					time.Sleep(noticed)
					serve(server, fooKind)
					time.Sleep(noticed)
				}
				cancel()
				if err := <-returned; !errors.Is(err, test.want) || calls != test.calls {
					t.Errorf("returned %v after %d calls; want %v after %d", err, calls, test.want, test.calls)
				}
			})
		})
	}
}

func TestRunWhileServedDoesNotHideAPanic(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		defer func() {
			if recover() != "from run" {
				t.Error("the panic did not reach the caller")
			}
		}()
		m := newMapper(t, newServer(fakeapi.Aggregated()), apiutil.DynamicRESTMapperOptions{})
		_ = m.RunWhileServed(context.Background(), func(context.Context) error { panic("from run") }, fooKind)
	})
}

// A run that returns nil by itself is logged once, with a Logger or without, and
// no other end is.
func TestRunWhileServedLogsSilentEnd(t *testing.T) {
	withoutLogger := 1
	if strings.HasPrefix(reflect.TypeFor[apiutil.DynamicRESTMapper]().PkgPath(), "sigs.k8s.io/") {
		withoutLogger = 0 // in the fork a mapper without one logs to ctrl.Log
	}
	for name, test := range map[string]struct {
		option bool  // the Logger is an option, and not in the context
		result error // of run
		want   int
	}{
		"nil": {option: true, want: 1}, "nil, without a Logger": {want: withoutLogger}, "an error": {option: true, result: errors.New("failed")},
	} {
		inBubble(t, func(t *testing.T) {
			log, logger := newTestLog()
			ctx, opts := logr.NewContext(context.Background(), logger), apiutil.DynamicRESTMapperOptions{}
			if test.option {
				ctx, opts = context.Background(), apiutil.DynamicRESTMapperOptions{Logger: logger}
			}
			m := newMapper(t, newServer(fakeapi.Aggregated()), opts)
			_ = m.RunWhileServed(ctx, func(context.Context) error { return test.result }, fooKind)
			if lines := log.containing("RunWhileServed has ended"); len(lines) != test.want {
				t.Errorf("%s: logged %q, want %d lines", name, lines, test.want)
			}
		})
	}
}
