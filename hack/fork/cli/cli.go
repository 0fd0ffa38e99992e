// SPDX-License-Identifier: Apache-2.0

// Package cli runs commands that take only flags, and prints errors on one line.
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

// Command is a command.
type Command struct {
	Flags *flag.FlagSet               // has its name
	Help  string                      // is all that is said about the flags
	Valid func() error                // returns an error if the flags do not fit together
	Do    func(context.Context) error // is interrupted by a signal
}

// Run runs the command and returns its exit code.
func (c Command) Run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), ends()...)
	defer stop()
	// If the reader of the output stops ("| head"), the run must still go on to its
	// end.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
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
	} else {
		err = c.Do(ctx)
	}
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "%s: %s\n", c.Flags.Name(), oneLine(err))
	return 1
}

// ends are the signals on which a run takes back what it did. A terminal that is
// closed sends SIGHUP, which nohup has ignored.
func ends() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

func oneLine(err error) string {
	if errors.Is(err, context.Canceled) {
		return "interrupted"
	}
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
