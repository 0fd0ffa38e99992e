// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/freshmapper/freshmapper/hack/dev/proc"
	"github.com/freshmapper/freshmapper/hack/dev/servers"
)

const demoUsage = `usage: hack/demo.sh [-all]

Gets a real API server, builds a sample controller (testdata/consumers/heal) once
as it stands and once with controller-runtime forked by one replace line, lets
CRDs come and go under both (replays R1 to R5). Then the same for an operator as
kubebuilder scaffolds it (testdata/consumers/plain), whose CRD is deleted and comes
back as it was, with the other scope, with another plural (replays S1 to S3). Prints
how each fared: what it saw, how many discovery requests it made, how long it took
to heal.

Exit status 0: all of them heal on the fork, and all but S1 fail on stock. The first run
compiles Kubernetes libraries, and builds an API server if none can be downloaded:
minutes. Nothing is left behind but Go's caches and the API server's
(see hack/envtest.sh). Progress is on stderr.

  -all                 also the three larger examples (multicluster, lazywatch,
                       selfheal), each built on stock and on the fork: some
                       minutes more

  NO_COLOR=1           no colours, which are used only on a terminal
  KUBEBUILDER_ASSETS   a folder with kube-apiserver and etcd, to use those
`

// demonstration is one run of the demo.
type demonstration struct {
	*checkout
	work, assets string
}

func demo(ctx context.Context, c *checkout, args []string) error {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	all := flags.Bool("all", false, "")
	if err := c.parse(flags, args, demoUsage); err != nil {
		return err
	}
	work, remove, err := scratch()
	if err != nil {
		return err
	}
	defer remove()
	if err := os.Setenv("TMPDIR", work); err != nil { // whatever is left there is removed with it
		return err
	}
	d := &demonstration{checkout: c, work: work}
	if err := d.prepare(ctx); err != nil {
		return err
	}
	return d.replays(ctx, *all)
}

// prepare builds what is to be run.
func (d *demonstration) prepare(ctx context.Context) error {
	d.say("getting an API server")
	finder, err := servers.New(d.root, d.say)
	if err != nil {
		return err
	}
	if d.assets, err = finder.Find(ctx, servers.Latest); err != nil {
		return err
	}
	names := []string{"heal", "plain"}
	d.say("building the sample controller and an operator on stock controller-runtime")
	for _, name := range names {
		if err := copyTree(filepath.Join(d.work, name), d.path("testdata/consumers/"+name)); err != nil {
			return err
		}
		if err := d.build(ctx, name, name+"-stock"); err != nil {
			return err
		}
	}
	d.say("forking controller-runtime into copies of them")
	for _, name := range names {
		copied := filepath.Join(d.work, name)
		err := d.show(ctx, "go", "run", "./hack/fork", "-into", copied)
		if err == nil {
			err = d.show(ctx, "grep", "-n", "^replace", filepath.Join(copied, "go.mod"))
		}
		if err == nil {
			fmt.Fprintln(d.stdout)
			err = d.build(ctx, name, name+"-fork")
		}
		if err != nil {
			return err
		}
	}
	d.say("building the replays")
	return errors.Join(
		d.command(ctx, "hack/e2e", "go", "test", "-c", "-o", d.program("e2e.test"), "."),
		d.command(ctx, "hack/e2e", "go", "build", "-o", d.program("table"), "./table"))
}

func (d *demonstration) program(name string) string { return filepath.Join(d.work, name) }

// command runs a command in a folder of the checkout.
func (d *demonstration) command(ctx context.Context, dir string, args ...string) error {
	_, err := proc.Command{Dir: d.path(dir), Args: args, Stdout: d.stdout, Stderr: d.stderr}.Run(ctx)
	return err
}

// show prints a command for the reader, then runs it.
func (d *demonstration) show(ctx context.Context, args ...string) error {
	fmt.Fprintf(d.stdout, "\n$ %s\n", strings.Join(args, " "))
	return d.command(ctx, ".", args...)
}

func (d *demonstration) build(ctx context.Context, copied, program string) error {
	_, err := proc.Command{
		Dir: filepath.Join(d.work, copied), Args: []string{"go", "build", "-o", d.program(program), "."}, Stdout: d.stdout, Stderr: d.stderr,
	}.Run(ctx)
	return err
}

func (d *demonstration) replays(ctx context.Context, all bool) error {
	programs := "FRESHMAPPER_E2E_PROGRAMS=" + d.work
	d.say("starting the API server and replaying R1 to R5, about 20 seconds")
	if err := d.must(ctx, "the replays", "^TestHeal$", programs); err != nil {
		return err
	}
	d.say("replaying S1 to S3, about a minute: stock is given 15 seconds each time")
	if err := d.must(ctx, "the operator's replays", "^TestPlain$/^S(1|2-cluster|2-namespace|3)$", programs); err != nil {
		return err
	}
	if all {
		d.say("building and running the larger examples, some minutes")
		if err := d.must(ctx, "the examples", "^Test(Multicluster|MapperProvider|ManyTenants|Lazywatch|Selfheal)$"); err != nil {
			return err
		}
	}
	return d.table(ctx)
}

// must runs replays quietly; if they go wrong it shows all they said.
func (d *demonstration) must(ctx context.Context, name, pattern string, env ...string) error {
	var said bytes.Buffer
	env = append(env, "KUBEBUILDER_ASSETS="+d.assets, "FRESHMAPPER_E2E_RESULTS="+d.program("results"))
	_, err := proc.Command{
		Dir: d.path("hack/e2e"), Env: env, Args: []string{d.program("e2e.test"), "-test.run", pattern, "-test.v"}, Stdout: &said, Stderr: &said,
	}.Run(ctx)
	if err == nil || ctx.Err() != nil {
		return err
	}
	fmt.Fprint(d.stderr, &said)
	if _, none := os.Stat(d.program("results")); none == nil {
		err = errors.Join(err, d.table(ctx))
	}
	return fmt.Errorf("%s did not go as they should: %w", name, err)
}

func (d *demonstration) table(ctx context.Context) error {
	color := os.Getenv("NO_COLOR") == "" && terminal(d.stdout)
	return d.command(ctx, ".", d.program("table"), fmt.Sprintf("-color=%v", color), d.program("results"))
}
