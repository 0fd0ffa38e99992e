// SPDX-License-Identifier: Apache-2.0

// Package proc runs programs that start other programs. When the context ends, all
// of them end.
package proc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// grace is how long what was told to end may take: a test stops its API server
// first.
const grace = 20 * time.Second

// Command is a program to run. What it reads is empty.
type Command struct {
	Dir    string
	Env    []string // on top of this process's own
	Args   []string // the name first
	Stdout io.Writer
	Stderr io.Writer
}

// Run runs the command in a process group of its own and waits for it. When ctx
// ends, all processes of the group are told to end, and killed if they do not.
func (c Command) Run(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.Dir, c.Stdout, c.Stderr
	cmd.Env = append(cmd.Environ(), c.Env...)
	cmd.WaitDelay = grace
	group(cmd)
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		if cmd.Process != nil {
			end(cmd.Process.Pid)
		}
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("%s: %w", strings.Join(c.Args, " "), err)
	}
	return nil
}

// Output runs a command and returns what it printed, without space around it.
// What it wrote to stderr is in the error.
func Output(ctx context.Context, dir string, env []string, args ...string) (string, error) {
	var stdout, stderr strings.Builder
	err := Command{Dir: dir, Env: env, Args: args, Stdout: &stdout, Stderr: &stderr}.Run(ctx)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w\n%s", err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(stdout.String()), err
}

// Remove deletes a folder, with what Go's module cache or setup-envtest have made
// read-only in it.
func Remove(dir string) error {
	_ = filepath.WalkDir(dir, func(name string, entry fs.DirEntry, _ error) error {
		if entry != nil && entry.IsDir() {
			_ = os.Chmod(name, 0o700) // RemoveAll says what is wrong
		}
		return nil
	})
	return os.RemoveAll(dir)
}
