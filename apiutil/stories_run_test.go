// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/apiutil/served"
)

// A controller is what RunWhile runs.
type controller struct {
	begun, ended atomic.Int32
	lingers      atomic.Int64          // how long after it was cancelled
	ends         atomic.Pointer[error] // with what, when it was cancelled
	quits        chan error            // it ends by itself
	returned     chan error            // what RunWhile has returned
	cancel       context.CancelFunc
}

var errRun = errors.New("failing")

// runResults are what it returns.
var runResults = map[string]error{
	"nil":      nil,
	"failing":  errRun,
	"canceled": context.Canceled,
	"both":     fmt.Errorf("stopping: %w", errors.Join(context.Canceled, errRun)),
}

func runController(t *testing.T, m *apiutil.DynamicRESTMapper, gvks []schema.GroupVersionKind) *controller {
	ctx, cancel := context.WithCancel(context.Background())
	c := &controller{quits: make(chan error, 1), returned: make(chan error, 1), cancel: cancel}
	c.ends.Store(new(error))
	go func() {
		c.returned <- served.RunWhile(ctx, m, func(ctx context.Context) error {
			if c.begun.Add(1)-c.ended.Load() > 1 {
				t.Error("it runs twice at once")
			}
			defer c.ended.Add(1)
			select {
			case err := <-c.quits:
				return err
			case <-ctx.Done():
				time.Sleep(time.Duration(c.lingers.Load()))
				return *c.ends.Load()
			}
		}, gvks...)
	}()
	return c
}
