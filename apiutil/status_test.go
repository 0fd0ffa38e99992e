// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
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
	return fmt.Sprintf("%d groups, %d kinds; %d failures, failed %t; attempt %s, success %s, unhealthy %s; %d versions failed; watching %t",
		s.Groups, s.Kinds, s.ConsecutiveFailures, s.LastError != nil, at(s.LastAttempt), at(s.LastSuccess), at(s.UnhealthySince), len(s.FailedGroupVersions), s.Watching)
}

// Healthz fails once reads of the document have failed for longer than UnhealthyAfter, and
// says since when and why.
func TestHealthzSaysSinceWhenAndWhy(t *testing.T) {
	for opt, after := range map[time.Duration]time.Duration{0: 2 * time.Minute, time.Second: time.Second, 10 * time.Minute: 10 * time.Minute} {
		eachServer(t, func(t *testing.T, server *fakeapi.Server) {
			m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{UnhealthyAfter: opt, RefreshInterval: time.Minute})
			defer startMapper(t, m)()
			server.SetFault(fakeapi.All(), fakeapi.Status(503, 0))
			for m.Status().ConsecutiveFailures == 0 {
				time.Sleep(time.Second)
			}
			since := m.Status().UnhealthySince
			time.Sleep(time.Until(since.Add(after)))
			if err := m.Healthz(nil); err != nil {
				t.Errorf("failures for %v: %v; want none before %v have passed", time.Since(since), err, after)
			}
			// Only another failure shows that the server still fails: after 2 minutes at most.
			time.Sleep(133 * time.Second)
			err := m.Healthz(&http.Request{})
			if err == nil || !errors.Is(err, m.Status().LastError) || strings.Contains(err.Error(), fakeapi.Token) {
				t.Fatalf("failures for %v: %v; want the last error, and no token", time.Since(since), err)
			}
			for _, want := range []string{since.UTC().Format(time.RFC3339), "503", "/api", "in a row"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in: %v", want, err)
				}
			}
		})
	}
}

// A failure after an idle time longer than UnhealthyAfter begins a new row: nobody knows what was in
// between. An outage under use is one row, whatever the pauses of the mapper's own.
func TestHealthzAfterIdleTime(t *testing.T) {
	for idle, options := range map[time.Duration]apiutil.DynamicRESTMapperOptions{
		5 * time.Hour:                  {},
		3 * time.Minute:                {},
		4 * time.Minute:                {MaxAge: -1, RequestTimeout: time.Second, UnhealthyAfter: 200 * time.Second},
		400 * time.Second:              {MaxAge: time.Minute},
		time.Minute:                    {MaxAge: -1, RequestTimeout: time.Second, UnhealthyAfter: 10 * time.Second},
		7 * 24 * time.Hour:             {UnhealthyAfter: time.Hour},
		10*time.Hour + 1:               {MaxAge: 4 * time.Hour},
		2*time.Minute + 20*time.Second: {UnhealthyAfter: time.Second},
	} {
		eachServer(t, func(t *testing.T, server *fakeapi.Server) {
			m := newMapper(t, server, options)
			wantServed(t, m, fooKind)
			server.SetFault(fakeapi.All(), fakeapi.Refused())
			for range 3 {
				if m.Refresh(t.Context()) == nil {
					t.Fatal("refreshed")
				}
				synctest.Wait()
				if err := m.Healthz(nil); err != nil {
					t.Errorf("the first failure after %v: %v", idle, err)
				}
				if s := m.Status(); s.ConsecutiveFailures != 1 || time.Since(s.UnhealthySince) > time.Second {
					t.Errorf("the first failure after %v: %d, since %v", idle, s.ConsecutiveFailures, time.Since(s.UnhealthySince))
				}
				time.Sleep(idle)
			}
			limit := max(options.UnhealthyAfter, 2*time.Minute) + 4*max(options.MaxAge, 30*time.Second) + time.Minute
			for start := time.Now(); options.MaxAge >= 0 && m.Healthz(nil) == nil; time.Sleep(time.Second) {
				wantServed(t, m, fooKind)
				if time.Since(start) > limit {
					t.Fatalf("an outage of %v under use is healthy: %+v", limit, m.Status())
				}
			}
		})
	}
}

// recordedMetrics keeps its calls, one line each.
type recordedMetrics struct {
	mu       sync.Mutex
	lines    []string
	last     time.Time // Served's lastSuccess
	watching bool      // what was said of watches last
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

// take returns the lines so far, misses last: they come from another goroutine
// than the rest.
func (m *recordedMetrics) take() []string {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	lines := m.lines
	m.lines = nil
	slices.SortStableFunc(lines, func(a, b string) int {
		isMiss := func(line string) int { return len(line) - len(strings.TrimPrefix(line, "miss")) }
		return isMiss(a) - isMiss(b)
	})
	return lines
}

// A server behind a path of a proxy has the same classes of paths.
func TestMetricsBehindPrefix(t *testing.T) {
	for _, prefix := range []string{"/k8s/clusters/c-1", "/apis-of/mine", "/api"} {
		t.Run(prefix, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				server := newServer(fakeapi.Aggregated())
				metrics := &recordedMetrics{}
				cfg := server.Config()
				cfg.Host += prefix
				proxy := through(func(req *http.Request) (*http.Response, error) {
					req = req.Clone(req.Context())
					req.URL.Path = strings.TrimPrefix(req.URL.Path, prefix)
					return server.Client().Transport.RoundTrip(req)
				})
				m, err := apiutil.NewDynamicRESTMapperWithOptions(cfg, &http.Client{Transport: proxy}, apiutil.DynamicRESTMapperOptions{Metrics: metrics})
				if err != nil {
					t.Fatal(err)
				}
				_, _ = m.RESTMapping(schema.GroupKind{Group: fooKind.Group, Kind: "Foo"})
				_, _ = m.RESTMapping(schema.GroupKind{Group: fooKind.Group, Kind: "Absent"})
				_, _ = m.RESTMapping(schema.GroupKind{Kind: "Absent"}, "v1")
				var requests []string
				for _, line := range metrics.take() {
					if strings.HasPrefix(line, "request") {
						requests = append(requests, line)
					}
				}
				if want := []string{
					"request document 200", "request document 200",
					"request version 200", "request list 200", "request version 200",
				}; !slices.Equal(requests, want) {
					t.Errorf("%q; want %q", requests, want)
				}
			})
		})
	}
}

// If very much has changed, the line names a part of it.
func TestLogOfManyChanges(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		log, logger := newTestLog()
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{Logger: logger})
		readAll(t, m)
		server.SetGroups(fakeapi.Typical(500, 1, 5)...)
		readAll(t, m)
		synctest.Wait()
		lines := log.take("INFO")
		wantLine(t, []string{strings.Join(lines, "\n")}, "g0001.example.com/v1", "and more", `"other.example.com/v1.Other"`)
		for _, line := range lines {
			if len(line) > 2000 {
				t.Errorf("a line of %d bytes", len(line))
			}
		}
	})
}

func withoutVerbose(lines []string) []string {
	var rest []string
	for _, line := range lines {
		if !strings.HasPrefix(line, "V") {
			rest = append(rest, line)
		}
	}
	return rest
}
