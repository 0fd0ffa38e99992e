// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/fakeapi/bubble"
)

// statusText writes down a status. Times count from start; "-" is one that is zero.
func statusText(m *apiutil.DynamicRESTMapper, start time.Time) string {
	synctest.Wait()
	s := m.Status()
	at := func(t time.Time) string {
		if t.IsZero() {
			return "-"
		}
		return t.Sub(start).String()
	}
	return fmt.Sprintf("%d groups, %d kinds; %d failures, failed %t; attempt %s, success %s, unhealthy %s; "+
		"%d versions failed; watching %t",
		s.Groups, s.Kinds, s.ConsecutiveFailures, s.LastError != nil, at(s.LastAttempt), at(s.LastSuccess),
		at(s.UnhealthySince), len(s.FailedGroupVersions), s.Watching)
}

// Healthz says since when the document has failed, and why.
func TestHealthzSaysSinceWhenAndWhy(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{UnhealthyAfter: time.Second, MaxAge: time.Hour})
		server.SetFault(fakeapi.All(), fakeapi.Status(503, 0))
		since := time.Now().UTC().Format(time.RFC3339)
		for range 3 {
			_ = m.Refresh(t.Context())
			time.Sleep(time.Second)
		}
		err := m.Healthz(nil)
		if text := fmt.Sprint(err); !errors.Is(err, m.Status().LastError) || strings.Contains(text, fakeapi.Token) {
			t.Errorf("%v; want the last error, and no token", err)
		}
		wantLine(t, []string{fmt.Sprint(err)}, since, "503", "/api", "3 times in a row")
	})
}

// recordedMetrics keeps its calls, one line each.
type recordedMetrics struct {
	mu       sync.Mutex
	lines    []string
	last     time.Time // Served's lastSuccess
	watching bool      // what Watching was last called with
}

func (m *recordedMetrics) add(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lines = append(m.lines, fmt.Sprintf(format, args...))
}

func (m *recordedMetrics) Request(path string, code int) { m.add("request %s %d", path, code) }

func (m *recordedMetrics) Miss(outcome string) { m.add("miss %s", outcome) }

func (m *recordedMetrics) Reload(reason string, duration time.Duration, err error) {
	m.add("reload %s %v %t", reason, duration, err == nil)
}

func (m *recordedMetrics) Served(generation uint64, groups, kinds int, lastSuccess time.Time) {
	m.add("served %d %d %d", generation, groups, kinds)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = lastSuccess
}

func (m *recordedMetrics) Watching(open bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watching = open
}

func (m *recordedMetrics) Followed(who string) { m.add("followed %s", who) }

func (m *recordedMetrics) WaitingKinds(gvk schema.GroupVersionKind, caches int) {
	m.add("waiting %s %d", kindText(gvk), caches)
}

// latest returns the last success, and what Watching was last called with.
func (m *recordedMetrics) latest() (success time.Time, watching bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last, m.watching
}

// take returns the lines so far, misses last: they come from another goroutine than the rest.
func (m *recordedMetrics) take() (lines []string) {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	lines, m.lines = m.lines, nil
	isMiss := func(line string) bool { return strings.HasPrefix(line, "miss") }
	misses := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !isMiss(line) })
	return append(slices.DeleteFunc(lines, isMiss), misses...)
}

// A server behind a path of a proxy has the same classes of paths.
func TestMetricsBehindPrefix(t *testing.T) {
	for _, prefix := range []string{"/k8s/clusters/c-1", "/apis-of/mine", "/api"} {
		bubble.Run(t, func(t *testing.T) {
			server, metrics := newServer(fakeapi.Aggregated()), &recordedMetrics{}
			cfg := server.Config()
			cfg.Host += prefix
			proxy := http.StripPrefix(prefix, server)
			m := must(apiutil.NewDynamicRESTMapperWithOptions(cfg, &http.Client{Transport: through(func(req *http.Request) (*http.Response, error) {
				answer := httptest.NewRecorder()
				proxy.ServeHTTP(answer, req)
				return answer.Result(), nil
			})}, apiutil.DynamicRESTMapperOptions{Metrics: metrics}))
			wantServed(t, m, fooKind)
			wantAbsent(t, m, schema.GroupVersionKind{Version: "v1", Kind: "Absent"})
			_, _ = m.RESTMapping(schema.GroupKind{Group: fooKind.Group, Kind: "Absent"})
			requests := slices.DeleteFunc(metrics.take(), func(line string) bool { return !strings.HasPrefix(line, "request") })
			const want = "request document 200; request document 200; request version 200; request version 200; request list 200"
			if got := strings.Join(requests, "; "); got != want {
				t.Errorf("behind %s: requests by their class: %s; want %s", prefix, got, want)
			}
		})
	}
}

// If very much has changed, the line names a part of it.
func TestLogOfManyChanges(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		log, logger := newTestLog()
		server := newServer(fakeapi.Aggregated())
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{Logger: logger})
		readAll(t, m)
		server.SetGroups(fakeapi.Typical(500, 1, 5)...)
		readAll(t, m)
		synctest.Wait()
		lines := log.take("INFO")
		wantLine(t, []string{strings.Join(lines, "\n")}, "g0001.example.com/v1", "and more", `"other.example.com/v1.Other"`)
		if n := slices.IndexFunc(lines, func(line string) bool { return len(line) > 2000 }); n >= 0 {
			t.Errorf("a line of %d bytes; want 2000 at most: %s", len(lines[n]), lines[n])
		}
	})
}

func withoutVerbose(lines []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return strings.HasPrefix(line, "V") })
}

func TestStatusAsJSON(t *testing.T) {
	at := time.Date(2026, 11, 21, 10, 30, 0, 0, time.UTC)
	for want, status := range map[string]apiutil.DynamicRESTMapperStatus{
		`{"generation":0,"groups":0,"kinds":0,"consecutiveFailures":0,"watching":false}`: {},
		`{"generation":7,"groups":2,"kinds":3,"lastAttempt":"2026-11-21T10:30:00Z","lastSuccess":"2026-11-21T10:30:00Z",` +
			`"consecutiveFailures":4,"unhealthySince":"2026-11-21T10:30:00Z","watching":true,` +
			`"lastError":"it \"failed\"","failedGroupVersions":{"apps/v1":"down","v1":"gone"}}`: {
			Generation:          7,
			Groups:              2,
			Kinds:               3,
			LastAttempt:         at,
			LastSuccess:         at,
			LastError:           errors.New(`it "failed"`),
			ConsecutiveFailures: 4,
			UnhealthySince:      at, Watching: true,
			FailedGroupVersions: map[schema.GroupVersion]error{
				{Group: "apps", Version: "v1"}: errors.New("down"), {Version: "v1"}: errors.New("gone"),
			},
		},
	} {
		if got, err := json.Marshal(status); err != nil || string(got) != want {
			t.Errorf("error %v\ngot  %s\nwant %s", err, got, want)
		}
	}
}

// debugGet asks a page.
func debugGet(t *testing.T, h http.Handler, target, accept string) *httptest.ResponseRecorder {
	t.Helper()
	synctest.Wait()
	req := httptest.NewRequest(http.MethodGet, target, nil)
	req.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	if w.Code != http.StatusOK {
		t.Errorf("%s: status %d", target, w.Code)
	}
	return w
}

// The page has the status, what is known, and by name what was read, what changed and what lookups
// did not find, the latest first. It sends no request. The log has the same lines.
func TestDebugHandler(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		log, logger := newTestLog()
		m := newMapper(
			t, server,
			apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute, NegativeTTL: time.Hour, Logger: logger},
		)
		h := m.DebugHandler()
		wantPage(t, h, "/?format=json", `"log": {}`, `"kinds": 0`)
		wantRequests(t, server, "the page, before any read")

		readAll(t, m)
		dead := fakeVersion("v1", "New")
		dead.Stale = true
		server.PutVersion(newKind.Group, dead)
		server.PutVersion("example.com", fakeVersion("v1", "Foo:cluster"))
		server.SetFault(fakeapi.Under("/apis/"+newKind.Group), fakeapi.Status(503, 0))
		readAll(t, m)
		_ = lookUp(m, newKind)
		for range 2 { // the second is answered from memory
			wantAbsent(t, m, lateKind)
			_, _ = m.KindFor(schema.GroupVersionResource{Group: "example.com", Resource: "absents"})
		}
		server.TakeRequests()
		page := debugGet(t, h, "/debug/restmapper?format=json", "text/html").Body.Bytes()
		wantRequests(t, server, "the page")

		var compact bytes.Buffer
		if err := json.Compact(&compact, page); err != nil {
			t.Errorf("the page is no JSON: %v", err)
		}
		text := regexp.MustCompile(`"(\w+)":"\d{4}-\d\d-\d\dT[^"]*"`).ReplaceAllString(compact.String(), `"$1":"a time"`)
		text = strings.NewReplacer(",{", ",\n{", "},\"", "},\n\"", "[{", "[\n{").Replace(text) + "\n"
		want := must(os.ReadFile("testdata/debug.json"))
		if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(text, "\n")); diff != "" {
			t.Errorf("the page in JSON, with line breaks (-testdata/debug.json +got):\n%s", diff)
		}
		wantPage(t, h, "/", `"kind": "Late"`, `"resource": "absents"`)
		for text, n := range map[string]int{
			`"looked up what is not served" "group"="example.com" "versions"=["v2"] "kind"="Late"`: 2,
			`"reason"="version" "group"="example.com" "version"="v2"`:                              1,
		} {
			if lines := log.containing(text); len(lines) != n {
				t.Errorf("logged %d lines with %s; want %d: %q", len(lines), text, n, lines)
			}
		}
	})
}

// The number of kept lines is bounded. They are there also from before somebody asks for the page.
func TestDebugKeepsTheLatest(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		wantAbsent(t, m, newKind)
		synctest.Wait()
		h := m.DebugHandler()
		wantPage(t, h, "/", `"looked up what is not served"`, `"kind": "New"`)
		for i := range 60 {
			server.PutVersion("example.com", fakeVersion("v1", []string{"Foo", "Foo:cluster"}[i%2]))
			readAll(t, m)
			wantAbsent(t, m, fooKind.GroupVersion().WithKind(fmt.Sprint("Absent", i)))
			synctest.Wait()
		}
		var page struct {
			Log map[string][]struct {
				Kind    string
				Changed []string
			}
		}
		if err := json.Unmarshal(debugGet(t, h, "/", "application/json").Body.Bytes(), &page); err != nil {
			t.Error(err)
		}
		for message, latest := range map[string]string{
			"reloaded API discovery": "[]", "looked up what is not served": "Absent59[]",
			"served APIs changed": "[example.com/v1.Foo]",
		} {
			if lines := page.Log[message]; len(lines) != 50 || fmt.Sprint(lines[0].Kind, lines[0].Changed) != latest {
				t.Errorf("%d lines of 60 or more with %q: %v; want the latest 50, and first %s", len(lines), message, lines, latest)
			}
		}
		missed := page.Log["looked up what is not served"]
		if oldest := missed[len(missed)-1].Kind; oldest != "Absent10" {
			t.Errorf("the oldest kept lookup is that of %s; want Absent10, 50 lookups ago", oldest)
		}
	})
}

// The page is HTML that no group, kind or error can break out of, and does not grow with the kinds that are
// served. A server that repeats the token that it was sent does not get it onto the page.
func TestDebugPageIsSafe(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		const evil = "<script>alert(1)</script>"
		server := fakeapi.New(fakeapi.Typical(300, 2, 10)...)
		token := server.Config().BearerToken
		refusal := echo(403, "application/json", func(sent string) string { return asStatus("refused: " + sent + evil) })
		server.SetFault(fakeapi.At("/apis/new.example.com/v1"), refusal)
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Hour})
		h := m.DebugHandler()
		readAll(t, m)
		_ = lookUp(m, newKind)
		synctest.Wait()
		for accept, want := range map[string]string{
			"": "text/html", "text/html,application/json": "text/html", "*/*": "text/html",
			"application/json": "application/json",
		} {
			w := debugGet(t, h, "/", accept)
			if got := w.Header().Get("Content-Type"); !strings.HasPrefix(got, want) {
				t.Errorf("Accept %q: Content-Type %q; want %s", accept, got, want)
			}
			if csp := w.Header().Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") ||
				!strings.Contains(csp, "frame-ancestors 'none'") {
				t.Errorf("Accept %q: Content-Security-Policy %q; want that nothing is loaded, and no frame", accept, csp)
			}
			cached, sniffed := w.Header().Get("Cache-Control"), w.Header().Get("X-Content-Type-Options")
			if cached != "no-store" || sniffed != "nosniff" {
				t.Errorf("Accept %q: Cache-Control %q, X-Content-Type-Options %q; want no-store and nosniff",
					accept, cached, sniffed)
			}
			body := w.Body.String()
			if token == "" || strings.Contains(body, token) || strings.Contains(body, evil) ||
				strings.Contains(body, "%!") || !strings.Contains(body, "refused") {
				t.Errorf("Accept %q: want the error, and neither a tag of it nor the token %q:\n%s", accept, token, body)
			}
			if small := want == "text/html"; (len(body) < 16<<10) != small || (len(body) > 100<<10) == small {
				t.Errorf("Accept %q: %d bytes for 300 groups; want less than 16 KiB of HTML, and all kinds in JSON",
					accept, len(body))
			}
		}
		wantPage(
			t, h, "/", "<!doctype html>", "new.example.com", `"refreshInterval": "1h0m0s"`, `"started": false`,
			`\u003cscript\u003e`, "</html>",
		)
	})
}

func wantPage(t *testing.T, h http.Handler, target string, wants ...string) {
	t.Helper()
	page := debugGet(t, h, target, "text/html").Body.String()
	for _, want := range wants {
		if !strings.Contains(page, want) {
			t.Errorf("%s: no %q in\n%s", target, want, page)
		}
	}
}
