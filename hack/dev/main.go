// SPDX-License-Identifier: Apache-2.0

// Command dev does the work of hack/test.sh and hack/envtest.sh, which build and
// start it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/freshmapper/freshmapper/hack/dev/proc"
)

// checkout is what the commands work on, and where they say how.
type checkout struct {
	root           string
	stdout, stderr io.Writer // results; progress
}

// commands are what a script starts, with the arguments that it was given.
var commands = map[string]func(ctx context.Context, c *checkout, args []string) error{
	"envtest": envtest,
	"test":    test,
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
	case err == nil, errors.Is(err, flag.ErrHelp):
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
	if err := settings(); err != nil {
		return err
	}
	return commands[args[1]](ctx, &checkout{root: args[0], stdout: stdout, stderr: stderr}, args[2:])
}

// settings are the go command's settings for everything that the commands run. A
// go.work above the checkout would change what every module resolves to. Tests
// build programs and trees in temporary folders: if these paths are not in the
// compiled code, Go's build cache can be used the next time. Nobody debugs these
// programs, and without symbols they are linked in two thirds of the time.
func settings() error {
	flags := strings.TrimSpace(os.Getenv("GOFLAGS") + " -trimpath -ldflags=-s")
	return errors.Join(os.Setenv("GOWORK", "off"), os.Setenv("GOFLAGS", flags))
}

// parse parses the flags of a script, and refuses other arguments. usage is the
// whole text of -h.
func (c *checkout) parse(flags *flag.FlagSet, args []string, usage string) error {
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(c.stdout, usage)
		return err
	}
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected %s", strings.Join(flags.Args(), " "))
	}
	if err != nil {
		fmt.Fprintf(c.stderr, "error: %v\n%s", err, usage)
		return errUsage
	}
	return nil
}

func (c *checkout) path(name string) string { return filepath.Join(c.root, filepath.FromSlash(name)) }

// say prints a line of progress.
func (c *checkout) say(format string, args ...any) {
	fmt.Fprintf(c.stderr, "==> "+format+"\n", args...)
}

// scratch makes a temporary folder; remove removes it.
func scratch() (dir string, remove func(), err error) {
	dir, err = os.MkdirTemp("", "freshmapper-")
	if err != nil {
		return "", nil, fmt.Errorf("make a folder to work in: %w", err)
	}
	return dir, func() { _ = proc.Remove(dir) }, nil
}
