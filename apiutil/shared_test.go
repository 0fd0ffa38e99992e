// SPDX-License-Identifier: Apache-2.0

package apiutil_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// sharedCallers gives each test another token, so that no test finds what another has
// left at the same address.
var sharedCallers atomic.Int64

// A piecework is a program that makes a client and a mapper for each piece of work.
type piecework struct {
	server *fakeapi.Server
	cfg    *rest.Config
	opts   apiutil.DynamicRESTMapperOptions
}

// newPiecework makes a program that works on a server of its own.
func newPiecework(t *testing.T) *piecework {
	server := newServer(fakeapi.Aggregated())
	listener := httptest.NewTLSServer(server)
	t.Cleanup(listener.Close)
	token := time.Duration(sharedCallers.Add(1)).String()
	return &piecework{server: server, cfg: &rest.Config{
		Host: listener.URL, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: -1,
	}}
}

// do does a piece of work and counts what it takes of the server.
func (p *piecework) do(t *testing.T) (full, unchanged int) {
	t.Helper()
	client, err := rest.HTTPClientFor(p.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	m, err := apiutil.NewDynamicRESTMapperWithOptions(p.cfg, client, p.opts)
	if err != nil {
		t.Fatal(err)
	}
	wantServed(t, m, fooKind, otherKind)
	for _, r := range p.server.TakeRequests() {
		switch r.Code {
		case http.StatusOK:
			full++
		case http.StatusNotModified:
			unchanged++
		default:
			t.Errorf("unexpected: %s", r)
		}
	}
	return full, unchanged
}

// Programs that make a mapper for each piece of work, on many servers in turn, read
// each server once.
func TestShortMappersOfManyServers(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) }) // once the servers are closed
	var fleet []*piecework
	for range 30 {
		fleet = append(fleet, newPiecework(t))
	}
	wantRounds(t, fleet)
}

// A program that wraps the transport, for example to add tokens of a cloud, names its
// caller.
func TestShortMappersBehindAWrapper(t *testing.T) {
	p := newPiecework(t)
	p.cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &cloudTokens{next: next} })
	for round := range 3 {
		if full, unchanged := p.do(t); full != 2 || unchanged != 0 {
			t.Errorf("round %d without a name: %d full reads, %d unchanged", round, full, unchanged)
		}
	}
	p.opts.SharedAs = "provider-config/default"
	wantRounds(t, []*piecework{p})
}

// cloudTokens adds a token that is another each time.
type cloudTokens struct {
	next http.RoundTripper
	sent atomic.Int64
}

func (c *cloudTokens) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+time.Duration(c.sent.Add(1)).String())
	return c.next.RoundTrip(req)
}

// wantRounds does six rounds of work, and wants full reads, of /api and /apis, in the first alone.
func wantRounds(t *testing.T, fleet []*piecework) {
	t.Helper()
	for round := range 6 {
		sumFull, sumUnchanged := 0, 0
		for _, p := range fleet {
			full, unchanged := p.do(t)
			sumFull, sumUnchanged = sumFull+full, sumUnchanged+unchanged
		}
		runtime.GC()
		runtime.GC()
		wantFull, wantUnchanged := 0, 2*len(fleet)
		if round == 0 {
			wantFull, wantUnchanged = 2*len(fleet), 0
		}
		if sumFull != wantFull || sumUnchanged != wantUnchanged {
			t.Errorf("round %d: %d full reads, %d unchanged; want %d, %d", round, sumFull, sumUnchanged, wantFull, wantUnchanged)
		}
	}
}

// What is kept beside mappers in use is bounded, and can be switched off.
func TestSetSharedCache(t *testing.T) {
	defer apiutil.SetSharedCache(10*time.Minute, 64<<20)
	for _, off := range []struct {
		keepFor time.Duration
		bytes   int64
	}{{0, 1 << 20}, {time.Minute, 0}, {-1, -1}} {
		apiutil.SetSharedCache(off.keepFor, off.bytes)
		p := newPiecework(t)
		if full, unchanged := p.do(t); full != 2 || unchanged != 0 {
			t.Errorf("with %v: %d full reads, %d unchanged", off, full, unchanged)
		}
		wantForgotten(t, p, func() {}, fmt.Sprintf("with %v what a mapper has read is kept after its end", off))
	}
	set := func() { apiutil.SetSharedCache(time.Minute, 1<<20) }
	set()
	p := newPiecework(t)
	p.do(t)
	runtime.GC()
	if full, unchanged := p.do(t); full != 0 || unchanged != 2 {
		t.Errorf("kept: %d full reads, %d unchanged", full, unchanged)
	}
	wantForgotten(t, p, set, "what was kept before the call is still there")
}

// wantForgotten wants a mapper to start from nothing once those before it are collected.
// Timers that were stopped, of requests, keep them for a while, on a busy machine longer.
// A mapper that comes too early keeps what it finds, so each attempt begins with drop.
func wantForgotten(t *testing.T, p *piecework, drop func(), otherwise string) {
	t.Helper()
	for range 10 {
		drop()
		for range 15 {
			runtime.GC()
			time.Sleep(20 * time.Millisecond)
		}
		if full, _ := p.do(t); full == 2 {
			return
		}
	}
	t.Error(otherwise)
}
