// SPDX-License-Identifier: Apache-2.0

// Package gotool runs the go command and git. It turns their failures into errors of
// one line that still hold the whole output.
package gotool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// grace is how long an interrupted go command gets to stop its compilers.
const grace = 10 * time.Second

// Error is a command that failed.
type Error struct {
	Args   []string // with its name
	Dir    string
	Output string // what it wrote to stderr
	Err    error
}

// Error is one line: what was run and the first thing it said.
func (e *Error) Error() string {
	said := e.Err.Error()
	if lines := Lines(e.Output); len(lines) > 0 {
		said = strings.TrimPrefix(lines[0], "go: ")
		for _, line := range lines[1:] { // "errors parsing go.mod:"
			if !strings.HasSuffix(said, ":") {
				break
			}
			said += " " + strings.TrimSpace(line)
		}
	}
	return fmt.Sprintf("%s in %s: %s", strings.Join(e.Args, " "), e.Dir, said)
}

func (e *Error) Unwrap() error { return e.Err }

// Run runs "go args...", with env on top of this process's environment, and returns its
// stdout, also when it fails. The error is an *Error, or the context's own when ctx ended
// the command.
func Run(ctx context.Context, dir string, env []string, args ...string) ([]byte, error) {
	return run(ctx, dir, env, nil, io.Discard, append([]string{"go"}, args...))
}

// Watch is Run that copies stderr while the command runs.
func Watch(ctx context.Context, dir string, env []string, stderr io.Writer, args ...string) error {
	_, err := run(ctx, dir, env, nil, stderr, append([]string{"go"}, args...))
	return err
}

// Git runs git in a repository in dir, and never in one around it. What it writes there
// depends neither on the machine nor on its user.
func Git(ctx context.Context, dir string, env []string, stdin io.Reader, args ...string) (string, error) {
	env = append([]string{"GIT_DEFAULT_HASH=sha1", "GIT_DIR=.git", "GIT_WORK_TREE=."}, env...)
	command := append([]string{"git", "-c", "core.autocrlf=false", "-c", "core.hooksPath=" + os.DevNull}, args...)
	out, err := run(ctx, dir, env, stdin, io.Discard, command)
	if failed := (*Error)(nil); errors.As(err, &failed) {
		failed.Args = []string{"git", args[0]} // the others are many
	}
	return string(out), err
}

func run(ctx context.Context, dir string, env []string, stdin io.Reader, watching io.Writer, args []string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Stdin = dir, stdin
	cmd.Env = append(cmd.Environ(), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = grace
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, io.MultiWriter(&stderr, watching)
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return stdout.Bytes(), ctx.Err()
	case err == nil:
		return stdout.Bytes(), nil
	case errors.Is(err, exec.ErrNotFound):
		return nil, fmt.Errorf("no %s command in PATH: install it: %w", args[0], err)
	}
	return stdout.Bytes(), &Error{Args: args, Dir: dir, Output: stderr.String(), Err: err}
}

// Elsewhere is Run in a new folder that has these files and is removed again.
func Elsewhere(ctx context.Context, files map[string][]byte, args ...string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "freshmapper-")
	if err != nil {
		return nil, fmt.Errorf("make a folder to run the go command in: %w", err)
	}
	defer os.RemoveAll(dir)
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return nil, fmt.Errorf("make a folder to run the go command in: %w", err)
		}
	}
	return Run(ctx, dir, []string{"GOWORK=off", "GOFLAGS=-mod=mod"}, args...)
}

// Lines splits what a command wrote to stderr into lines that matter to a reader: no
// blank ones, no progress of the go command's (downloads, names of packages), no
// "# package" headings.
func Lines(output string) []string {
	var lines []string
	for _, line := range strings.Split(output, "\n") {
		line = strings.TrimRight(line, "\r")
		noise := !strings.ContainsAny(strings.TrimSpace(line), " \t") || strings.HasPrefix(line, "# ") ||
			strings.HasPrefix(line, "go: downloading ") || strings.HasPrefix(line, "go: finding ")
		if !noise {
			lines = append(lines, line)
		}
	}
	return lines
}
