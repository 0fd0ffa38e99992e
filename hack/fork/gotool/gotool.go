// SPDX-License-Identifier: Apache-2.0

// Package gotool runs the go command and other commands. It turns their failures
// into errors of one line that still hold the whole output.
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

// Run is Exec of "go args...".
func Run(ctx context.Context, dir string, env []string, args ...string) ([]byte, error) {
	return Exec(ctx, dir, env, nil, append([]string{"go"}, args...)...)
}

// Exec runs a command in dir, with env on top of this process's environment, and
// returns its stdout, also when it fails. The error is an *Error, or the context's own
// when ctx ended the command.
func Exec(ctx context.Context, dir string, env []string, stdin io.Reader, args ...string) ([]byte, error) {
	return execute(ctx, dir, env, stdin, io.Discard, args)
}

// Watch runs a command as Exec does, and copies its stderr while it runs.
func Watch(ctx context.Context, dir string, env []string, stderr io.Writer, args ...string) error {
	_, err := execute(ctx, dir, env, nil, stderr, args)
	return err
}

func execute(ctx context.Context, dir string, env []string, stdin io.Reader, watching io.Writer, args []string) ([]byte, error) {
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
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return nil, fmt.Errorf("make a folder to run the go command in: %w", err)
		}
	}
	return Run(ctx, dir, []string{"GOWORK=off", "GOFLAGS=-mod=mod"}, args...)
}

// SplitLines is slices.Collect(strings.Lines(text)), which Go 1.23 does not have.
func SplitLines(text string) []string {
	lines := strings.SplitAfter(text, "\n")
	if last := len(lines) - 1; lines[last] == "" {
		lines = lines[:last]
	}
	return lines
}

// Lines splits what a command wrote to stderr into lines that matter to a reader: no
// blank ones, no progress of the go command's (downloads, names of packages), no
// "# package" headings.
func Lines(output string) []string {
	var lines []string
	for _, line := range SplitLines(output) {
		line = strings.TrimRight(line, "\r\n")
		noise := !strings.ContainsAny(strings.TrimSpace(line), " \t") || strings.HasPrefix(line, "# ") ||
			strings.HasPrefix(line, "go: downloading ") || strings.HasPrefix(line, "go: finding ")
		if !noise {
			lines = append(lines, line)
		}
	}
	return lines
}

// RepeatLines repeats each line with a key in it, once for each of the values.
func RepeatLines(text, key string, values []string) string {
	var out strings.Builder
	for _, line := range SplitLines(text) {
		if !strings.Contains(line, key) {
			out.WriteString(line)
			continue
		}
		for _, value := range values {
			out.WriteString(strings.ReplaceAll(line, key, value))
		}
	}
	return out.String()
}
