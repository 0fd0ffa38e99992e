// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/apiutil/fleet"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A fleetStage is a fleet in a story, with its mappers and engagements by name.
type fleetStage struct {
	*fleet.Fleet
	server  *fakeapi.Server // for its mappers
	mappers map[string]*apiutil.DynamicRESTMapper
	leave   map[string]func()
	stop    func() error

	mu      sync.Mutex // guards mappers, too
	unheard []string   // what has been sent through a transport that is deaf, until hear is called
	hear    context.CancelFunc
	heard   context.Context
}

func (s *storyStage) newFleet(args []string) (err error) {
	s.fleet = &fleetStage{
		Fleet:   fleet.New(s.options),
		server:  s.server,
		mappers: map[string]*apiutil.DynamicRESTMapper{},
		leave:   map[string]func(){},
	}
	s.fleet.heard, s.fleet.hear = context.WithCancel(context.Background())
	for _, arg := range args {
		switch name, value, _ := strings.Cut(arg, "="); name {
		case "IdleTimeout":
			s.fleet.IdleTimeout, err = time.ParseDuration(value)
		case "MaxMappers":
			s.fleet.MaxMappers, err = strconv.Atoi(value)
		}
	}
	return err
}

// deaf is a transport that does not give up with the context of a request.
func (f *fleetStage) deaf(req *http.Request) (*http.Response, error) {
	f.mu.Lock()
	f.unheard = append(f.unheard, req.URL.Path)
	f.mu.Unlock()
	<-f.heard.Done()
	return f.server.Client().Transport.RoundTrip(req)
}

// forKey is For, and reports whether the mapper is the one that the key had. It must find a kind.
func (f *fleetStage) forKey(t *testing.T, key string) string {
	f.mu.Lock()
	m := must(f.For(key, f.server.Config(), f.server.Client()))
	known := m == f.mappers[key]
	f.mappers[key] = m
	f.mu.Unlock()
	wantServed(t, m, fooKind)
	return map[bool]string{true: "known", false: "new"}[known]
}

// inFleet does the commands about fleets. The key "" is written as "-".
func (s *storyStage) inFleet(command string, args []string) (output string, err error) {
	f, key := s.fleet, strings.Trim(strings.Join(args, " "), "-")
	switch command {
	case "use-of":
		err = lookUp(f.mappers[key], fooKind)
	case "engage":
		m := f.mappers[args[2]]
		if m == nil && args[2] == "deaf" {
			m = must(f.For("", f.server.Config(), &http.Client{Transport: through(f.deaf)}))
		} else if m == nil {
			m = must(f.Provider("")(f.server.Config(), f.server.Client())).(*apiutil.DynamicRESTMapper)
		}
		f.mappers[args[2]] = m
		ctx, cancel := context.WithCancel(context.Background())
		f.leave[args[0]] = cancel
		if f.Engage(ctx, strings.Trim(args[1], "-"), m) != nil {
			return "failed", nil
		}
	case "leave":
		f.leave[key]()
	case "expel":
		f.Remove(key)
	case "mapper":
		m, _ := f.For(key, nil, nil)
		for name, known := range f.mappers {
			if known == m {
				return name, nil
			}
		}
	case "keys", "running":
		output = strings.Join(slices.Sorted(maps.Keys(f.Status())), ", ")
		if output = cmp.Or(output, map[bool]string{true: "none", false: "-"}[len(f.Status()) == 0]); command == "running" {
			f.server.TakeRequests()
			time.Sleep(10 * time.Minute)
			output += fmt.Sprintf("; %d running", requestsByPath(f.server)["/apis"]/10)
		}
	case "start-fleet":
		ctx, cancel := context.WithCancel(context.Background())
		returned := make(chan error)
		go func() { returned <- f.Start(ctx) }()
		f.stop = func() error { cancel(); return <-returned }
	case "stop-fleet":
		err = f.stop()
	case "unheard":
		output = strings.Join(slices.Sorted(slices.Values(f.unheard)), "; ")
	case "hear":
		f.hear()
	case "fleet-health":
		var failed []string // without since when, which chance has a part in
		for line := range strings.Lines(answered("fine", f.Healthz(nil))) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " since")
			failed = append(failed, line)
		}
		output = strings.Join(failed, "; ")
	case "another-server":
		s.server = newServer(s.forms)
		f.server = s.server
	case "fleet-reset-on-no-match":
		output = map[bool]string{true: "reset", false: "not reset"}[f.ResetOnNoMatch(s.err)]
	}
	return output, err
}
