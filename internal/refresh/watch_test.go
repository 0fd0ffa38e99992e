// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package refresh

import (
	"io"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	added    = `{"type":"ADDED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"foo","resourceVersion":"6"}}}` + "\n"
	bookmark = `{"type":"BOOKMARK","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"9"}}}` + "\n"
	expired  = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410,"reason":"Expired"}}` + "\n"
	broken   = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":500,"message":"a secret"}}` + "\n"
)

// The requests are small: one object of the list, and bookmarks, so that a watch can
// continue where the last one ended.
func TestWatcherAsks(t *testing.T) {
	api := &watchAPI{watches: []answer{{}}}
	whileWatching(t, api, func(t *testing.T, w *watcherTest) {
		if !w.Watching() || w.rings() != "plainly" {
			t.Error("not watching, or not rung when the watch began")
		}
		seen := api.seen()
		if len(seen) != 2 {
			t.Fatalf("asked for %+v", seen)
		}
		if limit := seen[0].query["limit"]; !slices.Equal(limit, []string{"1"}) {
			t.Errorf("a list with limit %q", limit)
		}
		watch := seen[1].query
		if watch["allowWatchBookmarks"][0] != "true" || len(watch["timeoutSeconds"]) != 1 {
			t.Errorf("a watch with %q", watch)
		}
	})
}

// The end of a watch decides where the next one begins, whether the bell rings, and
// whether a line is logged.
func TestWatcherAfterTheEnd(t *testing.T) {
	quiet := answer{body: bookmark, end: io.EOF}
	huge := `{"type":"ADDED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7","annotations":{"a":"` + strings.Repeat("x", 3<<20) + `"}}}}`
	tests := map[string]struct {
		watches []answer
		asks    string
		rings   string
		logs    string // "" for nothing
	}{
		"in order":                      {[]answer{{body: added, end: io.EOF}, {}}, "list, watch from 5, watch from 6", "an event", ""},
		"after a bookmark":              {[]answer{quiet, {}}, "list, watch from 5, watch from 9", "plainly", ""},
		"cut":                           {[]answer{{body: added, end: syscall.ECONNRESET}, {}}, "list, watch from 5, watch from 6", "an event", ""},
		"cut in an event":               {[]answer{{body: added + bookmark[:20], end: io.EOF}, {}}, "list, watch from 5, watch from 6", "an event", ""},
		"expired":                       {[]answer{quiet, {body: expired, end: io.EOF}, {}}, "list, watch from 5, watch from 9, list, watch from 5", "an event", ""},
		"refused as expired":            {[]answer{quiet, {code: 410, end: io.EOF}, {}}, "list, watch from 5, watch from 9, list, watch from 5", "an event", ""},
		"expired though just listed":    {[]answer{{body: expired, end: io.EOF}, {}}, "list, watch from 5, list, watch from 5", "an event", "410 Gone"},
		"an error":                      {[]answer{{body: bookmark + broken}, {}}, "list, watch from 5, list, watch from 5", "an event", "500 Internal"},
		"refused":                       {[]answer{quiet, {code: 500, end: io.EOF}, {}}, "list, watch from 5, watch from 9, list, watch from 5", "an event", "trying again"},
		"no connection":                 {[]answer{quiet, {err: syscall.ECONNREFUSED}, {}}, "list, watch from 5, watch from 9, list, watch from 5", "an event", "refused"},
		"a page":                        {[]answer{{body: "<html>", end: io.EOF}, {}}, "list, watch from 5, list, watch from 5", "an event", "not a watch event"},
		"no event":                      {[]answer{{body: "{}"}, {}}, "list, watch from 5, list, watch from 5", "an event", "not a watch event"},
		"an event of an unknown type":   {[]answer{{body: `{"type":"ADDEDD"}`}, {}}, "list, watch from 5, list, watch from 5", "an event", "not a watch event"},
		"a huge event":                  {[]answer{{body: huge}, {}}, "list, watch from 5, list, watch from 5", "an event", "limit of 2097152 bytes"},
		"blanks":                        {[]answer{{body: strings.Repeat(" ", 3<<20)}, {}}, "list, watch from 5, list, watch from 5", "an event", "limit of 2097152 bytes"},
		"a huge version":                {[]answer{{body: strings.Replace(added, "6", strings.Repeat("6", 300), 1)}, {}}, "list, watch from 5, list, watch from 5", "an event", "more than 256 bytes"},
		"an event without version":      {[]answer{{body: strings.Replace(added, `"6"`, `""`, 1), end: io.EOF}, {}}, "list, watch from 5, list, watch from 5", "an event", "no resourceVersion"},
		"no answer to the watch":        {[]answer{{delay: time.Hour}, {}}, "list, watch from 5, list, watch from 5", "plainly", "no complete answer within 30s"},
		"a version with odd signs":      {[]answer{{body: strings.Replace(added, "6", "a&b=c ", 1), end: io.EOF}, {}}, "list, watch from 5, watch from a&b=c ", "an event", ""},
		"a nested event":                {[]answer{{body: `{"type":` + strings.Repeat("[", 500<<10)}, {}}, "list, watch from 5, list, watch from 5", "an event", "not a watch event"},
		"a deleted object, with spaces": {[]answer{{body: " {\n \"type\" : \"DELETED\" , \"object\" : { \"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\" : {\"resourceVersion\":\"8\"} } }", end: io.EOF}, {}}, "list, watch from 5, watch from 8", "an event", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			whileWatching(t, &watchAPI{watches: tt.watches}, func(t *testing.T, w *watcherTest) {
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

// Nothing is missed between two watches: the list that cannot be read is read again.
func TestWatcherWithoutList(t *testing.T) {
	const kind = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1",`
	for name, tt := range map[string]struct {
		list answer
		logs string
	}{
		"refused":                   {answer{err: syscall.ECONNREFUSED}, "refused"},
		"forbidden":                 {answer{code: 403, end: io.EOF}, "ClusterRole"},
		"not served":                {answer{code: 404, body: "404 page not found", end: io.EOF}, "does not serve"},
		"in vain":                   {answer{delay: time.Hour}, "deadline exceeded"},
		"empty":                     {answer{end: io.EOF}, "not a list"},
		"a page":                    {answer{body: "<html>", end: io.EOF}, "invalid character"},
		"no object":                 {answer{body: "[]", end: io.EOF}, "not a list"},
		"no metadata":               {answer{body: kind + `"items":[]}`, end: io.EOF}, "no resourceVersion"},
		"no version":                {answer{body: kind + `"metadata":{},"items":[]}`, end: io.EOF}, "no resourceVersion"},
		"a version of another type": {answer{body: kind + `"metadata":{"resourceVersion":5}}`, end: io.EOF}, "cannot unmarshal"},
		"a huge version":            {answer{body: kind + `"metadata":{"resourceVersion":"` + strings.Repeat("5", 300) + `"}}`, end: io.EOF}, "more than 256 bytes"},
		"nested":                    {answer{body: kind + `"items":` + strings.Repeat("[", 20_000), end: io.EOF}, "depth"},
		"a huge value":              {answer{body: `{"a":"` + strings.Repeat("x", 3<<20)}, "limit of 2097152 bytes"},
		"many objects":              {answer{body: kind + `"items":[` + strings.Repeat("{},", 100_000) + "{}]}", end: io.EOF}, "no resourceVersion"},
		"cut":                       {answer{body: kind + `"items":[{}`, end: io.EOF}, "unexpected end"},
	} {
		t.Run(name, func(t *testing.T) {
			api := &watchAPI{watches: []answer{{}}}
			api.lists = func(n int) answer {
				if n < 3 {
					return tt.list
				}
				return listed()
			}
			whileWatching(t, api, func(t *testing.T, w *watcherTest) {
				time.Sleep(2 * time.Minute)
				if asks := api.asked(); asks != "list, list, list, list, watch from 5" || !w.Watching() {
					t.Errorf("asked for %s; watching: %v", asks, w.Watching())
				}
				if rings := w.rings(); rings != "plainly" {
					t.Errorf("rung: %s", rings)
				}
				if lines := w.logged(); len(lines) != 1 || !strings.Contains(lines[0], tt.logs) {
					t.Errorf("logged %q; want %q once", lines, tt.logs)
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
