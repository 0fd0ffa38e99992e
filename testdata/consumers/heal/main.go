// SPDX-License-Identifier: Apache-2.0

// Command heal works with kinds that you name at run time, in the version that the API
// server prefers. The kinds need not be served yet.
//
//	heal manager [flags]   runs a controller for annotated ConfigMaps
//	heal report [flags]    looks up the kinds that it reads from standard input
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"example.com/consumers/frame"
)

const usage = "usage: heal manager|report [flags] (-h after either explains)"

func main() { frame.Main("heal", run) }

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	var opts options
	addTo, ok := map[string]func(*flag.FlagSet){"manager": opts.addTo, "report": func(*flag.FlagSet) {}}[args[0]]
	if !ok {
		return fmt.Errorf("unknown command %q; %s", args[0], usage)
	}
	if err := frame.Parse("heal "+args[0], args[1:], addTo); err != nil {
		return err
	}
	cfg, err := config.GetConfig()
	if err != nil {
		return err
	}
	requests := &frame.Requests{Counts: isDiscovery}
	cfg.Wrap(requests.Count)
	if args[0] == "report" {
		return runReport(ctx, cfg, requests)
	}
	return runManager(ctx, cfg, requests, opts)
}

type options struct {
	frame.Manager
	retry time.Duration
}

func (o *options) addTo(flags *flag.FlagSet) {
	o.AddTo(flags)
	flags.StringVar(&o.Namespace, "namespace", "", "watch ConfigMaps in this namespace (default all)")
	flags.DurationVar(&o.retry, "retry", time.Second, "look again for a kind that is not served after this time")
}

func runManager(ctx context.Context, cfg *rest.Config, requests *frame.Requests, opts options) error {
	mgr, err := ctrl.NewManager(cfg, opts.Options("heal"))
	if err != nil {
		return err
	}
	r := &reconciler{client: mgr.GetClient(), mapper: mgr.GetRESTMapper(), requests: requests, retry: opts.retry}
	if err := r.setup(mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

const commands = "want \"lookup KIND.GROUP [VERSION...]\" or \"reset\""

// report is the answer to one command.
type report struct {
	Command           string  `json:"command"`
	OK                bool    `json:"ok"`
	GroupVersion      string  `json:"groupVersion,omitempty"`
	Resource          string  `json:"resource,omitempty"`
	Scope             string  `json:"scope,omitempty"`
	NoMatch           bool    `json:"noMatch,omitempty"` // the server does not serve the kind
	Error             string  `json:"error,omitempty"`
	DiscoveryRequests int64   `json:"discoveryRequests"` // made by this command
	Milliseconds      float64 `json:"milliseconds"`
}

// reporter has one mapper as long as it runs, like a manager.
type reporter struct {
	mapper   meta.RESTMapper
	requests *frame.Requests
}

func runReport(ctx context.Context, cfg *rest.Config, requests *frame.Requests) error {
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return err
	}
	mapper, err := apiutil.NewDynamicRESTMapper(cfg, httpClient)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- (&reporter{mapper: mapper, requests: requests}).run(os.Stdin, os.Stdout) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// run reads one command a line, and answers each with a line of JSON. It ends at a
// command that it does not know.
func (r *reporter) run(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	answers := json.NewEncoder(out)
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 {
			continue
		}
		answer, err := r.answer(words)
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if err := answers.Encode(answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (r *reporter) answer(words []string) (*report, error) {
	start, before := time.Now(), r.requests.Made()
	answer := &report{Command: strings.Join(words, " ")}
	var err error
	switch {
	case words[0] == "lookup" && len(words) >= 2:
		err = r.lookup(answer, schema.ParseGroupKind(words[1]), words[2:])
	case words[0] == "reset" && len(words) == 1:
		err = r.reset()
	default:
		return nil, fmt.Errorf("do not understand %q, %s", answer.Command, commands)
	}
	answer.OK, answer.NoMatch = err == nil, meta.IsNoMatchError(err)
	if err != nil {
		answer.Error = err.Error()
	}
	answer.DiscoveryRequests = r.requests.Made() - before
	answer.Milliseconds = float64(time.Since(start).Microseconds()) / 1000
	return answer, nil
}

// lookup looks up a kind in one of the versions, or, if none is given, in the version
// that the server prefers.
func (r *reporter) lookup(answer *report, gk schema.GroupKind, versions []string) error {
	mapping, err := r.mapper.RESTMapping(gk, versions...)
	if err != nil {
		return err
	}
	answer.GroupVersion = mapping.GroupVersionKind.GroupVersion().String()
	answer.Resource = mapping.Resource.Resource
	answer.Scope = string(mapping.Scope.Name())
	return nil
}

// reset resets the mapper. It returns an error if the mapper cannot be reset, because
// MaybeResetRESTMapper returns none.
func (r *reporter) reset() error {
	meta.MaybeResetRESTMapper(r.mapper)
	if _, ok := r.mapper.(meta.ResettableRESTMapper); !ok {
		return errors.New("the mapper cannot be reset: MaybeResetRESTMapper did nothing")
	}
	return nil
}

// isDiscovery reports whether a request asks what a server serves, at /api, /api/v1, /apis,
// /apis/<group> or /apis/<group>/<version>: longer paths are of resources.
func isDiscovery(req *http.Request) bool {
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	return parts[0] == "api" && len(parts) <= 2 || parts[0] == "apis" && len(parts) <= 3
}
