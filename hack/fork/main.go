// SPDX-License-Identifier: Apache-2.0

// Command fork writes a controller-runtime tree with this project's mapper
// inside, into a program that uses controller-runtime or on its own.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/freshmapper/freshmapper"
	"github.com/freshmapper/freshmapper/hack/fork/cli"
	"github.com/freshmapper/freshmapper/hack/fork/consumer"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

const help = `fork puts a RESTMapper that stays fresh into your controller-runtime.

  fork -into DIR [-nobuild] [-force]    fork controller-runtime into the module in DIR
  fork -into DIR -undo [-force]         take all of it back
  fork -check DIR                       report whether the fork in DIR is whole and up to date
  fork -o DIR [-version V] [-full]      write only the patched tree, into DIR
  fork -version V                       report whether that release is available
  fork -V                               print the version of this tool

-into reads the controller-runtime version that the module in DIR selects, writes
DIR/third_party/controller-runtime, builds, and adds one replace line to DIR/go.mod.
go.mod comes last: if the build fails, or you interrupt it, DIR is as it was. Run it
again when the controller-runtime version or this tool has changed: it updates the
tree. Otherwise it changes nothing. -undo removes the tree and puts go.mod and go.sum
back byte for byte; one that you have changed since stays as it is, except for the
replace line and the sums of controller-runtime.

-check changes nothing. It succeeds if the tree is whole, of the version that
go.mod requires, and has this tool's mapper; otherwise one line tells what to run.
Use it in CI: "go get" of a newer controller-runtime leaves an old tree in use.

  -nobuild    do not build; "go build ./..." may then ask for "go mod tidy"
  -force      give up edits made by hand in the tree
  -version V  the controller-runtime release for -o (default %s)
  -full       for -o: keep upstream's tests, examples and documents, too

Supported releases of controller-runtime: %s.
The source comes from your own module cache. The tree, go.mod and go.sum belong
in your repository: commit them, or let CI run this command.

Examples
  %[3]s -into ~/src/my-operator
  %[3]s -into ~/src/my-operator -undo
  %[3]s -o /tmp/controller-runtime -version %[1]s
`

type options struct {
	into, out, check, version  string
	undo, force, full, nobuild bool
	tool                       bool // -V
}

func main() {
	os.Exit(run(os.Args[1:], freshmapper.Source, os.Stdout, os.Stderr))
}

// run is main with its surroundings given, and returns the exit code.
func run(args []string, ours fs.FS, stdout, stderr io.Writer) int {
	var o options
	flags := flag.NewFlagSet("fork", flag.ContinueOnError)
	for name, to := range map[string]*string{"into": &o.into, "o": &o.out, "check": &o.check, "version": &o.version} {
		flags.StringVar(to, name, "", "")
	}
	switches := map[string]*bool{
		"V": &o.tool, "full": &o.full, "undo": &o.undo, "nobuild": &o.nobuild, "force": &o.force,
	}
	for name, to := range switches {
		flags.BoolVar(to, name, false, "")
	}
	if len(args) == 1 && strings.TrimLeft(args[0], "-") == "version" {
		args = []string{"-V"} // what -version is in most commands
	}
	return cli.Command{
		Flags: flags, Help: fmt.Sprintf(help, tree.Newest(), tree.Supported(), self()),
		Valid: func() error { return o.valid() },
		Do:    func(ctx context.Context) error { return do(ctx, o, ours, stdout) },
	}.Run(args, stdout, stderr)
}

func do(ctx context.Context, o options, ours fs.FS, stdout io.Writer) error {
	r := consumer.Request{Dir: o.into, Ours: ours, Force: o.force, NoBuild: o.nobuild, Self: self(), Out: stdout}
	switch {
	case o.tool:
		digest, err := tree.SourceDigest(ours)
		fmt.Fprintf(stdout, "fork %s, mapper %s, for controller-runtime %s\n", version(), digest, tree.Supported())
		return err
	case o.out != "":
		return tree.Create(
			ctx,
			tree.Request{
				Dir:     o.out,
				Version: cmp.Or(o.version, tree.Newest()),
				Ours:    ours,
				Full:    o.full,
				Force:   o.force,
				Out:     stdout,
			},
		)
	case o.check != "":
		r.Dir = o.check
		return consumer.Check(ctx, r)
	case o.undo:
		return consumer.Undo(ctx, r)
	case o.into == "":
		_, err := tree.Folder(ctx, o.version, nil)
		if err == nil {
			fmt.Fprintf(stdout, "controller-runtime %s is available: -o DIR writes its fork\n", o.version)
		}
		return err
	}
	return consumer.Into(ctx, r)
}

// valid returns an error if the flags do not fit together.
func (o options) valid() error {
	modes := slices.DeleteFunc([]string{o.into, o.out, o.check}, func(dir string) bool { return dir == "" })
	switch {
	case o.tool:
		return nil
	case len(modes) == 0 && (o.version == "" || o.undo):
		return errors.New("give -into DIR, -check DIR or -o DIR")
	case len(modes) > 1:
		return errors.New("give one of -into, -check and -o, not both")
	case o.undo && o.into == "":
		return errors.New("-undo goes with -into")
	case o.nobuild && (o.into == "" || o.undo):
		return errors.New("-nobuild goes with -into, and not with -undo")
	case o.force && o.check != "":
		return errors.New("-force goes with -into or -o: -check changes nothing")
	case o.version != "" && o.out == "" && len(modes) > 0:
		return errors.New("-version goes with -o: -into and -check take the version that the module selects")
	case o.version != "" && o.version[0] != 'v':
		return fmt.Errorf("-version %s: a version begins with a v, as %s does", o.version, tree.Newest())
	case o.full && o.out == "":
		return errors.New("-full goes with -o")
	}
	return nil
}

// built is the folder of a program that "go run" built, or found in the build cache.
var built = regexp.MustCompile(`go-build|[0-9a-f]{64}-d`)

// self is the command line that starts this program again: "go run" leaves it
// in a folder that is gone a moment later.
func self() string {
	switch {
	case !built.MatchString(os.Args[0]):
		return os.Args[0]
	case version() == devel:
		return "go run ./hack/fork"
	}
	return "go run " + tree.Ours + "/hack/fork@" + version()
}

// devel is the version of a program that was built in a checkout.
const devel = "(devel)"

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return devel
}
