// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/freshmapper/freshmapper/hack/dev/proc"
	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

const (
	giveUp = 60 * time.Second
	look   = 100 * time.Millisecond
)

// scenario is what an operator is put through, on stock and on the fork.
type scenario struct {
	about string
	main  string   // the package of its command
	args  []string // the command's own flags
	crds  func(ctx context.Context, t *trees) ([]string, error)
	steps []scene
}

// scene is a change, and what the operator is to do about it.
type scene struct {
	what  string
	do    func(ctx context.Context, c *cluster) error                   // nil: nothing, and the clock goes on
	until func(ctx context.Context, c *cluster) (state string, ok bool) // state: what to say if it never is
}

// liveResult is what happened.
type liveResult struct {
	Runtime, Server, Machine, Date string
	Steps                          []step
}

// step is how long it took on either side, or that it was not within giveUp.
type step struct {
	What, Stock, Fork string
	ForkFailed        bool
}

func (l *liveResult) verdict() error {
	if l == nil {
		return nil
	}
	for _, s := range l.Steps {
		if s.ForkFailed {
			return fmt.Errorf("on the fork, %s: %s", s.What, s.Fork)
		}
	}
	return nil
}

// live runs a scenario on either side, each with an API server of its own.
func (t *trees) live(ctx context.Context, s *scenario, assets string) (*liveResult, error) {
	if t.forked != nil {
		return nil, fmt.Errorf("fork %s: %w\n%s", t.Module, t.forked, t.said)
	}
	mod, err := readMod(ctx, t.stock)
	if err != nil {
		return nil, err
	}
	version, err := proc.Output(ctx, root, nil, filepath.Join(assets, "kube-apiserver"), "--version")
	if err != nil {
		return nil, err
	}
	result := &liveResult{
		Runtime: mod.requires(controllerRuntime), Server: version + " of kube-apiserver",
		Machine: report.Machine(), Date: time.Now().UTC().Format(time.DateOnly), Steps: make([]step, len(s.steps)),
	}
	for i, scene := range s.steps {
		result.Steps[i].What = scene.what
	}
	return result, errors.Join(
		t.liveSide(ctx, s, t.stock, assets, func(i int, said string, _ bool) { result.Steps[i].Stock = said }),
		t.liveSide(ctx, s, t.fork, assets, func(i int, said string, ok bool) { result.Steps[i].Fork, result.Steps[i].ForkFailed = said, !ok }),
	)
}

func (t *trees) liveSide(ctx context.Context, s *scenario, dir, assets string, tell func(i int, said string, ok bool)) error {
	binary := dir + ".bin"
	progress("%s: build %s in %s", t.Name, s.main, dir)
	if said := quietly(ctx, dir, "go", "build", "-o", binary, s.main); said != "ok" {
		return errors.New(said)
	}
	crds, err := s.crds(ctx, t)
	if err != nil {
		return err
	}
	c, err := newCluster(ctx, assets, dir)
	if err != nil {
		return err
	}
	defer c.stop()
	if err := c.applyFiles(ctx, crds); err != nil {
		return err
	}
	operator, err := c.start(binary, s.args, dir+".log")
	if err != nil {
		return err
	}
	defer operator.stop()
	var began time.Time
	for i, scene := range s.steps {
		if scene.do != nil {
			if err := scene.do(ctx, c); err != nil {
				return fmt.Errorf("%s: %w", scene.what, err)
			}
			began = time.Now()
		}
		said, ok := c.await(ctx, scene, began)
		progress("%s, %s: %s: %s", t.Name, filepath.Base(dir), scene.what, said)
		if err := operator.ended(); err != nil {
			return err
		}
		tell(i, said, ok)
	}
	return ctx.Err()
}

// await returns how long it took since the change, or what there was instead.
func (c *cluster) await(ctx context.Context, s scene, began time.Time) (said string, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, giveUp)
	defer cancel()
	c.last = ""
	for {
		state, ok := s.until(ctx, c)
		switch {
		case ok:
			return report.Rounded(time.Since(began)), true
		case ctx.Err() != nil:
			return fmt.Sprintf("**not within %v**: %s", giveUp, c.last), false
		}
		if c.last == "" || !strings.Contains(state, " is Unknown: ") { // "in progress", between two tries
			c.last = state
		}
		select {
		case <-ctx.Done():
		case <-time.After(look):
		}
	}
}

// program is a running operator.
type program struct {
	cmd  *exec.Cmd
	log  string
	done chan error // closed when it has ended
}

func (c *cluster) start(binary string, args []string, log string) (*program, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close() //nolint:errcheck // the program has its own
	p := &program{cmd: exec.Command(binary, args...), log: log, done: make(chan error)}
	p.cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // ended says what it wrote, which tells more
		close(p.done)
	}()
	return p, nil
}

// ended is an error if the operator is not running any more.
func (p *program) ended() error {
	select {
	case <-p.done:
		said, _ := os.ReadFile(p.log)
		return fmt.Errorf("%s has ended: %s", p.cmd.Path, bytes.TrimSpace(said[max(0, len(said)-1000):]))
	default:
		return nil
	}
}

func (p *program) stop() {
	_ = p.cmd.Process.Kill() // it may have ended by itself
	<-p.done
}
