// SPDX-License-Identifier: Apache-2.0

// Adopters forks other people's operators, unmodified and from the Go module proxy,
// and compares them with themselves on stock: their own tests, by name, and with
// -live two of them at work on a real API server while CRDs come late and change.
//
//	go run ./adopters [-only REGEXP] [-packages N] [-servers] [-timeout 10m] [-keep DIR]
//	go run ./adopters -live [-only REGEXP]
//
// What was found is kept in results/adopters.json, an entry for each operator, and
// docs/adopters.md is written from all of it: a run of a few leaves the others alone.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/freshmapper/freshmapper/hack/control"
	"github.com/freshmapper/freshmapper/hack/dev/proc"
)

const root = "../.."

// operators are the modules, as they are published.
var operators = []operator{
	{Name: "JobSet", Module: "sigs.k8s.io/jobset", Version: "v0.8.1", Home: "https://github.com/kubernetes-sigs/jobset"},
	{Name: "LeaderWorkerSet", Module: "sigs.k8s.io/lws", Version: "v0.7.0", Home: "https://github.com/kubernetes-sigs/lws"},
	{Name: "RabbitMQ cluster operator", Module: "github.com/rabbitmq/cluster-operator/v2", Version: "v2.16.0", Home: "https://github.com/rabbitmq/cluster-operator"},
	{Name: "Crossplane runtime", Module: "github.com/crossplane/crossplane-runtime/v2", Version: "v2.1.0", Home: "https://github.com/crossplane/crossplane-runtime"},
	{Name: "Karpenter", Module: "sigs.k8s.io/karpenter", Version: "v1.14.0", Home: "https://github.com/kubernetes-sigs/karpenter"},
	{Name: "CloudNativePG", Module: "github.com/cloudnative-pg/cloudnative-pg", Version: "v1.28.0", Home: "https://github.com/cloudnative-pg/cloudnative-pg"},
	{Name: "Cluster API", Module: "sigs.k8s.io/cluster-api", Version: "v1.13.6", Home: "https://github.com/kubernetes-sigs/cluster-api"},
	{Name: "kro", Module: "github.com/kubernetes-sigs/kro", Version: "v0.9.4", Home: "https://github.com/kubernetes-sigs/kro"},
	{Name: "Flux kustomize-controller", Module: "github.com/fluxcd/kustomize-controller", Version: "v1.7.3", Home: "https://github.com/fluxcd/kustomize-controller"},
}

type options struct {
	only          string
	packages      int
	timeout       time.Duration
	keep          string
	servers, live bool
	results, page string
}

func main() {
	var o options
	flag.StringVar(&o.only, "only", ".", "which operators, a regular expression of module paths")
	flag.IntVar(&o.packages, "packages", 12, "how many packages of each are tested at most")
	flag.BoolVar(&o.servers, "servers", false, "run tests that start an API server, too, and those first")
	flag.DurationVar(&o.timeout, "timeout", 10*time.Minute, "how long the tests of one package may take")
	flag.StringVar(&o.keep, "keep", "", "folder to work in and to leave as it is; default: a temporary one")
	flag.BoolVar(&o.live, "live", false, "run operators on a real API server, in place of their tests")
	out := flag.String("o", "results", "folder that keeps what is known of each operator")
	flag.StringVar(&o.page, "page", filepath.Join(root, "docs/adopters.md"), "the page to write")
	flag.Parse()
	o.results = filepath.Join(*out, "adopters.json")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(proc.Nice(ctx), o); err != nil {
		fmt.Fprintln(os.Stderr, "adopters:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	only, err := regexp.Compile(o.only)
	if err != nil {
		return err
	}
	assets, err := control.Assets()
	if err != nil {
		return err
	}
	work, done, err := workIn(o.keep)
	if err != nil {
		return err
	}
	defer done()
	failed := []error{o.note()} // the page may have another form than the last run gave it
	for _, op := range operators {
		if !only.MatchString(op.Module) {
			continue
		}
		if err := op.prove(ctx, o, work, assets); err != nil {
			failed = append(failed, fmt.Errorf("%s %s: %w", op.Module, op.Version, err))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return errors.Join(failed...)
}

// prove does one operator, and writes what is known then.
func (op operator) prove(ctx context.Context, o options, work, assets string) error {
	if o.live && scenarios[op.Module] == nil {
		return nil
	}
	dir := filepath.Join(work, filepath.Base(filepath.Dir(op.Module))+"-"+filepath.Base(op.Module))
	if o.keep == "" {
		defer os.RemoveAll(dir) //nolint:errcheck // the disk is small; done tries again
	}
	t, err := op.trees(ctx, dir)
	if err != nil {
		return err
	}
	r := &result{Operator: op}
	if o.live {
		r.Live, err = t.live(ctx, scenarios[op.Module], assets)
	} else {
		err = t.compare(ctx, r, o, assets)
	}
	if err != nil {
		return err
	}
	if err := o.note(r); err != nil {
		return err
	}
	return r.verdict()
}

// note adds to what is known, and writes the page. It reads now and not before: another
// run may have written meanwhile.
func (o options) note(found ...*result) error {
	known, err := readResults(o.results)
	if err != nil {
		return err
	}
	for _, r := range found {
		known.put(r)
	}
	return known.write(o.results, o.page)
}

// workIn makes the folder to work in, a temporary one unless it is to be kept.
func workIn(keep string) (dir string, done func(), err error) {
	if keep != "" {
		dir, err = filepath.Abs(keep)
		return dir, func() {}, errors.Join(err, os.MkdirAll(keep, 0o755))
	}
	dir, err = os.MkdirTemp("", "adopters")
	return dir, func() { _ = os.RemoveAll(dir) }, err
}
