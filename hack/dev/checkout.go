// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/freshmapper/freshmapper/hack/dev/proc"
)

// checkout is what the commands work on, and where they say how.
type checkout struct {
	root           string
	stdout, stderr io.Writer // results; progress
}

func (c *checkout) path(name string) string { return filepath.Join(c.root, filepath.FromSlash(name)) }

// say prints a line of progress.
func (c *checkout) say(format string, args ...any) {
	fmt.Fprintf(c.stderr, "==> "+format+"\n", args...)
}

// files are those in git and those not yet added, but neither ignored nor deleted
// ones, that match any of git's patterns, or all.
func (c *checkout) files(ctx context.Context, patterns ...string) ([]string, error) {
	args := append([]string{"git", "-c", "core.quotePath=false", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"}, patterns...)
	listed, err := proc.Output(ctx, c.root, nil, args...)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, name := range strings.Split(listed, "\x00") {
		if info, err := os.Lstat(c.path(name)); err == nil && info.Mode().IsRegular() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// modules are the folders of our Go modules, "." first. A go.mod in a testdata
// folder is a test's input and not a module to check, but for
// testdata/consumers, which are programs that must build.
func (c *checkout) modules(ctx context.Context) ([]string, error) {
	files, err := c.files(ctx, ":(glob)**/go.mod")
	var dirs []string
	for _, file := range files {
		dir := path.Dir(file)
		if strings.HasPrefix(dir, "testdata/consumers/") || !slices.Contains(strings.Split(dir, "/"), "testdata") {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	return dirs, err
}

// tool is the command line of a program that hack/tools/go.mod pins. The go
// command builds it once and keeps it in its build cache.
func (c *checkout) tool(name string, args ...string) []string {
	return append([]string{"go", "tool", "-modfile=" + c.path("hack/tools/go.mod"), name}, args...)
}

// scratch makes a temporary folder; remove removes it.
func scratch() (dir string, remove func(), err error) {
	dir, err = os.MkdirTemp("", "freshmapper-")
	if err != nil {
		return "", nil, fmt.Errorf("make a folder to work in: %w", err)
	}
	return dir, func() { _ = proc.Remove(dir) }, nil
}

// seconds is a duration for a reader.
func seconds(d time.Duration) string { return fmt.Sprintf("%.0fs", d.Seconds()) }

// failed reports whether err is of a command that has said itself what went wrong.
func failed(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	return errSaid
}

// terminal reports whether somebody is likely to look at what is written.
func terminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
