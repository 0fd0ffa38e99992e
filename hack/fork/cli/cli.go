// SPDX-License-Identifier: Apache-2.0

// Package cli is what the commands of this repository share: flags and an exit code, errors
// of one line, and running the go command and git.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// Command is a command that takes only flags.
type Command struct {
	Flags *flag.FlagSet               // has its name
	Help  string                      // is all that is said about the flags
	Valid func() error                // returns an error if the flags do not fit together
	Do    func(context.Context) error // is interrupted by a signal
}

// Run runs the command and returns its exit code.
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
