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
	added = `{"type":"ADDED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",` +
		`"metadata":{"name":"foo","resourceVersion":"6"}}}` + "\n"
	bookmark = `{"type":"BOOKMARK","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",` +
		`"metadata":{"resourceVersion":"9"}}}` + "\n"
	deleted = " {\n \"type\" : \"DELETED\" , \"object\" : { \"metadata\" : {\"resourceVersion\":\"6\"} } }"
	list    = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1",`
	expired = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410,"reason":"Expired"}}` + "\n"
	broken  = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":500,"message":"a secret"}}` + "\n"
	leak    = `{"kind":"Status","message":"no such token: a-secret-that-was-sent"}` // of what the request has sent
	crds    = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
)

// ends is an answer after which the server ends the connection.
func ends(body string) answer { return answer{body: body, end: io.EOF} }

// failure is an answer, and what is logged for it.
type failure struct {
	answer answer
	logs   string
}

// A watch that ends without an error is resumed where it ended, whatever has ended it. Nothing is logged.
func TestWatchIsResumed(t *testing.T) {
	for name, first := range map[string]answer{
		"ended after an event":   ends(added),
		"cut":                    {body: added, end: syscall.ECONNRESET},
		"cut in an event":        ends(added + bookmark[:20]),
		"not 200":                {code: 203, body: added, end: io.EOF},
		"redirected on the host": {code: 307, location: "/elsewhere", end: io.EOF}, // to a URL without parameters
		"a deletion with spaces": ends(deleted),
	} {
		t.Run(name, func(t *testing.T) {
			asks := "list, watch from 5, watch from 6"
			triesAgain(t, nil, []answer{first, {}}, asks, firedForEvent, "")
		})
	}

	t.Run("a version with odd signs", func(t *testing.T) {
		odd := ends(strings.Replace(added, "6", "a&b=c ", 1))
		triesAgain(t, nil, []answer{odd, {}}, "list, watch from 5, watch from a&b=c ", firedForEvent, "")
	})

	t.Run("a second time", func(t *testing.T) {
		asks := "list, watch from 5, watch from 9, watch from 6"
		triesAgain(t, nil, []answer{ends(bookmark), ends(added), {}}, asks, firedForEvent, "")
	})
}

// A watch that cannot be resumed begins with a list again. That the place is too old is ordinary, and not logged.
func TestWatchThatCannotBeResumedBeginsWithAList(t *testing.T) {
	for name, second := range map[string]failure{
		"expired":       {ends(expired), ""},
		"refused as so": {answer{code: 410, end: io.EOF}, ""},
		"refused":       {answer{code: 500, end: io.EOF}, "trying again"},
		"no connection": {answer{err: syscall.ECONNREFUSED}, "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			asks := "list, watch from 5, watch from 9, list, watch from 5"
			triesAgain(t, nil, []answer{ends(bookmark), second.answer, {}}, asks, firedForEvent, second.logs)
		})
	}
}

// A watch that fails begins with a list again. If it was open, it may have missed an event.
func TestWatchThatFailsBeginsWithAList(t *testing.T) {
	huge := strings.Repeat("x", 3<<20)
	longVersion := strings.Replace(added, "6", strings.Repeat("6", 300), 1)
	gone := "watch of " + crds + " failed: the server ended the watch with error 410 Gone"
	for name, first := range map[string]failure{
		"expired":                 {ends(expired), gone},
		"an error":                {answer{body: added + broken}, "500 Internal"},
		"a page":                  {ends("<html>"), "not a watch event"},
		"no event":                {ends("{}"), "not a watch event"},
		"a type that is a list":   {ends(`{"type":["a secret"]}`), "not a watch event"},
		"an unknown type":         {ends(`{"type":"a secret"}`), "not a watch event"},
		"a nested event":          {answer{body: `{"type":` + strings.Repeat("[", 500<<10)}, "not a watch event"},
		"an error without a code": {ends(`{"type":"ERROR"}`), "with error 0"},
		"a huge event":            {answer{body: strings.Replace(added, "foo", huge, 1)}, "limit of 2097152 bytes"},
		"blanks":                  {answer{body: strings.Repeat(" ", 3<<20)}, "limit of 2097152 bytes"},
		"a huge version":          {answer{body: longVersion}, "more than 256 bytes"},
		"no version":              {ends(strings.Replace(added, `"6"`, `""`, 1)), "no resourceVersion"},
	} {
		t.Run(name, func(t *testing.T) {
			asks := "list, watch from 5, list, watch from 5"
			triesAgain(t, nil, []answer{first.answer, {}}, asks, firedForEvent, first.logs)
		})
	}
}

// A watch that does not open begins with a list again. It has missed nothing that the first list has not.
func TestWatchThatDoesNotOpenBeginsWithAList(t *testing.T) {
	blanks := strings.Repeat(" ", 3<<20)
	away := answer{code: 302, location: "http://elsewhere.invalid", end: io.EOF}
	for name, first := range map[string]failure{
		"refused as expired":  {answer{code: 410, end: io.EOF}, "watch of " + crds + " failed: the server answered 410 Gone"},
		"refused without end": {answer{code: 500, body: blanks}, "limit of 2097152 bytes"},
		"no answer":           {answer{delay: time.Hour}, "no complete answer within 30s"},
		"what was sent":       {answer{code: 500, body: leak, end: io.EOF}, "no such token: [redacted]"},
		"redirected away":     {away, "redirects to another host"},
	} {
		t.Run(name, func(t *testing.T) {
			asks := "list, watch from 5, list, watch from 5"
			triesAgain(t, nil, []answer{first.answer, {}}, asks, firedPlainly, first.logs)
		})
	}
}

// A list that fails is tried again.
func TestListIsTriedAgain(t *testing.T) {
	longVersion := list + `"metadata":{"resourceVersion":"` + strings.Repeat("5", 300) + `"}}`
	for name, first := range map[string]failure{
		"what was sent":       {answer{code: 500, body: leak, end: io.EOF}, "no such token: [redacted]"},
		"refused":             {answer{err: syscall.ECONNREFUSED}, "refused"},
		"refused as expired":  {answer{code: 410, end: io.EOF}, "list of " + crds + " failed: the server answered 410 Gone"},
		"forbidden":           {answer{code: 403, end: io.EOF}, "ClusterRole"},
		"unauthorized":        {answer{code: 401, end: io.EOF}, "the server does not accept the credentials"},
		"not served":          {answer{code: 404, body: "404 page not found", end: io.EOF}, "does not serve"},
		"no answer":           {answer{delay: time.Hour}, "deadline exceeded"},
		"too many requests":   {answer{code: 429, end: io.EOF}, "429"}, // at the watcher's own pace
		"reset":               {answer{err: syscall.ECONNRESET}, "connection reset"},
		"a page":              {ends("<html>"), "not a list"},
		"no version":          {ends(list + `"metadata":{},"items":[]}`), "no resourceVersion"},
		"version is a number": {ends(list + `"metadata":{"resourceVersion":5}}`), "cannot unmarshal"},
		"a huge version":      {ends(longVersion), "more than 256 bytes"},
		"nested":              {ends(list + `"items":` + strings.Repeat("[", 20_000)), "depth"},
		"without end":         {answer{body: list + strings.Repeat(" ", 3<<20)}, "limit of 2097152 bytes"},
		"cut":                 {ends(list + `"items":[{}`), "unexpected end"},
	} {
		t.Run(name, func(t *testing.T) {
			triesAgain(t, []answer{first.answer}, []answer{{}}, "list, list, watch from 5", firedPlainly, first.logs)
		})
	}
}

// triesAgain runs a watcher for 40 seconds. By then it must have sent these requests, have fired the trigger so, watch,
// and have logged one line with a text, or none if that is empty. A server's secrets are not logged.
func triesAgain(t *testing.T, lists, watches []answer, asks, fired, logs string) {
	t.Helper()
	whileWatching(t, lists, watches, func(t *testing.T, w *watcherTest) {
		time.Sleep(40 * time.Second)

		now := w.look()
		if now.asks != asks {
			t.Errorf("after 40 seconds it has asked for %s; want %s", now.asks, asks)
		}
		if now.fired != fired {
			t.Errorf("after 40 seconds the trigger was fired: %s; want %s", now.fired, fired)
		}
		if !w.Watching() {
			t.Error("after 40 seconds no watch is open")
		}
		if logs == "" {
			if len(now.lines) > 0 {
				t.Errorf("logged %q; want nothing", now.lines)
			}
			return
		}
		if len(now.lines) != 1 || !strings.Contains(now.lines[0], logs) || strings.Contains(now.lines[0], "secret") {
			t.Errorf("logged %q; want one line with %q, and no secret that the server says", now.lines, logs)
		}
	})
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
// a minute, and one line says so. If watches do not stay open, none fires the trigger as for an event.
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
				t.Errorf("%s: %d watches and %d lists in 10 minutes; want 20 to 50 watches, as pauses grow to 8 to 32 seconds, "+
					"and a list for each at most", name, now.watches, now.lists)
			}
			time.Sleep(time.Minute)
			now := w.look()
			if now.fired == firedForEvent && watch.body != added {
				t.Errorf("%s: fired as for an event, whose rechecks cost more requests than it", name)
			}
			if len(now.lines) != 1 || w.Watching() {
				t.Errorf("%s: logged %q, watching between two watches %v; want one line, and not", name, now.lines, w.Watching())
			}
		})
	}
}

// A watch that was open for 30 seconds works again: what was before it does not count. So the pause after it is short,
// and what goes wrong later is logged once more.
func TestSteadyWatchEndsASeriesOfShortOnes(t *testing.T) {
	short := slices.Repeat([]answer{{end: io.EOF}}, maxShort+1)
	for name, test := range map[string]struct {
		after    time.Duration
		mostLate time.Duration
		lines    int
	}{
		"steady":     {steadyAfter, 2 * time.Second, 2}, // the first pause is of half a second, and up to four times that
		"not steady": {steadyAfter - time.Second, time.Minute, 1},
	} {
		watches := slices.Concat(short, []answer{{end: io.EOF, after: test.after}}, short, []answer{{}})
		whileWatching(t, nil, watches, func(t *testing.T, w *watcherTest) {
			time.Sleep(10 * time.Minute)

			now := w.look()
			if now.watches < len(watches) {
				t.Fatalf("%s: %d watches; want %d", name, now.watches, len(watches))
			}
			one, next := now.asked[1+len(short)], now.asked[2+len(short)] // the first request is a list
			if pause := next.at.Sub(one.at) - test.after; pause <= 0 || pause > test.mostLate {
				t.Errorf("%s: the next watch begins %v after it; want a pause of %v at most", name, pause, test.mostLate)
			}
			if len(now.lines) != test.lines {
				t.Errorf("%s: logged %q; want %d lines", name, now.lines, test.lines)
			}
		})
	}
}

// A watch is given up after 10 minutes and a half at most, whether the server ends it when it was asked to or has died
// without a word. The next one begins where it ended, at once if the server ended it, and fires no trigger.
func TestWatchesLastForMinutes(t *testing.T) {
	t.Run("ended", func(t *testing.T) { lastsForMinutes(t, answer{body: bookmark, end: io.EOF, lasts: true}, 0) })
	t.Run("dead", func(t *testing.T) { lastsForMinutes(t, answer{body: bookmark}, 31*time.Second) })
}

// lastsForMinutes checks that watches last for 5 to 10 minutes, and that the next one follows soon.
func lastsForMinutes(t *testing.T, watch answer, mostLate time.Duration) {
	t.Helper()
	whileWatching(t, nil, []answer{watch}, func(t *testing.T, w *watcherTest) {
		w.look()
		time.Sleep(10*time.Minute + 31*time.Second)

		early := w.look()
		requests := early.asked
		if early.fired != notFired {
			t.Errorf("in 10 minutes the trigger was fired: %s; want not, after the first watch has opened", early.fired)
		}
		if len(requests) < 3 {
			t.Fatalf("%d requests in 10 minutes and a half, want a list and two watches", len(requests))
		}
		first, second := requests[1], requests[2]
		asked, _ := strconv.Atoi(first.query.Get("timeoutSeconds"))
		if asked < 300 || asked > 600 {
			t.Errorf("a watch of %d seconds; want 300 to 600", asked)
		}
		if second.what != "watch from 9" {
			t.Errorf("then a %s; want a watch from 9", second.what)
		}
		late := second.at.Sub(first.at).Round(time.Second) - time.Duration(asked)*time.Second
		if late < 0 || late > mostLate {
			t.Errorf("the second watch begins %v after the end of the first; want %v at most", late, mostLate)
		}

		time.Sleep(24 * time.Hour)
		now := w.look()
		if now.watches < 130 || now.watches > 290 || now.lists != 1 {
			t.Errorf("%d watches and %d lists in a day; want 130 to 290 of 5 to 10 minutes, and one list",
				now.watches, now.lists)
		}
		if now.fired != notFired || len(now.lines) > 0 {
			t.Errorf("in a day the trigger was fired: %s, logged %q; want not, and no line", now.fired, now.lines)
		}
	})
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
			if kept := int64(after.HeapAlloc - before.HeapAlloc); kept > 1<<20 {
				t.Errorf("%s: %d bytes are kept; want less than 1 MiB", name, kept)
			}
			made := after.TotalAlloc - before.TotalAlloc
			most := uint64(12 * now.lists * (2 << 20))
			if name != "events" && made > most {
				t.Errorf("%s: %d bytes were allocated; want %d: 12 times the bound of 2 MiB for each list", name, made, most)
			}
			refused := name == "a list beyond it"
			if w.Watching() == refused || now.watches > 1 {
				t.Errorf("%s: watching: %v, after %d watches; want that a list beyond the bound is refused, "+
					"and the others are followed by one watch", name, w.Watching(), now.watches)
			}
		})
	}
}

// A transport may go on after its request was cancelled. When its context ends, the watcher gives up what is stuck. An
// opening that is stuck is given up after RequestTimeout, and a body soon after the watch should have ended.
func TestStuckWatch(t *testing.T) {
	for _, where := range []string{
		"list opening", "list reading", "watch opening", "watch reading", "watch closing", "watch reading and closing",
	} {
		stuck := answer{body: bookmark, stuck: where}
		isList := strings.HasPrefix(where, "list")
		if isList {
			stuck.body = list + `"metadata":{"resourceVersion":"5"}}`
		}

		t.Run(where+" each time", func(t *testing.T) {
			all := slices.Repeat([]answer{stuck}, 100)
			lists, watches := []answer(nil), append(all, answer{})
			if isList {
				lists, watches = all, []answer{{}}
			}
			// The helper fails the test if the watcher does not end with its context.
			whileWatching(t, lists, watches, func(*testing.T, *watcherTest) { time.Sleep(20 * time.Second) })
		})

		t.Run(where+" once", func(t *testing.T) {
			lists, watches := []answer(nil), []answer{stuck, {}}
			if isList {
				lists, watches = []answer{stuck}, []answer{{}}
			}
			whileWatching(t, lists, watches, func(t *testing.T, w *watcherTest) {
				time.Sleep(15 * time.Minute)
				if !w.Watching() {
					t.Error("15 minutes after one request was stuck no watch is open")
				}
			})
		})
	}
}

// An answer is what a server sends to a list or a watch.
type answer struct {
	err      error  // no answer at all
	code     int    // 0: 200
	location string // of a redirect
	body     string // what is sent,
	end      error  // and what comes then; nil: nothing, until the test ends
	delay    time.Duration
	lasts    bool          // the end comes when it was asked for,
	after    time.Duration // or so long after the beginning
	stuck    string        // "opening", "reading", "closing": what ends an hour later, also if the request is canceled
}

// A watcherTest is a watcher that runs, and its server, which answers lists well after some other answers, and watches
// with one answer after the other, then with the last one again and again.
type watcherTest struct {
	*Watcher
	trigger        *trigger
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

// How the trigger was fired.
const (
	notFired      = "not"
	firedPlainly  = "plainly"
	firedForEvent = "for an event"
)

// seen is what has happened so far, and how the trigger was fired since the last look.
type seen struct {
	asked                []request
	asks                 string // in words
	lists, watches, open int
	lines                []string
	fired                string
}

func (w *watcherTest) look() seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := seen{asked: slices.Clone(w.asked), open: w.open, lines: slices.Clone(w.lines), fired: notFired}
	var asks []string
	for _, r := range w.asked {
		asks = append(asks, r.what)
		if r.what == "list" {
			now.lists++
		}
	}
	now.asks = strings.Join(asks, ", ")
	now.watches = len(asks) - now.lists
	if len(w.trigger.fired) > 0 {
		now.fired = firedPlainly
	}
	if w.trigger.take() {
		now.fired = firedForEvent
	}
	return now
}

func (w *watcherTest) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Path == "/elsewhere" {
		return w.response(req, answer{body: added, end: io.EOF})
	}
	query := req.URL.Query()
	what := "list"
	answers := append(slices.Clone(w.lists), ends(list+`"metadata":{"resourceVersion":"5"},"items":[]}`))
	if query.Get("watch") == "true" {
		what = "watch from " + query.Get("resourceVersion")
		answers = w.watches
	}
	if query.Get("limit") != "1" && (query.Get("allowWatchBookmarks") != "true" || query.Get("timeoutSeconds") == "") ||
		!strings.Contains(req.Header.Get("Accept"), "as=PartialObjectMetadata") {
		return nil, errors.New("the request asks for too much")
	}
	w.mu.Lock()
	n := 0
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
	case b.after > 0:
		discovery.Sleep(b.req.Context(), b.after)
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
		w := &watcherTest{trigger: newTrigger(), lists: lists, watches: watches}
		cfg := &clientrest.Config{Host: "http://in-memory", QPS: -1}
		httpClient := &http.Client{Transport: w, Timeout: time.Second}
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
		log := func(write func(logr.Logger)) { write(funcr.New(w.log, funcr.Options{})) }
		w.Watcher = NewWatchers(watching, log, func() {})[0]
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.run(ctx, w.trigger)
		}()
		defer func() { // even if test gives up
			most := time.Duration(0)
			for _, a := range slices.Concat(lists, watches) {
				if a.stuck != "" {
					most = time.Second
				}
			}
			start := time.Now()
			cancel()
			<-ended
			if took := time.Since(start); took > most {
				t.Errorf("the watcher ended %v after its context, want %v at most", took, most)
			}
			if w.Watching() {
				t.Error("the watcher has ended, and says that it watches")
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
