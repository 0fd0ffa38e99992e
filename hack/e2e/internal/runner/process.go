// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// Process is a running program.
type Process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr bytes.Buffer // written by cmd's own goroutine, read once that has ended
}

// Start starts a program that finds its API server through kubeconfig. It is
// killed when ctx ends.
func Start(ctx context.Context, binary, kubeconfig string, args ...string) (*Process, error) {
	return start(ctx, binary, kubeconfig, nil, args...)
}

// start starts a program whose stderr goes to a file, or is kept.
func start(ctx context.Context, binary, kubeconfig string, file *os.File, args ...string) (*Process, error) {
	p := &Process{cmd: exec.CommandContext(ctx, binary, args...)}
	p.cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	p.cmd.Stderr = &p.stderr
	if file != nil {
		p.cmd.Stderr = file
	}
	p.cmd.WaitDelay = 10 * time.Second
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.stdin, p.stdout = stdin, bufio.NewReader(stdout)
	return p, p.cmd.Start()
}

// Ask writes a line to the program and returns the line that it answers.
func (p *Process) Ask(line string) ([]byte, error) {
	if _, err := fmt.Fprintln(p.stdin, line); err != nil {
		return nil, fmt.Errorf("asking %q: %w", line, err)
	}
	answer, err := p.stdout.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("no answer to %q: %w", line, err)
	}
	return answer, nil
}

// Expect waits for the program to print a line.
func (p *Process) Expect(line string) error {
	for {
		got, err := p.stdout.ReadString('\n')
		if err != nil {
			return fmt.Errorf("waiting for the program to print %q: %w", line, err)
		}
		if got == line+"\n" {
			return nil
		}
	}
}

// Finish writes a line to a program that is to end of itself, waits, and returns
// what it wrote to stderr.
func (p *Process) Finish(line string) (stderr string, err error) {
	_, _ = fmt.Fprintln(p.stdin, line) // it may have ended already
	return p.wait()
}

// Stop asks the program to end, by end of input and an interrupt, waits, and
// returns what it wrote to stderr. To have been interrupted is no error.
func (p *Process) Stop() (stderr string, err error) {
	return p.end(os.Interrupt)
}

func (p *Process) end(by os.Signal) (stderr string, err error) {
	_ = p.cmd.Process.Signal(by) // it may have ended already
	stderr, err = p.wait()
	if exit := (&exec.ExitError{}); errors.As(err, &exit) && exit.ExitCode() < 0 {
		err = nil
	}
	return stderr, err
}

func (p *Process) wait() (stderr string, err error) {
	err = p.stdin.Close()
	err = errors.Join(p.cmd.Wait(), err)
	return p.stderr.String(), err
}

// Crash ends the program at once, with SIGKILL, and waits. What it wrote to
// stderr is returned.
func (p *Process) Crash() (stderr string, err error) { return p.end(os.Kill) }
