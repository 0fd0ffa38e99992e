// SPDX-License-Identifier: Apache-2.0

// Command dev is what hack/envtest.sh starts, and what adds up hack/test.sh.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// checkout is what the commands work on, and where they say how.
type checkout struct {
	root           string
	stdout, stderr io.Writer // results; progress
}

// commands are what a script starts, with the arguments that it was given.
var commands = map[string]func(ctx context.Context, c *checkout, args []string) error{
	"envtest": envtest,
	"sum":     sum,
}

// errSaid ends a command that has said already what went wrong.
var errSaid = errors.New("something failed")

// errUsage ends a command whose arguments are wrong. The command has printed why.
var errUsage = errors.New("wrong arguments")

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := dispatch(ctx, args, os.Stdout, os.Stderr)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errUsage):
		return 2
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "error: interrupted")
		return 130
	case !errors.Is(err, errSaid):
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
	}
	return 1
}

// dispatch is given the folder of the checkout, a command, and its arguments.
func dispatch(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) < 2 || commands[args[1]] == nil {
		fmt.Fprintln(stderr, "error: use the scripts in hack")
		return errUsage
	}
	return commands[args[1]](ctx, &checkout{root: args[0], stdout: stdout, stderr: stderr}, args[2:])
}

// say prints a line of progress.
func (c *checkout) say(format string, args ...any) {
	fmt.Fprintf(c.stderr, "==> "+format+"\n", args...)
}
