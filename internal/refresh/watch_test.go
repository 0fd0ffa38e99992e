// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package refresh

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"runtime"
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
	echo     = `{"kind":"Status","message":"no such token: a-secret-that-was-sent"}`
	crds     = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
)

// Whatever answers the first list or the first watches get, the next watch begins where the
// last one ended. If that place is lost it begins with a list, and rings the bell. A line is
// logged if something is wrong.
func TestWatcherTriesAgain(t *testing.T) {
	ends := func(body string) answer { return answer{body: body, end: io.EOF} }
	const resumed, anew = "list, watch from 5, watch from 6", "list, watch from 5, list, watch from 5"
	const moved, movedAnew = "list, watch from 5, watch from 9, watch from 6", "list, watch from 5, watch from 9, list, watch from 5"
	for name, tt := range map[string]struct {
		answer answer // to the first watch, to the second after a bookmark, or to the first list
		asks   string
		logs   string // "" for nothing
	}{
		"ended after an event":       {ends(added), resumed, ""},
		"cut":                        {answer{body: added, end: syscall.ECONNRESET}, resumed, ""},
		"cut in an event":            {ends(added + bookmark[:20]), resumed, ""},
		"not 200":                    {answer{code: 203, body: added, end: io.EOF}, resumed, ""},
		"no content":                 {answer{code: 204, body: added, end: io.EOF}, resumed, ""},
		"a deletion, with spaces":    {ends(" {\n \"type\" : \"DELETED\" , \"object\" : { \"metadata\" : {\"resourceVersion\":\"6\"} } }"), resumed, ""},
		"a version with odd signs":   {ends(strings.Replace(added, "6", "a&b=c ", 1)), "list, watch from 5, watch from a&b=c ", ""},
		"resumed":                    {ends(added), moved, ""},
		"resumed and expired":        {ends(expired), movedAnew, ""},
		"resumed and refused so":     {answer{code: 410, end: io.EOF}, movedAnew, ""},
		"resumed and refused":        {answer{code: 500, end: io.EOF}, movedAnew, "trying again"},
		"resumed, no connection":     {answer{err: syscall.ECONNREFUSED}, movedAnew, "refused"},
		"expired":                    {ends(expired), anew, "watch of " + crds + " failed: the server ended the watch with error 410 Gone"},
		"refused as expired":         {answer{code: 410, end: io.EOF}, anew, "watch of " + crds + " failed: the server answered 410 Gone"},
		"an error":                   {answer{body: added + broken}, anew, "500 Internal"},
		"refused without end":        {answer{code: 500, body: strings.Repeat(" ", 3<<20)}, anew, "limit of 2097152 bytes"},
		"no answer":                  {answer{delay: time.Hour}, anew, "no complete answer within 30s"},
		"a page":                     {ends("<html>"), anew, "not a watch event"},
		"no event":                   {ends("{}"), anew, "not a watch event"},
		"a type that is a list":      {ends(`{"type":["a secret"]}`), anew, "not a watch event"},
		"an unknown type":            {ends(`{"type":"a secret"}`), anew, "not a watch event"},
		"a nested event":             {answer{body: `{"type":` + strings.Repeat("[", 500<<10)}, anew, "not a watch event"},
		"an error without a code":    {ends(`{"type":"ERROR","object":{}}`), anew, "with error 0"},
		"an error without an object": {ends(`{"type":"ERROR"}`), anew, "with error 0"},
		"a huge event":               {answer{body: strings.Replace(added, "foo", strings.Repeat("x", 3<<20), 1)}, anew, "limit of 2097152 bytes"},
		"blanks":                     {answer{body: strings.Repeat(" ", 3<<20)}, anew, "limit of 2097152 bytes"},
		"a huge version":             {answer{body: strings.Replace(added, "6", strings.Repeat("6", 300), 1)}, anew, "more than 256 bytes"},
		"an event without version":   {ends(strings.Replace(added, `"6"`, `""`, 1)), anew, "no resourceVersion"},

		"an echo":                  {answer{code: 500, body: echo, end: io.EOF}, anew, "no such token: [redacted]"},
		"a redirect":               {answer{code: 302, end: io.EOF}, anew, "redirects to another host"},
		"list with an echo":        {answer{code: 500, body: echo, end: io.EOF}, "list", "no such token: [redacted]"},
		"list redirected":          {answer{code: 302, end: io.EOF}, "list", "redirects to another host"},
		"list refused":             {answer{err: syscall.ECONNREFUSED}, "list", "refused"},
		"list refused as expired":  {answer{code: 410, end: io.EOF}, "list", "list of " + crds + " failed: the server answered 410 Gone"},
		"list forbidden":           {answer{code: 403, end: io.EOF}, "list", "ClusterRole"},
		"list not served":          {answer{code: 404, body: "404 page not found", end: io.EOF}, "list", "does not serve"},
		"list in vain":             {answer{delay: time.Hour}, "list", "deadline exceeded"},
		"list is a page":           {ends("<html>"), "list", "not a list"},
		"list without version":     {ends(list + `"metadata":{},"items":[]}`), "list", "no resourceVersion"},
		"list version is a number": {ends(list + `"metadata":{"resourceVersion":5}}`), "list", "cannot unmarshal"},
		"list with huge version":   {ends(list + `"metadata":{"resourceVersion":"` + strings.Repeat("5", 300) + `"}}`), "list", "more than 256 bytes"},
		"list nested":              {ends(list + `"items":` + strings.Repeat("[", 20_000)), "list", "depth"},
		"list without end":         {answer{body: list + strings.Repeat(" ", 3<<20)}, "list", "limit of 2097152 bytes"},
		"list cut":                 {ends(list + `"items":[{}`), "list", "unexpected end"},
	} {
		t.Run(name, func(t *testing.T) {
			opens := tt.answer.err == nil && tt.answer.code < 300 && tt.answer.delay == 0
			api, asks, rings := &watchAPI{watches: []answer{tt.answer, {}}}, tt.asks, "plainly"
			switch tt.asks {
			case "list":
				api, asks, opens = &watchAPI{lists: []answer{tt.answer}, watches: []answer{{}}}, "list, list, watch from 5", false
			case moved, movedAnew:
				api, opens = &watchAPI{watches: []answer{ends(bookmark), tt.answer, {}}}, true
			}
			if opens { // then it may have missed, or has seen, an event
				rings = "an event"
			}
			whileWatching(t, api, func(t *testing.T, w *watcherTest) {
				time.Sleep(40 * time.Second)
				if asked := api.asked(); asked != asks || !w.Watching() {
					t.Errorf("asked for %s; want %s; watching: %v", asked, asks, w.Watching())
				}
				if rung := w.rings(); rung != rings {
					t.Errorf("rung: %s; want %s", rung, rings)
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
// a minute, and one line says so. If watches do not stay open, none rings as for an event.
func TestWatcherIsNoStorm(t *testing.T) {
	for name, watch := range map[string]answer{
		"closed at once":        {end: io.EOF},
		"closed after an event": {body: added, end: io.EOF},
		"expired":               {body: expired},
		"broken":                {body: broken},
		"refused":               {err: syscall.ECONNREFUSED},
		"refused, with a wish":  {code: 429, end: io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			api := &watchAPI{watches: []answer{watch}}
			whileWatching(t, api, func(t *testing.T, w *watcherTest) {
				time.Sleep(10 * time.Second)
				if _, n := api.count(); n < 3 || n > 6 {
					t.Errorf("%d watches in 10 seconds", n)
				}
				time.Sleep(10 * time.Minute)
				lists, watches := api.count()
				w.rings()
				time.Sleep(time.Minute)
				if rings := w.rings(); rings == "an event" && watch.body != added {
					t.Error("rung as for an event: its echoes cost more requests than it")
				}
				if watches < 20 || watches > 50 || lists > watches+1 {
					t.Errorf("%d watches and %d lists: that is too few or too many", watches, lists)
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

// A watch is given up after 10 minutes and a half at most, whether the server ends it when it
// was asked to or has died without a word. The next one begins where it ended, at once if the
// server ended it, and rings nobody.
func TestWatchesLastForMinutes(t *testing.T) {
	for name, watch := range map[string]answer{"ended": {body: bookmark, end: io.EOF, lasts: true}, "silent": {body: bookmark}} {
		t.Run(name, func(t *testing.T) {
			api := &watchAPI{watches: []answer{watch}}
			whileWatching(t, api, func(t *testing.T, w *watcherTest) {
				w.rings()
				time.Sleep(10*time.Minute + 31*time.Second)
				seen := api.seen()
				asked, _ := strconv.Atoi(seen[1].query.Get("timeoutSeconds"))
				took := seen[2].at.Sub(seen[1].at).Round(time.Second) - time.Duration(asked)*time.Second
				if asked < 300 || asked > 600 || took < 0 || took > 31*time.Second || took > 0 && name == "ended" || seen[2].what != "watch from 9" {
					t.Errorf("asked for %d seconds, and for %s %v after that", asked, seen[2].what, took)
				}
				time.Sleep(24 * time.Hour)
				if lists, watches := api.count(); watches < 130 || watches > 290 || lists != 1 || w.rings() != "not" {
					t.Errorf("%d watches and %d lists in a day", watches, lists)
				}
				if lines := w.logged(); len(lines) != 0 {
					t.Errorf("logged %q", lines)
				}
			})
		})
	}
}

// A list takes no more memory than its bound, however many objects are in it; one that is larger
// is refused. A stream of events that never ends leaves the heap as it is, and is read with pauses,
// so that it costs no busy processor.
func TestWatchesTakeLittleMemory(t *testing.T) {
	items := func(size int) []answer {
		body := list + `"metadata":{"resourceVersion":"5"},"items":[` + strings.Repeat("{},", size/3) + "{}]}"
		return slices.Repeat([]answer{{body: body, end: io.EOF}}, 100)
	}
	for name, api := range map[string]*watchAPI{
		"a list within the bound": {lists: items(1 << 20), watches: []answer{{}}},
		"a list beyond it":        {lists: items(8 << 20), watches: []answer{{}}},
		"events":                  {watches: []answer{{body: strings.Repeat(added, 64<<20/len(added)), end: io.EOF}}},
	} {
		t.Run(name, func(t *testing.T) {
			live, all := heap()
			whileWatching(t, api, func(t *testing.T, w *watcherTest) {
				time.Sleep(10 * time.Second)
				liveNow, allNow := heap()
				lists, watches := api.count()
				t.Logf("%d lists and %d watches, %d KiB live, %d KiB allocated in all", lists, watches, (liveNow-live)>>10, (allNow-all)>>10)
				if liveNow-live > 1<<20 || name != "events" && allNow-all > int64(12*lists*(2<<20)) {
					t.Errorf("%d bytes are kept, %d were allocated for %d lists", liveNow-live, allNow-all, lists)
				}
				if w.Watching() == (name == "a list beyond it") || watches > 1 {
					t.Errorf("watching: %v, after %d watches", w.Watching(), watches)
				}
			})
		})
	}
}

func heap() (live, all int64) {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc), int64(stats.TotalAlloc)
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

// A watchAPI answers lists well after some other answers, and watches with one
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
	n, watches := a.count()
	answers := append(a.lists, answer{body: list + `"metadata":{"resourceVersion":"5"},"items":[]}`, end: io.EOF})
	if query.Get("watch") == "true" {
		what, n, answers = "watch from "+query.Get("resourceVersion"), watches, a.watches
	}
	if query.Get("limit") != "1" && (query.Get("allowWatchBookmarks") != "true" || query.Get("timeoutSeconds") == "") {
		return nil, errors.New("the request asks for too much")
	}
	a.mu.Lock()
	a.requests = append(a.requests, request{what, query, time.Now()})
	a.mu.Unlock()
	return answers[min(n, len(answers)-1)].response(req)
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
	header.Set("Location", "http://elsewhere.invalid") // for a 302
	req = req.Clone(req.Context())                     // as by a transport that adds a token
	req.Header.Set("X-Token", "a-secret-that-was-sent")
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
		select {
		case <-time.After(time.Duration(seconds) * time.Second):
		case <-b.req.Context().Done():
		}
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
