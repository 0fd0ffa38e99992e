// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package refresh

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"go.uber.org/goleak"
	clientrest "k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/internal/discovery"
)

const (
	added    = `{"type":"ADDED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"foo","resourceVersion":"6"}}}` + "\n"
	bookmark = `{"type":"BOOKMARK","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"9"}}}` + "\n"
	list     = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1",`
	expired  = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410,"reason":"Expired"}}` + "\n"
	broken   = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":500,"message":"a secret"}}` + "\n"
)

// The answers to lists and watches decide what is asked next, whether the bell rings, and
// whether a line is logged. Nothing is missed between two watches.
func TestWatcherAsksNext(t *testing.T) {
	quiet := answer{body: bookmark, end: io.EOF}
	huge := `{"type":"ADDED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7","annotations":{"a":"` + strings.Repeat("x", 3<<20) + `"}}}}`
	for name, tt := range map[string]struct {
		lists, watches []answer
		asks           string
		rings          string
		logs           string // "" for nothing
	}{
		"in order":                      {nil, []answer{{body: added, end: io.EOF}, {}}, "list, watch from 5, watch from 6", "an event", ""},
		"after a bookmark":              {nil, []answer{quiet, {}}, "list, watch from 5, watch from 9", "plainly", ""},
		"cut":                           {nil, []answer{{body: added, end: syscall.ECONNRESET}, {}}, "list, watch from 5, watch from 6", "an event", ""},
		"cut in an event":               {nil, []answer{{body: added + bookmark[:20], end: io.EOF}, {}}, "list, watch from 5, watch from 6", "an event", ""},
		"expired":                       {nil, []answer{quiet, {body: expired, end: io.EOF}, {}}, "list, watch from 5, watch from 9, list, watch from 5", "an event", ""},
		"refused as expired":            {nil, []answer{quiet, {code: 410, end: io.EOF}, {}}, "list, watch from 5, watch from 9, list, watch from 5", "an event", ""},
		"expired though just listed":    {nil, []answer{{body: expired, end: io.EOF}, {}}, "list, watch from 5, list, watch from 5", "an event", "watch of /apis/apiextensions.k8s.io/v1/customresourcedefinitions failed: the server ended the watch with error 410 Gone"},
		"refused though just listed":    {nil, []answer{{code: 410, end: io.EOF}, {}}, "list, watch from 5, list, watch from 5", "plainly", "watch of /apis/apiextensions.k8s.io/v1/customresourcedefinitions failed: the server answered 410 Gone"},
		"list refused as expired":       {[]answer{{code: 410, end: io.EOF}}, []answer{{}}, "list, list, watch from 5", "plainly", "list of /apis/apiextensions.k8s.io/v1/customresourcedefinitions failed: the server answered 410 Gone"},
		"an error":                      {nil, []answer{{body: bookmark + broken}, {}}, "list, watch from 5, list, watch from 5", "an event", "500 Internal"},
		"refused":                       {nil, []answer{quiet, {code: 500, end: io.EOF}, {}}, "list, watch from 5, watch from 9, list, watch from 5", "an event", "trying again"},
		"no connection":                 {nil, []answer{quiet, {err: syscall.ECONNREFUSED}, {}}, "list, watch from 5, watch from 9, list, watch from 5", "an event", "refused"},
		"a page":                        {nil, []answer{{body: "<html>", end: io.EOF}, {}}, "list, watch from 5, list, watch from 5", "an event", "not a watch event"},
		"an error without a code":       {nil, []answer{{body: `{"type":"ERROR","object":{}}`}, {}}, "list, watch from 5, list, watch from 5", "an event", "with error 0"},
		"an error without an object":    {nil, []answer{{body: `{"type":"ERROR"}`}, {}}, "list, watch from 5, list, watch from 5", "an event", "with error 0"},
		"a type that is a list":         {nil, []answer{{body: `{"type":["a secret"]}`}, {}}, "list, watch from 5, list, watch from 5", "an event", "not a watch event"},
		"a success that is not 200":     {nil, []answer{{code: 203, body: added, end: io.EOF}, {}}, "list, watch from 5, watch from 6", "an event", ""},
		"a success without content":     {nil, []answer{{code: 204, body: added, end: io.EOF}, {}}, "list, watch from 5, watch from 6", "an event", ""},
		"no event":                      {nil, []answer{{body: "{}"}, {}}, "list, watch from 5, list, watch from 5", "an event", "not a watch event"},
		"an event of an unknown type":   {nil, []answer{{body: `{"type":"a secret"}`}, {}}, "list, watch from 5, list, watch from 5", "an event", "not a watch event"},
		"a huge event":                  {nil, []answer{{body: huge}, {}}, "list, watch from 5, list, watch from 5", "an event", "limit of 2097152 bytes"},
		"blanks":                        {nil, []answer{{body: strings.Repeat(" ", 3<<20)}, {}}, "list, watch from 5, list, watch from 5", "an event", "limit of 2097152 bytes"},
		"a huge version":                {nil, []answer{{body: strings.Replace(added, "6", strings.Repeat("6", 300), 1)}, {}}, "list, watch from 5, list, watch from 5", "an event", "more than 256 bytes"},
		"an event without version":      {nil, []answer{{body: strings.Replace(added, `"6"`, `""`, 1), end: io.EOF}, {}}, "list, watch from 5, list, watch from 5", "an event", "no resourceVersion"},
		"no answer to the watch":        {nil, []answer{{delay: time.Hour}, {}}, "list, watch from 5, list, watch from 5", "plainly", "no complete answer within 30s"},
		"a version with odd signs":      {nil, []answer{{body: strings.Replace(added, "6", "a&b=c ", 1), end: io.EOF}, {}}, "list, watch from 5, watch from a&b=c ", "an event", ""},
		"a nested event":                {nil, []answer{{body: `{"type":` + strings.Repeat("[", 500<<10)}, {}}, "list, watch from 5, list, watch from 5", "an event", "not a watch event"},
		"a deleted object, with spaces": {nil, []answer{{body: " {\n \"type\" : \"DELETED\" , \"object\" : { \"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\" : {\"resourceVersion\":\"8\"} } }", end: io.EOF}, {}}, "list, watch from 5, watch from 8", "an event", ""},
		"list refused":                  {[]answer{{err: syscall.ECONNREFUSED}}, []answer{{}}, "list, list, watch from 5", "plainly", "refused"},
		"list forbidden":                {[]answer{{code: 403, end: io.EOF}}, []answer{{}}, "list, list, watch from 5", "plainly", "ClusterRole"},
		"list not served":               {[]answer{{code: 404, body: "404 page not found", end: io.EOF}}, []answer{{}}, "list, list, watch from 5", "plainly", "does not serve"},
		"list in vain":                  {[]answer{{delay: time.Hour}}, []answer{{}}, "list, list, watch from 5", "plainly", "deadline exceeded"},
		"list is a page":                {[]answer{{body: "<html>", end: io.EOF}}, []answer{{}}, "list, list, watch from 5", "plainly", "not a list"},
		"list without version":          {[]answer{{body: list + `"metadata":{},"items":[]}`, end: io.EOF}}, []answer{{}}, "list, list, watch from 5", "plainly", "no resourceVersion"},
		"list version is a number":      {[]answer{{body: list + `"metadata":{"resourceVersion":5}}`, end: io.EOF}}, []answer{{}}, "list, list, watch from 5", "plainly", "cannot unmarshal"},
		"list with huge version":        {[]answer{{body: list + `"metadata":{"resourceVersion":"` + strings.Repeat("5", 300) + `"}}`, end: io.EOF}}, []answer{{}}, "list, list, watch from 5", "plainly", "more than 256 bytes"},
		"list nested":                   {[]answer{{body: list + `"items":` + strings.Repeat("[", 20_000), end: io.EOF}}, []answer{{}}, "list, list, watch from 5", "plainly", "depth"},
		"list without end":              {[]answer{{body: list + strings.Repeat(" ", 3<<20)}}, []answer{{}}, "list, list, watch from 5", "plainly", "limit of 2097152 bytes"},
		"list cut":                      {[]answer{{body: list + `"items":[{}`, end: io.EOF}}, []answer{{}}, "list, list, watch from 5", "plainly", "unexpected end"},
		"refused without end":           {nil, []answer{{code: 500, body: strings.Repeat(" ", 3<<20)}, {}}, "list, watch from 5, list, watch from 5", "plainly", "limit of 2097152 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			whileWatching(t, &watchAPI{lists: tt.lists, watches: tt.watches}, func(t *testing.T, w *watcherTest) {
				time.Sleep(40 * time.Second)
				if asks := w.api.asked(); asks != tt.asks || !w.Watching() {
					t.Errorf("asked for %s; want %s; watching: %v", asks, tt.asks, w.Watching())
				}
				if rings := w.rings(); rings != tt.rings {
					t.Errorf("rung: %s; want %s", rings, tt.rings)
				}
				lines := w.logged()
				if tt.logs == "" && len(lines) > 0 || tt.logs != "" && (len(lines) != 1 || !strings.Contains(lines[0], tt.logs)) {
					t.Errorf("logged %q; want %q", lines, tt.logs)
				}
				if strings.Contains(strings.Join(lines, ""), "secret") {
					t.Errorf("what the server says of an error is shown: %q", lines)
				}
			})
		})
	}
}

// However a watch fails, it is asked for less and less often, down to a few times
// a minute, and one line says so. If each has to begin with a list and a refresh, although
// it opens, that is once or twice a minute.
func TestWatcherIsNoStorm(t *testing.T) {
	for name, tt := range map[string]struct {
		watch       answer
		least, most int
	}{
		"closed at once":        {answer{end: io.EOF}, 20, 50},
		"closed after an event": {answer{body: added, end: io.EOF}, 20, 50},
		"expired":               {answer{body: expired}, 12, 26},
		"broken":                {answer{body: broken}, 12, 26},
		"refused":               {answer{err: syscall.ECONNREFUSED}, 20, 50},
		"refused, with a wish":  {answer{code: 429, end: io.EOF}, 20, 50},
	} {
		t.Run(name, func(t *testing.T) {
			api := &watchAPI{watches: []answer{tt.watch}}
			whileWatching(t, api, func(t *testing.T, w *watcherTest) {
				time.Sleep(10 * time.Second)
				if _, n := api.count(); n < 3 || n > 6 {
					t.Errorf("%d watches in 10 seconds", n)
				}
				time.Sleep(10 * time.Minute)
				lists, watches := api.count()
				w.rings()
				time.Sleep(time.Minute)
				if rings := w.rings(); rings == "an event" && lists > 1 {
					t.Error("a list rings as for an event: its echoes cost more requests than it")
				}
				if watches < tt.least || watches > tt.most || lists > watches+1 {
					t.Error("that is too few or too many")
				}
				if w.Watching() {
					t.Error("watching between two watches")
				}
				if lines := w.logged(); len(lines) != 1 {
					t.Errorf("logged %q", lines)
				}
			})
		})
	}
}

// A connection that has died without a word is noticed, and nothing is lost.
func TestWatcherOfSilentServer(t *testing.T) {
	api := &watchAPI{watches: []answer{{body: added}, {}}}
	whileWatching(t, api, func(t *testing.T, w *watcherTest) {
		time.Sleep(10*time.Minute + 32*time.Second)
		if asks := api.asked(); asks != "list, watch from 5, watch from 6" {
			t.Errorf("asked for %s", asks)
		}
		if seen := api.seen(); seen[2].at.Sub(seen[1].at) < 5*time.Minute {
			t.Errorf("given up after %v", seen[2].at.Sub(seen[1].at))
		}
		time.Sleep(24 * time.Hour)
		if lists, watches := api.count(); watches < 130 || watches > 290 || lists != 1 {
			t.Errorf("%d watches and %d lists in a day", watches, lists)
		}
		if lines := w.logged(); len(lines) != 0 {
			t.Errorf("logged %q", lines)
		}
	})
}

// A server ends a watch when it was asked to; the next begins at once.
func TestWatcherGoesOnAtOnce(t *testing.T) {
	api := &watchAPI{watches: []answer{{body: bookmark, end: io.EOF, lasts: true}, {}}}
	whileWatching(t, api, func(t *testing.T, w *watcherTest) {
		time.Sleep(10 * time.Minute)
		seen := api.seen()
		if len(seen) != 3 || seen[2].what != "watch from 9" {
			t.Fatalf("asked for %+v", seen)
		}
		asked, _ := strconv.Atoi(seen[1].query.Get("timeoutSeconds"))
		if took := seen[2].at.Sub(seen[1].at); took.Round(time.Second) != time.Duration(asked)*time.Second || asked < 300 || asked > 600 {
			t.Errorf("asked for %d seconds, and again after %v", asked, took)
		}
	})
}

// An answer is what a server sends to a list or a watch.
type answer struct {
	err   error  // no answer at all
	code  int    // 0: 200
	body  string // what is sent,
	end   error  // and what comes then; nil: nothing, for ever
	delay time.Duration
	lasts bool // the end comes when it was asked for
}

// A watchAPI answers lists with version 5 after some other answers, and watches with one
// answer after the other, the last one for ever.
type watchAPI struct {
	lists   []answer // before all is well
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
	if query.Get("limit") != "1" && (query.Get("allowWatchBookmarks") != "true" || query.Get("timeoutSeconds") == "") {
		return nil, errors.New("the request asks for too much")
	}
	lists, watches := a.count()
	a.mu.Lock()
	a.requests = append(a.requests, request{what, query, time.Now()})
	a.mu.Unlock()
	if what != "list" {
		return a.watches[min(watches, len(a.watches)-1)].response(req)
	}
	if lists < len(a.lists) {
		return a.lists[lists].response(req)
	}
	return answer{body: list + `"metadata":{"resourceVersion":"5"},"items":[]}`, end: io.EOF}.response(req)
}

// count returns how many lists and watches there were.
func (a *watchAPI) count() (lists, watches int) {
	all := a.seen()
	for _, r := range all {
		if r.what == "list" {
			lists++
		}
	}
	return lists, len(all) - lists
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
		Body: &body{Reader: strings.NewReader(a.body), req: req, end: a.end, lasts: a.lasts},
	}, nil
}

type body struct {
	io.Reader
	req   *http.Request
	end   error
	lasts bool
}

func (b *body) Read(p []byte) (int, error) {
	if n, _ := b.Reader.Read(p); n > 0 {
		return n, nil
	}
	if b.end == nil {
		<-b.req.Context().Done()
		return 0, b.req.Context().Err()
	}
	if b.lasts {
		seconds, _ := strconv.Atoi(b.req.URL.Query().Get("timeoutSeconds"))
		time.Sleep(time.Duration(seconds) * time.Second)
	}
	return 0, b.end
}

func (*body) Close() error { return nil }

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
