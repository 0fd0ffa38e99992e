// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/freshmapper/freshmapper/hack/fork/forktest"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// asCommand makes the test binary be the command, with the stand-in sources, so
// that tests can send it signals.
const asCommand = "FORK_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(run(os.Args[1:], forktest.Ours(), os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

var command forktest.Command = func(args []string, stdout, stderr io.Writer) int {
	return run(args, forktest.Ours(), stdout, stderr)
}

func TestHelp(t *testing.T) {
	command.Says(t, "-h", "-into DIR", "-undo", "-check DIR", "-o DIR", "-version", "-V", "-force", tree.Newest(), "Examples")
}

func TestUsage(t *testing.T) {
	command.Usage(t, map[string]string{
		"":                       "give -into DIR, -check DIR or -o DIR",
		"-into a -o b":           "not both",
		"-undo -o b":             "-undo goes with -into",
		"-undo":                  "give -into DIR, -check DIR or -o DIR",
		"-check a -force":        "-check changes nothing",
		"-check a -into b":       "not both",
		"-check absent":          "absent is no folder",
		"-check a -version v1":   "-version goes with -o",
		"-into a -full":          "-full goes with -o",
		"-into a -version v1":    "-version goes with -o",
		"-into a b":              `unexpected argument "b"`,
		"-frobnicate":            "frobnicate",
		"-o b -nobuild":          "-nobuild goes with -into",
		"-into":                  "needs an argument",
		"-o b -version v0.19.0":  "v0.19.0 is not supported",
		"-into main.go":          "main.go is no folder",
		"-into absent -undo":     "absent is no folder",
		"-into a -undo -nobuild": "-nobuild goes with -into, and not with -undo",
		"-o b -version 0.25.2":   "a version begins with a v, as v0.25.2 does",
		"-version v0.19.0":       "v0.19.0 is not supported",
		// Whatever the newest release is, it is not this one.
		"-version v0.20.99":      "v0.20.99 is not to be had: the newest release of v0.20 is v0.20.4",
		"-o b -version v0.20.99": "v0.20.99 is not to be had: the newest release of v0.20 is v0.20.4",
	})
	command.Says(t, "-version v0.20.4", "v0.20.4 can be had")
}

// interrupt starts the command on dir, sends it a signal when the build begins,
// and returns what it wrote to stderr.
func interrupt(t *testing.T, dir string, sig os.Signal) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-into", dir)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "go build") {
			break
		}
	}
	if err := cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, stdout); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Errorf("the run ended well in spite of %s", sig)
	}
	return stderr.String()
}

func TestSignals(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals to send")
	}
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			dir := forktest.Consumer(t)
			before := forktest.Snapshot(t, dir)
			if said := interrupt(t, dir, sig); !strings.HasPrefix(said, "fork: interrupted; ") || strings.Count(said, "\n") != 1 {
				t.Errorf("stderr: %q", said)
			}
			forktest.Same(t, before, forktest.Snapshot(t, dir))
		})
	}
	t.Run("killed", func(t *testing.T) {
		dir := forktest.Consumer(t)
		interrupt(t, dir, os.Kill)
		var out, said bytes.Buffer
		for _, args := range [][]string{{"-into", dir}, {"-check", dir}, {"-into", dir, "-undo"}} {
			if code := run(args, forktest.Ours(), &out, &said); code != 0 {
				t.Errorf("%q after a run that was killed: %s", args, &said)
			}
		}
		forktest.Clean(t, dir)
	})
}

func TestVersion(t *testing.T) {
	var said, other bytes.Buffer
	run([]string{"-V"}, forktest.Ours(), &said, &said)
	run([]string{"-V"}, forktest.Edited("apiutil/errors.go", "package apiutil\n"), &other, &other)
	if other.String() == said.String() {
		t.Errorf("of another mapper the same: %s", &other)
	}
	for _, flag := range []string{"-V", "-version", "--version"} {
		command.Says(t, flag, said.String(), tree.Newest())
	}
}
