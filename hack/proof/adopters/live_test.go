// SPDX-License-Identifier: Apache-2.0

package adopters

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/freshmapper/freshmapper/hack/control"
	"github.com/freshmapper/freshmapper/hack/dev/proc"
	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

const (
	giveUp = 60 * time.Second
	look   = 100 * time.Millisecond
)

// scenario is what happens to an operator, on stock and on the fork. operators.yaml
// explains the fields.
type scenario struct {
	About, Main string
	Args        []string
	CRDs        []struct{ Files, Module, VersionOf string }
	Steps       []struct {
		What  string
		Do    []action
		Until struct {
			Object    *unstructured.Unstructured
			Condition string
		}
	}
}

// action has one of these.
type action struct {
	Apply, Remove, Publish *unstructured.Unstructured
	Pause                  metav1.Duration
}

// liveResult is what happened.
type liveResult struct {
	Runtime, Server, Machine, Date string
	Steps                          []step
}

// step is how long a step took on each side, or that it did not end within giveUp.
type step struct {
	What, Stock, Fork string
	ForkFailed        bool
}

// live runs the scenario on either side, each with an API server of its own.
func (tr *trees) live(ctx context.Context, t *testing.T) *liveResult {
	if tr.forked != "ok" {
		t.Fatal("it can't be forked:", tr.forked)
	}
	assets, err := control.Assets()
	if err != nil {
		t.Fatal(err)
	}
	r := &liveResult{
		Runtime: readMod(ctx, t, tr.stock).requires(controllerRuntime), Server: output(ctx, t, root, filepath.Join(assets, "kube-apiserver"), "--version") + " of kube-apiserver",
		Machine: report.Machine(), Date: today(),
	}
	for _, s := range tr.Live.Steps {
		r.Steps = append(r.Steps, step{What: s.What})
	}
	tr.liveSide(ctx, t, tr.stock, assets, func(i int, said string, _ bool) { r.Steps[i].Stock = said })
	tr.liveSide(ctx, t, tr.fork, assets, func(i int, said string, ok bool) { r.Steps[i].Fork, r.Steps[i].ForkFailed = said, !ok })
	return r
}

func (tr *trees) liveSide(ctx context.Context, t *testing.T, dir, assets string, tell func(i int, said string, ok bool)) {
	if said := build(ctx, t, dir, dir+".bin", tr.Live.Main); said != "ok" {
		t.Fatal(said)
	}
	c := newCluster(ctx, t, assets)
	for _, file := range tr.crds(ctx, t) {
		c.applyFile(ctx, t, file)
	}
	ctx, stop := c.operate(ctx, append([]string{dir + ".bin"}, tr.Live.Args...))
	defer stop()
	var began time.Time
	for i, s := range tr.Live.Steps {
		for _, a := range s.Do {
			if err := c.do(ctx, a); err != nil {
				t.Fatalf("%s: %v", s.What, err)
			}
			began = time.Now()
		}
		said, ok := c.await(ctx, s.Until.Object, s.Until.Condition)
		if ok {
			said = report.Rounded(time.Since(began))
		}
		if ctx.Err() != nil {
			t.Fatal(context.Cause(ctx))
		}
		t.Logf("%s: %s: %s", filepath.Base(dir), s.What, said)
		tell(i, said, ok)
	}
}

// crds are the files to apply first.
func (tr *trees) crds(ctx context.Context, t *testing.T) []string {
	var all []string
	for _, of := range tr.Live.CRDs {
		dir := tr.stock
		if of.Module != "" {
			dir = download(ctx, t, of.Module, readMod(ctx, t, tr.stock).requires(of.VersionOf))
		}
		files, err := filepath.Glob(filepath.Join(dir, of.Files))
		if err != nil || len(files) == 0 {
			t.Fatalf("no file matches %s in %s: correct crds in operators.yaml (%v)", of.Files, dir, err)
		}
		all = append(all, files...)
	}
	return all
}

// operate runs an operator. The context that it returns ends with the operator.
func (c *cluster) operate(ctx context.Context, args []string) (running context.Context, stop func()) {
	told, tell := context.WithCancel(ctx)
	running, ended := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var log strings.Builder
		_, err := proc.Command{Args: args, Env: []string{"KUBECONFIG=" + c.kubeconfig}, Stdout: &log, Stderr: &log}.Run(told)
		said := log.String()
		ended(fmt.Errorf("the operator has ended: %w\n%s", err, said[max(0, len(said)-1000):]))
	}()
	return running, func() {
		tell()
		<-done
	}
}
