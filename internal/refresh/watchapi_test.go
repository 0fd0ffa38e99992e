// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package refresh

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"go.uber.org/goleak"
	clientrest "k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/internal/discovery"
)

// An answer is what a server sends to a list or a watch.
type answer struct {
	err   error  // no answer at all
	code  int    // 0: 200
	body  string // what is sent,
	end   error  // and what comes then; nil: nothing, for ever
	delay time.Duration
	lasts bool // the end comes when it was asked for
}

// A watchAPI answers lists with version 5, and watches with one answer after the
// other; the last one for ever.
type watchAPI struct {
	lists   func(n int) answer // nil: all is well
	watches []answer

	mu       sync.Mutex
	requests []request
}

type request struct {
	what  string // "list", or "watch from 5"
	query url.Values
	at    time.Time
}

func (a *watchAPI) RoundTrip(req *http.Request) (*http.Response, error) {
	query, what := req.URL.Query(), "list"
	if query.Get("watch") == "true" {
		what = "watch from " + query.Get("resourceVersion")
	}
	a.mu.Lock()
	lists, watches := a.counts()
	a.requests = append(a.requests, request{what, query, time.Now()})
	a.mu.Unlock()
	if what != "list" {
		return a.watches[min(watches, len(a.watches)-1)].response(req)
	}
	if a.lists != nil {
		return a.lists(lists).response(req)
	}
	return listed().response(req)
}

func listed() answer {
	return answer{body: `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"5"},"items":[]}`, end: io.EOF}
}

// counts returns how many lists and watches there were. The caller holds the lock.
func (a *watchAPI) counts() (lists, watches int) {
	for _, r := range a.requests {
		if r.what == "list" {
			lists++
		}
	}
	return lists, len(a.requests) - lists
}

func (a answer) response(req *http.Request) (*http.Response, error) {
	if a.err != nil {
		return nil, a.err
	}
	select {
	case <-time.After(a.delay):
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	if a.code == 0 {
		a.code = http.StatusOK
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if a.code == http.StatusTooManyRequests {
		header.Set("Retry-After", "1") // which client-go would obey by itself
	}
	return &http.Response{
		StatusCode: a.code, Request: req, ContentLength: -1, Header: header,
		Body: &body{ctx: req.Context(), Reader: strings.NewReader(a.body), end: a.end, lasting: a.lasting(req)},
	}, nil
}

// lasting returns how long it takes until the end comes.
func (a answer) lasting(req *http.Request) time.Duration {
	seconds, _ := strconv.Atoi(req.URL.Query().Get("timeoutSeconds"))
	if !a.lasts {
		seconds = 0
	}
	return time.Duration(seconds) * time.Second
}

type body struct {
	io.Reader
	ctx     context.Context
	end     error
	lasting time.Duration
}

func (b *body) Read(p []byte) (int, error) {
	if n, _ := b.Reader.Read(p); n > 0 {
		return n, nil
	}
	if b.end == nil {
		<-b.ctx.Done()
		return 0, b.ctx.Err()
	}
	time.Sleep(b.lasting)
	b.lasting = 0
	return 0, b.end
}

func (*body) Close() error { return nil }

func (a *watchAPI) count() (lists, watches int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.counts()
}

func (a *watchAPI) seen() []request {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.requests)
}

// asked returns what was asked for.
func (a *watchAPI) asked() string {
	var all []string
	for _, r := range a.seen() {
		all = append(all, r.what)
	}
	return strings.Join(all, ", ")
}

// A watcherTest is a watcher that runs.
type watcherTest struct {
	*Watcher
	api  *watchAPI
	bell *Doorbell

	mu    sync.Mutex
	lines []string
}

func (w *watcherTest) log(_, args string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, args)
}

func (w *watcherTest) logged() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.lines)
}

// rings returns how the bell was rung since the last time.
func (w *watcherTest) rings() string {
	rung := len(w.bell.rung) > 0
	switch event := w.bell.drain(); {
	case event:
		return "an event"
	case rung:
		return "plainly"
	}
	return "not"
}

// watcherOf makes a watcher of api.
func watcherOf(t *testing.T, api http.RoundTripper, log func(func(logr.Logger))) *Watcher {
	t.Helper()
	cfg, httpClient := &clientrest.Config{Host: "http://in-memory", QPS: -1}, &http.Client{Transport: api, Timeout: time.Second}
	client, err := discovery.NewClient(cfg, httpClient, discovery.Options{RequestTimeout: 30 * time.Second, MaxResponseBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	watches, err := client.WatchClient(cfg, httpClient)
	if err != nil {
		t.Fatal(err)
	}
	return NewWatchers(watches, log, func() {})[0]
}

// whileWatching runs a watcher in a bubble while test looks.
func whileWatching(t *testing.T, api *watchAPI, test func(t *testing.T, w *watcherTest)) {
	t.Helper()
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	synctest.Test(t, func(t *testing.T) {
		w := &watcherTest{api: api, bell: NewDoorbell()}
		w.Watcher = watcherOf(t, api, func(write func(logr.Logger)) { write(funcr.New(w.log, funcr.Options{})) })
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.run(ctx, w.bell)
		}()
		defer func() { // even if test gives up
			start := time.Now()
			cancel()
			<-ended
			if took := time.Since(start); took > 0 || w.Watching() {
				t.Errorf("ended after %v, watching: %v", took, w.Watching())
			}
		}()
		synctest.Wait()
		test(t, w)
	})
}

// unlogged writes nothing.
func unlogged(func(logr.Logger)) {}
