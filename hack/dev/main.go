// SPDX-License-Identifier: Apache-2.0

// Command dev does what the scripts of hack are for; they build and start it.
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
)

// command is what a script starts; args are what it was given.
type command func(ctx context.Context, c *checkout, args []string) error

// named returns the command of a name, nil if there is none.
func named(name string) command {
	switch name {
	case "demo":
		return demo
	case "envtest":
		return envtest
	case "bench":
		return bench
	case "compatibility":
		return compatibility
	case "matrix":
		return runMatrix
	case "test":
		return test
	case "verify":
		return verify
	}
	return nil
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

func dispatch(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("dev", flag.ContinueOnError)
	flags.SetOutput(stderr)
	root := flags.String("root", ".", "the `folder` of the checkout")
	if flags.Parse(args) != nil {
		return errUsage
	}
	abs, err := filepath.Abs(*root)
	if err != nil {
		return fmt.Errorf("find the checkout: %w", err)
	}
	if err := settings(); err != nil {
		return err
	}
	do := named(flags.Arg(0))
	if do == nil {
		fmt.Fprintf(stderr, "dev: no command %q: use the scripts in hack\n", flags.Arg(0))
		return errUsage
	}
	return do(ctx, &checkout{root: abs, stdout: stdout, stderr: stderr}, flags.Args()[1:])
}

// settings are those of the go command for all that the commands run. A go.work
// above the checkout would change what every module resolves to. Tests build
// programs and trees in temporary folders: without these paths in what it
// compiles Go's build cache has it the next time.
func settings() error {
	flags := strings.TrimSpace(os.Getenv("GOFLAGS") + " -trimpath")
	return errors.Join(os.Setenv("GOWORK", "off"), os.Setenv("GOFLAGS", flags))
}

// parse parses the flags of a script, and refuses what no flag stands before. usage
// is all that is said about them.
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
