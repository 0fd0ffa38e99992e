// SPDX-License-Identifier: Apache-2.0

// Package cli is what the commands of this repository share: flags and an exit code, errors
// of one line, and running the go command and git.
package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Command is a command that takes only flags.
type Command struct {
	Flags *flag.FlagSet               // has its name
	Help  string                      // is all that is said about the flags
	Valid func() error                // returns an error if the flags do not fit together
	Do    func(context.Context) error // is interrupted by a signal
}

func (c Command) Run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c.Flags.SetOutput(io.Discard)
	err := c.Flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, c.Help)
		return 0
	}
	if err == nil && c.Flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", c.Flags.Arg(0))
	}
	if err == nil {
		err = c.Valid()
	}
	if err != nil {
		err = fmt.Errorf("%w (-h explains)", err)
	} else if err = c.Do(ctx); err == nil {
		return 0
	}
	said := "interrupted"
	if !errors.Is(err, context.Canceled) {
		said = strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
	}
	fmt.Fprintf(stderr, "%s: %s\n", c.Flags.Name(), said)
	return 1
}

// Error is a command that failed.
type Error struct {
	Args   []string // with its name
	Dir    string
	Output string // what it wrote to stderr
	Err    error
}

// Error is one line: what was run and the first thing it said.
func (e *Error) Error() string {
	lines := append(Lines(e.Output), e.Err.Error())
	said := strings.TrimPrefix(lines[0], "go: ")
	for _, line := range lines[1:] { // "errors parsing go.mod:"
		if strings.HasSuffix(said, ":") {
			said += " " + strings.TrimSpace(line)
		}
	}
	return fmt.Sprintf("%s in %s: %s", strings.Join(e.Args, " "), e.Dir, said)
}

func (e *Error) Unwrap() error { return e.Err }

// Go runs "go args..." and returns its stdout, also when it fails. Watching is written what
// the command writes to stderr, while it runs. The error is an *Error, or the context's own
// when ctx ended the command.
func Go(ctx context.Context, dir string, env []string, watching io.Writer, args ...string) ([]byte, error) {
	return run(ctx, dir, env, nil, watching, append([]string{"go"}, args...))
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

// run runs a command, with env on top of this process's environment.
func run(
	ctx context.Context,
	dir string,
	env []string,
	stdin io.Reader,
	watching io.Writer,
	args []string,
) ([]byte, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Stdin = dir, stdin
	cmd.Env = append(cmd.Environ(), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second // for an interrupted go command to stop its compilers
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, io.MultiWriter(&stderr, watching)
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case errors.Is(err, exec.ErrNotFound):
		err = fmt.Errorf("no %s command in PATH: install it: %w", args[0], err)
	case err != nil:
		err = &Error{Args: args, Dir: dir, Output: stderr.String(), Err: err}
	}
	return stdout.Bytes(), err
}

// Elsewhere runs the go command in a new folder with a go.mod and a go.sum, and decodes the
// JSON that it writes, also when it fails.
func Elsewhere(ctx context.Context, mod, sum []byte, to any, args ...string) error {
	dir, err := os.MkdirTemp("", "freshmapper-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = errors.Join(
			os.WriteFile(filepath.Join(dir, "go.mod"), mod, 0o600),
			os.WriteFile(filepath.Join(dir, "go.sum"), sum, 0o600),
		)
	}
	if err != nil {
		return fmt.Errorf("make a folder to run the go command in: %w", err)
	}
	out, err := Go(ctx, dir, []string{"GOWORK=off", "GOFLAGS=-mod=mod"}, io.Discard, args...)
	if decoded := json.Unmarshal(out, to); err == nil {
		err = decoded
	}
	return err
}

// Lines splits what a command wrote to stderr into lines that matter to a reader: no
// blank ones, no progress of the go command's (downloads, names of packages), no
// "# package" headings.
func Lines(output string) []string {
	return slices.DeleteFunc(strings.Split(strings.ReplaceAll(output, "\r", ""), "\n"), func(line string) bool {
		return !strings.ContainsAny(strings.TrimSpace(line), " \t") || strings.HasPrefix(line, "# ") ||
			strings.HasPrefix(line, "go: downloading ") || strings.HasPrefix(line, "go: finding ")
	})
}
