// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"cmp"
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

// A version that fails is in the status until it recovers, and says nothing against the health
// of the server.
func TestFailedVersionSaysNothingOfTheServer(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{UnhealthyAfter: time.Second, RefreshInterval: time.Minute})
		dead := fakeVersion("v1", "New")
		dead.Stale = true
		server.PutVersion(newKind.Group, dead)
		heal := server.SetFault(fakeapi.At("/apis/other.example.com/v1"), fakeapi.Status(503, 0))
		defer startMapper(t, m)()
		readAll(t, m)
		m.ResetGroup(otherKind.Group)
		_ = lookUp(m, otherKind)
		time.Sleep(10 * time.Minute)
		status := m.Status()
		if failed := status.FailedGroupVersions; len(failed) != 2 || failed[newKind.GroupVersion()] == nil || failed[otherKind.GroupVersion()] == nil {
			t.Errorf("failed group-versions: %v", failed)
		}
		if err := m.Healthz(nil); err != nil || !status.UnhealthySince.IsZero() {
			t.Errorf("the server is healthy, but: %v, %+v", err, status)
		}
		status.FailedGroupVersions[schema.GroupVersion{}] = errors.New("spoiled") // it belongs to the caller

		heal()
		serve(server, newKind)
		time.Sleep(2 * time.Minute)
		wantServed(t, m, otherKind, newKind) // without the aggregated document only a lookup asks for what was never read
		if failed := m.Status().FailedGroupVersions; len(failed) != 0 {
			t.Errorf("failed group-versions after recovery: %v", failed)
		}
	})
}

// Healthz fails once reads of the document have failed for longer than UnhealthyAfter, and
// says since when and why.
func TestHealthzFailsWhileTheDocumentFails(t *testing.T) {
	for _, after := range []time.Duration{0, time.Second, 10 * time.Minute} {
		eachServer(t, func(t *testing.T, server *fakeapi.Server) {
			m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{UnhealthyAfter: after, RefreshInterval: time.Minute})
			defer startMapper(t, m)()
			for range 3 {
				time.Sleep(10 * time.Minute)
				heal := server.SetFault(fakeapi.All(), fakeapi.Status(503, 0))
				for m.Status().ConsecutiveFailures == 0 {
					time.Sleep(time.Second)
				}
				since := m.Status().UnhealthySince
				time.Sleep(time.Until(since.Add(cmp.Or(after, 2*time.Minute))))
				if err := m.Healthz(nil); err != nil || time.Since(since) > cmp.Or(after, 2*time.Minute)+2*time.Second {
					t.Errorf("while failures are young, since %v: %v", since, err)
				}
				// Only another failure shows that the server still fails. The next read comes
				// after 2 minutes at most.
				time.Sleep(133 * time.Second)
				err := m.Healthz(&http.Request{})
				if err == nil || !errors.Is(err, m.Status().LastError) || strings.Contains(err.Error(), fakeapi.Token) {
					t.Fatalf("after failures for %v: %v; want the last error, and no token", time.Since(since), err)
				}
				for _, want := range []string{since.UTC().Format(time.RFC3339), "503", "/api", "in a row"} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("no %q in: %v", want, err)
					}
				}
				heal()
				time.Sleep(133 * time.Second) // until the next refresh, at the latest
				if err := m.Healthz(nil); err != nil {
					t.Errorf("after a success: %v", err)
				}
			}
		})
	}
}

// recordedMetrics keeps its calls, one line each.
type recordedMetrics struct {
	mu    sync.Mutex
	lines []string
	last  time.Time // Served's lastSuccess
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
				client := &http.Client{Transport: withoutPrefix{server.Client().Transport, prefix}}
				m, err := apiutil.NewDynamicRESTMapperWithOptions(cfg, client, apiutil.DynamicRESTMapperOptions{Metrics: metrics})
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
					"request bulk 200", "request bulk 200",
					"request version 200", "request group 200", "request version 200",
				}; !slices.Equal(requests, want) {
					t.Errorf("%q; want %q", requests, want)
				}
			})
		})
	}
}

// withoutPrefix is the proxy.
type withoutPrefix struct {
	next   http.RoundTripper
	prefix string
}

func (p withoutPrefix) RoundTrip(req *http.Request) (*http.Response, error) {
	inner := req.Clone(req.Context())
	inner.URL.Path = strings.TrimPrefix(req.URL.Path, p.prefix)
	return p.next.RoundTrip(inner)
}

type watchingMetrics struct{ recordedMetrics }

func (m *watchingMetrics) Watching(open bool) { m.add("watching %t", open) }

// lastState returns what was said of watches last, or "" if nothing was.
func (m *watchingMetrics) lastState() (said string) {
	for _, line := range m.take() {
		if strings.HasPrefix(line, "watching") {
			said = line
		}
	}
	return said
}

// A watch that is lost is seen in the metrics, even if nobody looks anything up.
func TestMetricsOfWatches(t *testing.T) {
	metrics := &watchingMetrics{}
	watchInBubble(t, apiutil.DynamicRESTMapperOptions{Metrics: metrics}, nil,
		func(t *testing.T, server *fakeapi.Server, watched *watchServer, m *apiutil.DynamicRESTMapper) {
			settled(t, server, m)
			if said := metrics.lastState(); said != "watching true" {
				t.Errorf("begun: %q", said)
			}
			watched.lists[apiServicesPath].setFailure(listFailure{refused: true})
			time.Sleep(time.Minute)
			if said := metrics.lastState(); said != "watching false" {
				t.Errorf("lost: %q", said)
			}
		})
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

// Reloads are logged at level 1 with their reason, which is what was read. Of lookups only
// those that find nothing are logged.
func TestLogOfReloads(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		log, logger := newTestLog()
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{Logger: logger, RefreshInterval: time.Minute})
		server.SetLatency(100 * time.Millisecond) // so that a line is written before the next read is over
		read := func(reason string) string {
			return fmt.Sprintf(`V1 "msg"="reloaded API discovery" "reason"=%q `, reason)
		}
		const absent = `V1 "msg"="looked up what is not served" "group"=`
		for _, step := range []struct {
			what string
			do   func()
			want []string
		}{
			{"the first lookup", func() { wantServed(t, m, fooKind) }, []string{read("document")}},
			{"hits", func() { wantServed(t, m, fooKind, barKind, otherKind) }, nil},
			{"a miss", func() { wantAbsent(t, m, newKind) }, []string{read("version"), absent}},
			{"in a group", func() { _, _ = m.RESTMapping(schema.GroupKind{Group: fooKind.Group, Kind: "Absent"}) }, []string{read("version"), read("group"), absent}},
			{"in any group", func() { _, _ = m.KindFor(schema.GroupVersionResource{Resource: "absents"}) }, []string{read("document"), absent}},
			{"a reset", m.Reset, nil},
			{"a lookup after it", func() { wantServed(t, m, fooKind) }, []string{read("document")}},
		} {
			step.do()
			synctest.Wait()
			lines := log.take("")
			if !slices.EqualFunc(lines, step.want, strings.HasPrefix) {
				t.Errorf("%s: %q; want %q", step.what, lines, step.want)
			}
		}
	})
}

func withoutVerbose(lines []string) []string {
	var rest []string
	for _, line := range lines {
		if !strings.HasPrefix(line, "V1") {
			rest = append(rest, line)
		}
	}
	return rest
}
