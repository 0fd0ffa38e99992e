// SPDX-License-Identifier: Apache-2.0

// Package gotool runs the go command and turns its failures into errors of one
// line that still hold everything it said.
package gotool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// grace is how long an interrupted go command gets to stop its compilers.
const grace = 10 * time.Second

// Error is a go command that failed.
type Error struct {
	Args   []string // without the leading "go"
	Dir    string
	Output string // what it wrote to stderr
	Err    error
}

// Error is one line: what was run and the first thing the go command said.
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
	return fmt.Sprintf("go %s in %s: %s", strings.Join(e.Args, " "), e.Dir, said)
}

func (e *Error) Unwrap() error { return e.Err }

// Run runs "go args..." in dir, with env on top of this process's environment,
// and returns its stdout, also when it fails. The error is an *Error, or the
// context's own when ctx ended the command.
func Run(ctx context.Context, dir string, env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = grace
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		return stdout.Bytes(), ctx.Err()
	}
	if errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("no go command in PATH: install Go, see go.dev/dl: %w", err)
	}
	if err != nil {
		return stdout.Bytes(), &Error{Args: args, Dir: dir, Output: stderr.String(), Err: err}
	}
	return stdout.Bytes(), nil
}

// SplitLines is slices.Collect(strings.Lines(text)), which Go 1.23 does not have.
func SplitLines(text string) []string {
	lines := strings.SplitAfter(text, "\n")
	if last := len(lines) - 1; lines[last] == "" {
		lines = lines[:last]
	}
	return lines
}

// First is the first of what Lines returns, in words if there is none.
func First(lines []string) string {
	if len(lines) == 0 {
		return "no reason given"
	}
	return lines[0]
}

// Lines splits what the go command wrote to stderr into lines that matter to a
// reader: no blank ones, no download progress, no "# package" headings.
func Lines(output string) []string {
	var lines []string
	for _, line := range SplitLines(output) {
		line = strings.TrimRight(line, "\r\n")
		noise := strings.TrimSpace(line) == "" || strings.HasPrefix(line, "# ") ||
			strings.HasPrefix(line, "go: downloading ") || strings.HasPrefix(line, "go: finding ")
		if !noise {
			lines = append(lines, line)
		}
	}
	return lines
}

// RepeatLines has each line with a key in it stand once for each of the values.
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
