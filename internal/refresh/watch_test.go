// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package refresh

import (
	"cmp"
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
	"sync/atomic"
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

// Whatever answers the first list or the first watches get, the next watch begins where the last one ended. If that
// place is lost it begins with a list, and rings the bell. A line is logged if something is wrong.
func TestWatcherTriesAgain(t *testing.T) {
	ends := func(body string) answer { return answer{body: body, end: io.EOF} }
	const resumed, anew = "list, watch from 5, watch from 6", "list, watch from 5, list, watch from 5"
	const moved, movedAnew = "list, watch from 5, watch from 9, watch from 6", "list, watch from 5, watch from 9, list, watch from 5"
	for name, tt := range map[string]struct {
		answer answer // to the first watch, to the second after a bookmark, or to the first list
		asks   string
		logs   string // "" for nothing
	}{
		"ended after an event":      {ends(added), resumed, ""},
		"cut":                       {answer{body: added, end: syscall.ECONNRESET}, resumed, ""},
		"cut in an event":           {ends(added + bookmark[:20]), resumed, ""},
		"not 200":                   {answer{code: 203, body: added, end: io.EOF}, resumed, ""},
		"redirected on the host":    {answer{code: 307, location: "/elsewhere", end: io.EOF}, resumed, ""}, // to a URL without parameters
		"a deletion, with spaces":   {ends(" {\n \"type\" : \"DELETED\" , \"object\" : { \"metadata\" : {\"resourceVersion\":\"6\"} } }"), resumed, ""},
		"a version with odd signs":  {ends(strings.Replace(added, "6", "a&b=c ", 1)), "list, watch from 5, watch from a&b=c ", ""},
		"resumed":                   {ends(added), moved, ""},
		"resumed and expired":       {ends(expired), movedAnew, ""},
		"resumed and refused so":    {answer{code: 410, end: io.EOF}, movedAnew, ""},
		"resumed and refused":       {answer{code: 500, end: io.EOF}, movedAnew, "trying again"},
		"resumed, no connection":    {answer{err: syscall.ECONNREFUSED}, movedAnew, "refused"},
		"expired":                   {ends(expired), anew, "watch of " + crds + " failed: the server ended the watch with error 410 Gone"},
		"refused as expired":        {answer{code: 410, end: io.EOF}, anew, "watch of " + crds + " failed: the server answered 410 Gone"},
		"an error":                  {answer{body: added + broken}, anew, "500 Internal"},
		"refused without end":       {answer{code: 500, body: strings.Repeat(" ", 3<<20)}, anew, "limit of 2097152 bytes"},
		"no answer":                 {answer{delay: time.Hour}, anew, "no complete answer within 30s"},
		"a page":                    {ends("<html>"), anew, "not a watch event"},
		"no event":                  {ends("{}"), anew, "not a watch event"},
		"a type that is a list":     {ends(`{"type":["a secret"]}`), anew, "not a watch event"},
		"an unknown type":           {ends(`{"type":"a secret"}`), anew, "not a watch event"},
		"a nested event":            {answer{body: `{"type":` + strings.Repeat("[", 500<<10)}, anew, "not a watch event"},
		"an error without a code":   {ends(`{"type":"ERROR"}`), anew, "with error 0"},
		"a huge event":              {answer{body: strings.Replace(added, "foo", strings.Repeat("x", 3<<20), 1)}, anew, "limit of 2097152 bytes"},
		"blanks":                    {answer{body: strings.Repeat(" ", 3<<20)}, anew, "limit of 2097152 bytes"},
		"a huge version":            {answer{body: strings.Replace(added, "6", strings.Repeat("6", 300), 1)}, anew, "more than 256 bytes"},
		"an event without version":  {ends(strings.Replace(added, `"6"`, `""`, 1)), anew, "no resourceVersion"},
		"an echo":                   {answer{code: 500, body: echo, end: io.EOF}, anew, "no such token: [redacted]"},
		"redirected to another one": {answer{code: 302, location: "http://elsewhere.invalid", end: io.EOF}, anew, "redirects to another host"},

		"list with an echo":        {answer{code: 500, body: echo, end: io.EOF}, "list", "no such token: [redacted]"},
		"list refused":             {answer{err: syscall.ECONNREFUSED}, "list", "refused"},
		"list refused as expired":  {answer{code: 410, end: io.EOF}, "list", "list of " + crds + " failed: the server answered 410 Gone"},
		"list forbidden":           {answer{code: 403, end: io.EOF}, "list", "ClusterRole"},
		"list unauthorized":        {answer{code: 401, end: io.EOF}, "list", "the server does not accept the credentials"},
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
			opens := tt.asks == resumed || tt.answer.err == nil && tt.answer.code == 0 && tt.answer.delay == 0
			lists, watches, asks, rings := []answer(nil), []answer{tt.answer, {}}, tt.asks, "plainly"
			switch tt.asks {
			case "list":
				lists, watches, asks, opens = []answer{tt.answer}, []answer{{}}, "list, list, watch from 5", false
			case moved, movedAnew:
				watches, opens = []answer{ends(bookmark), tt.answer, {}}, true
			}
			if opens { // then it may have missed, or has seen, an event
				rings = "an event"
			}
			whileWatching(t, lists, watches, func(t *testing.T, w *watcherTest) {
				time.Sleep(40 * time.Second)
				now := w.look()
				if now.asks != asks || now.rung != rings || !w.Watching() {
					t.Errorf("after 40 seconds it has asked for %s, and rung %s, watching %v; want %s, %s, true", now.asks, now.rung, w.Watching(), asks, rings)
				}
				logged := strings.Join(now.lines, "\n")
				if len(now.lines) > 1 || (logged != "") != (tt.logs != "") || !strings.Contains(logged, tt.logs) || strings.Contains(logged, "secret") {
					t.Errorf("logged %q; want one line with %q, or none if that is empty, and no secret that the server says", logged, tt.logs)
				}
			})
		})
	}
}

// A watch that breaks off, or gets no answer, shows that the server has failed (R6). One that the server ends does not,
// nor one that ends when the watcher does.
func TestBrokenWatchIsTheServersFailure(t *testing.T) {
	for name, tt := range map[string]struct {
		watch answer
		want  int64
	}{
		"cut":                {answer{body: added, end: syscall.ECONNRESET}, 1},
		"cut in an event":    {answer{body: added[:20], end: io.EOF}, 1},
		"cut otherwise":      {answer{end: errors.New("http2: client connection lost")}, 1},
		"refused":            {answer{err: syscall.ECONNREFUSED}, 1},
		"unavailable":        {answer{code: 503, end: io.EOF}, 1},
		"an error":           {answer{body: broken}, 1},
		"ended":              {answer{body: added, end: io.EOF}, 0},
		"ended without news": {answer{end: io.EOF}, 0},
		"expired":            {answer{body: expired}, 0},
		"forbidden":          {answer{code: 403, end: io.EOF}, 0},
		"no answer":          {answer{delay: time.Hour}, 0},
		"still open":         {answer{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var ended *watcherTest
			whileWatching(t, nil, []answer{tt.watch, {}}, func(_ *testing.T, w *watcherTest) {
				time.Sleep(40 * time.Second)
				ended = w
			})
			if got := ended.failures.Load(); got != tt.want {
				t.Errorf("the server has failed %d times; want %d", got, tt.want)
			}
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
		whileWatching(t, nil, []answer{watch}, func(t *testing.T, w *watcherTest) {
			time.Sleep(10 * time.Second)
			if n := w.look().watches; n < 3 || n > 6 {
				t.Errorf("%s: %d watches in the first 10 seconds; want 3 to 6: the pauses grow from half a second", name, n)
			}
			time.Sleep(10 * time.Minute)
			if now := w.look(); now.watches < 20 || now.watches > 50 || now.lists > now.watches+1 {
				t.Errorf("%s: %d watches and %d lists in 10 minutes; want 20 to 50 watches, as pauses grow to 8 to 32 seconds, and a list for each at most", name, now.watches, now.lists)
			}
			time.Sleep(time.Minute)
			now := w.look()
			if now.rung == "an event" && watch.body != added {
				t.Errorf("%s: rung as for an event: its echoes cost more requests than it", name)
			}
			if len(now.lines) != 1 || w.Watching() {
				t.Errorf("%s: logged %q, watching between two watches %v; want one line, and not", name, now.lines, w.Watching())
			}
		})
	}
}

// A watch is given up after 10 minutes and a half at most, whether the server ends it when it was asked to or has died
// without a word. The next one begins where it ended, at once if the server ended it, and rings nobody.
func TestWatchesLastForMinutes(t *testing.T) {
	for name, watch := range map[string]answer{"ended": {body: bookmark, end: io.EOF, lasts: true}, "silent": {body: bookmark}} {
		whileWatching(t, nil, []answer{watch}, func(t *testing.T, w *watcherTest) {
			w.look()
			time.Sleep(10*time.Minute + 31*time.Second)
			requests := append(w.look().asked, request{}, request{})
			asked, _ := strconv.Atoi(requests[1].query.Get("timeoutSeconds"))
			late := requests[2].at.Sub(requests[1].at).Round(time.Second) - time.Duration(asked)*time.Second
			if asked < 300 || asked > 600 || requests[2].what != "watch from 9" || late < 0 || late > 31*time.Second || late > 0 && name == "ended" {
				t.Errorf("%s: a watch of %d seconds, then %v later a %s; want 300 to 600, and a watch from 9 at once if the server has ended it, else within 31s", name, asked, late, requests[2].what)
			}
			time.Sleep(24 * time.Hour)
			if now := w.look(); now.watches < 130 || now.watches > 290 || now.lists != 1 || now.rung != "not" || len(now.lines) > 0 {
				t.Errorf("%s: %d watches and %d lists in a day, rung %s, logged %q; want 130 to 290 of 5 to 10 minutes, one list, no ring and no line", name, now.watches, now.lists, now.rung, now.lines)
			}
		})
	}
}

// A list takes no more memory than its bound, however many objects are in it; one that is larger is refused. A stream
// of events that never ends leaves the heap as it is, and is read with pauses, so that it costs no busy processor.
func TestWatchesTakeLittleMemory(t *testing.T) {
	listOf := func(size int) []answer {
		body := list + `"metadata":{"resourceVersion":"5"},"items":[` + strings.Repeat("{},", size/3) + "{}]}"
		return slices.Repeat([]answer{{body: body, end: io.EOF}}, 100)
	}
	for name, api := range map[string]struct{ lists, watches []answer }{
		"a list within the bound": {listOf(1 << 20), []answer{{}}},
		"a list beyond it":        {listOf(8 << 20), []answer{{}}},
		"events":                  {nil, []answer{{body: strings.Repeat(added, 64<<20/len(added)), end: io.EOF}}},
	} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		whileWatching(t, api.lists, api.watches, func(t *testing.T, w *watcherTest) {
			time.Sleep(10 * time.Second)
			runtime.GC()
			runtime.ReadMemStats(&after)
			now := w.look()
			kept, made, most := int64(after.HeapAlloc-before.HeapAlloc), after.TotalAlloc-before.TotalAlloc, uint64(12*now.lists*(2<<20))
			if kept > 1<<20 || name != "events" && made > most {
				t.Errorf("%s: %d bytes are kept, %d were allocated; want less than 1 MiB, and %d (12 times the bound of 2 MiB for each list)", name, kept, made, most)
			}
			if w.Watching() == (name == "a list beyond it") || now.watches > 1 {
				t.Errorf("%s: watching: %v, after %d watches; a list beyond the bound is refused, the others are followed by one watch", name, w.Watching(), now.watches)
			}
		})
	}
}

// A transport may go on after its request was cancelled. When its context ends, the watcher gives up what is stuck. An
// opening that is stuck is given up after RequestTimeout, and a body soon after the watch should have ended.
func TestStuckWatch(t *testing.T) {
	for _, where := range []string{"list opening", "list reading", "watch opening", "watch reading", "watch closing", "watch reading and closing"} {
		for _, heals := range []bool{false, true} {
			t.Run(where, func(t *testing.T) {
				lists, stuck := []answer(nil), []answer{{body: bookmark, stuck: where}}
				if strings.HasPrefix(where, "list") {
					stuck[0].body = list + `"metadata":{"resourceVersion":"5"}}`
				}
				if !heals {
					stuck = slices.Repeat(stuck, 100)
				}
				watches := append(stuck, answer{})
				if strings.HasPrefix(where, "list") {
					lists, watches = stuck, []answer{{}}
				}
				whileWatching(t, lists, watches, func(t *testing.T, w *watcherTest) {
					time.Sleep(20 * time.Second)
					if heals {
						time.Sleep(15 * time.Minute)
						if !w.Watching() {
							t.Error("15 minutes after one request was stuck no watch is open")
						}
					}
				})
			})
		}
	}
}

// An answer is what a server sends to a list or a watch.
type answer struct {
	err      error  // no answer at all
	code     int    // 0: 200
	location string // of a redirect
	body     string // what is sent,
	end      error  // and what comes then; nil: nothing, for ever
	delay    time.Duration
	lasts    bool   // the end comes when it was asked for
	stuck    string // "opening", "reading", "closing": what ends an hour later, whether the request is cancelled or not
}

// A watcherTest is a watcher that runs, and its server, which answers lists well after some other
// answers, and watches with one answer after the other, the last one for ever.
type watcherTest struct {
	*Watcher
	bell           *Doorbell
	lists, watches []answer

	mu    sync.Mutex
	asked []request
	open  int      // bodies that are not closed
	lines []string // of the log

	failures atomic.Int64 // how often the client has found that the server failed
}

type request struct {
	what  string // "list", or "watch from 5"
	query url.Values
	at    time.Time
}

// seen is what has happened so far, and how the bell was rung since the last look.
type seen struct {
	asked                []request
	asks                 string // in words
	lists, watches, open int
	lines                []string
	rung                 string // "not", "plainly" or "an event"
}

func (w *watcherTest) look() seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := seen{asked: slices.Clone(w.asked), open: w.open, lines: slices.Clone(w.lines), rung: "not"}
	var asks []string
	for _, r := range w.asked {
		asks = append(asks, r.what)
		if r.what == "list" {
			now.lists++
		}
	}
	now.asks, now.watches = strings.Join(asks, ", "), len(asks)-now.lists
	if len(w.bell.rung) > 0 {
		now.rung = "plainly"
	}
	if w.bell.drain() {
		now.rung = "an event"
	}
	return now
}

func (w *watcherTest) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Path == "/elsewhere" {
		return w.response(req, answer{body: added, end: io.EOF})
	}
	query, what, n := req.URL.Query(), "list", 0
	answers := append(slices.Clone(w.lists), answer{body: list + `"metadata":{"resourceVersion":"5"},"items":[]}`, end: io.EOF})
	if query.Get("watch") == "true" {
		what, answers = "watch from "+query.Get("resourceVersion"), w.watches
	}
	if query.Get("limit") != "1" && (query.Get("allowWatchBookmarks") != "true" || query.Get("timeoutSeconds") == "") ||
		!strings.Contains(req.Header.Get("Accept"), "as=PartialObjectMetadata") {
		return nil, errors.New("the request asks for too much")
	}
	w.mu.Lock()
	for _, r := range w.asked {
		if r.what[:4] == what[:4] {
			n++
		}
	}
	w.asked = append(w.asked, request{what, query, time.Now()})
	w.mu.Unlock()
	return w.response(req, answers[min(n, len(answers)-1)])
}

func (w *watcherTest) response(req *http.Request, is answer) (*http.Response, error) {
	switch {
	case is.err != nil:
		return nil, is.err
	case strings.Contains(is.stuck, "opening"):
		time.Sleep(time.Hour)
	case is.delay > 0:
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	header := http.Header{"Content-Type": {"application/json"}, "Location": {is.location}}
	if is.code == http.StatusTooManyRequests {
		header.Set("Retry-After", "1") // which client-go would obey by itself
	}
	req = req.Clone(req.Context()) // as by a transport that adds a token
	req.Header.Set("X-Token", "a-secret-that-was-sent")
	w.opened(1)
	return &http.Response{
		StatusCode: cmp.Or(is.code, http.StatusOK), Request: req, ContentLength: -1, Header: header,
		Body: &body{answer: is, req: req, rest: strings.NewReader(is.body), closed: sync.OnceFunc(func() { w.opened(-1) })},
	}, nil
}

func (w *watcherTest) opened(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open += n
}

func (w *watcherTest) log(_, args string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, args)
}

// A body is that of an answer.
type body struct {
	answer
	req    *http.Request
	rest   io.Reader
	closed func()
}

func (b *body) Read(p []byte) (int, error) {
	if strings.Contains(b.stuck, "reading") {
		time.Sleep(time.Hour)
	}
	if n, _ := b.rest.Read(p); n > 0 {
		return n, nil
	}
	switch seconds, _ := strconv.Atoi(b.req.URL.Query().Get("timeoutSeconds")); {
	case b.end == nil:
		<-b.req.Context().Done()
		return 0, b.req.Context().Err()
	case b.lasts:
		discovery.Sleep(b.req.Context(), time.Duration(seconds)*time.Second)
	}
	return 0, b.end
}

func (b *body) Close() error {
	if strings.Contains(b.stuck, "closing") {
		time.Sleep(time.Hour)
	}
	b.closed()
	return nil
}

// whileWatching runs a watcher in a bubble while test looks. Then the watcher must end at once, or
// within a second if something is stuck, and close what it has opened as soon as that is possible.
func whileWatching(t *testing.T, lists, watches []answer, test func(t *testing.T, w *watcherTest)) {
	t.Helper()
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	synctest.Test(t, func(t *testing.T) {
		w := &watcherTest{bell: NewDoorbell(), lists: lists, watches: watches}
		cfg, httpClient := &clientrest.Config{Host: "http://in-memory", QPS: -1}, &http.Client{Transport: w, Timeout: time.Second}
		client, err := discovery.NewClient(cfg, httpClient, discovery.Options{
			RequestTimeout: 30 * time.Second, MaxResponseBytes: 64 << 20, Failed: func() { w.failures.Add(1) },
		})
		if err != nil {
			t.Fatal(err)
		}
		watching, err := client.WatchClient(cfg, httpClient)
		if err != nil {
			t.Fatal(err)
		}
		w.Watcher = NewWatchers(watching, func(write func(logr.Logger)) { write(funcr.New(w.log, funcr.Options{})) }, func() {})[0]
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.run(ctx, w.bell)
		}()
		defer func() { // even if test gives up
			start, most := time.Now(), time.Duration(0)
			if slices.ContainsFunc(append(slices.Clone(lists), watches...), func(a answer) bool { return a.stuck != "" }) {
				most = time.Second
			}
			cancel()
			<-ended
			if took := time.Since(start); took > most || w.Watching() {
				t.Errorf("the watcher ended %v after its context, want %v at most; it says that it watches: %v", took, most, w.Watching())
			}
			time.Sleep(3 * time.Hour)
			if n := w.look().open; n > 0 {
				t.Errorf("%d bodies of lists and watches were left open", n)
			}
		}()
		synctest.Wait()
		test(t, w)
	})
}
