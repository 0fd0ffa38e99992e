// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A run that returns nil by itself is logged once, with a Logger or without, and
// no other end is.
func TestRunWhileServedLogsSilentEnd(t *testing.T) {
	ended := func(context.Context) error { return nil }
	failed := func(context.Context) error { return errors.New("failed") }
	for name, test := range map[string]struct {
		option bool // the Logger is an option, and not in the context
		run    func(context.Context) error
		want   int
	}{
		"nil":                   {true, ended, 1},
		"nil, without a Logger": {false, ended, 1},
		"an error":              {true, failed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				var out bytes.Buffer
				logger := funcr.New(func(_, args string) { out.WriteString(args + "\n") }, funcr.Options{})
				ctx, opts := logr.NewContext(context.Background(), logger), apiutil.DynamicRESTMapperOptions{}
				if test.option {
					ctx, opts = context.Background(), apiutil.DynamicRESTMapperOptions{Logger: logger}
				}
				m := newMapper(t, server, opts)
				_ = m.RunWhileServed(ctx, test.run, fooKind) // what it returns is tested elsewhere
				if n := strings.Count(out.String(), "RunWhileServed has ended"); n != test.want {
					t.Errorf("logged %d times:\n%s", n, &out)
				}
			})
		})
	}
}
