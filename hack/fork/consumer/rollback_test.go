// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper/hack/fork/forktest"
)

func TestBuildFailureRollsBack(t *testing.T) {
	broken := with(forktest.Edited("internal/answer/answer.go", "package answer\n"))
	t.Run("first run", func(t *testing.T) {
		out := into.fails(t, forktest.Consumer(t), broken, "does not build", "is as it was")
		if !strings.Contains(out, "undefined: answer.Mapper") {
			t.Errorf("no compiler output in\n%s", out)
		}
	})
	t.Run("update", func(t *testing.T) {
		into.fails(t, forked(t), broken, "does not build", "is as it was")
	})
}

// canceling cancels when the build begins.
type canceling struct {
	bytes.Buffer
	cancel context.CancelFunc
}

func (c *canceling) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("go build")) {
		c.cancel()
	}
	return c.Buffer.Write(p)
}

func TestCancelRollsBack(t *testing.T) {
	dir := forktest.Consumer(t)
	before := forktest.Snapshot(t, dir)
	ctx, cancel := context.WithCancel(context.Background())
	err := Into(ctx, Request{Dir: dir, Ours: forktest.Ours(), Self: "fork", Out: &canceling{cancel: cancel}})
	if err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("error: %v", err)
	}
	forktest.Same(t, before, forktest.Snapshot(t, dir))
}
