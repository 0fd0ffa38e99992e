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

// blocking puts a folder in the place of go.sum when the build begins, so that the
// build and the roll back fail.
type blocking struct {
	bytes.Buffer
	t   *testing.T
	dir string
}

func (b *blocking) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("go build")) {
		remove(b.t, b.dir, goSum)
		forktest.Write(b.t, b.dir, goSum+"/x", "")
	}
	return b.Buffer.Write(p)
}

// The tree has the only copies of go.mod and go.sum: it stays until they are back.
func TestRollbackFails(t *testing.T) {
	dir := forktest.Consumer(t)
	_, err := into.run(t, dir, func(r *Request) { r.Out = &blocking{t: t, dir: dir} })
	if err == nil || !strings.Contains(err.Error(), "rolling back failed too: write "+dir+"/go.sum") || !strings.Contains(err.Error(), "run fork -into "+dir+" -undo") {
		t.Errorf("error: %v", err)
	}
	undo.fails(t, dir, nil, "go.sum", "is a directory")
	remove(t, dir, goSum)
	undo.must(t, dir, nil)
	forktest.Clean(t, dir)
}
