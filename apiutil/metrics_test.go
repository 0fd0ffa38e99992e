// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
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

func (m *recordedMetrics) want(t *testing.T, what string, want ...string) {
	t.Helper()
	if got := m.take(); !slices.Equal(got, want) {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

func TestMetrics(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		metrics := &recordedMetrics{}
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{Metrics: metrics, NegativeTTL: time.Minute, RefreshInterval: time.Hour})
		metrics.want(t, "the constructor")
		server.SetLatency(100 * time.Millisecond)
		wantServed(t, m, fooKind)
		metrics.want(t, "the first lookup", "request bulk 200", "request bulk 200", "reload document 200ms true", "served 1 3 5", "miss found")
		if !metrics.last.Equal(m.Status().LastSuccess) {
			t.Errorf("the last success was at %v, they are told %v", m.Status().LastSuccess, metrics.last)
		}
		wantServed(t, m, fooKind, barKind, otherKind)
		metrics.want(t, "hits")

		wantAbsent(t, m, newKind)
		metrics.want(t, "a miss", "request version 404", "reload version 100ms true", "served 1 3 5", "miss absent")
		wantAbsent(t, m, newKind)
		metrics.want(t, "a miss that is remembered")
		core := schema.GroupVersionKind{Version: "v1", Kind: "Absent"}
		wantAbsent(t, m, core)
		metrics.want(t, "a miss in the core group", "request version 200", "reload version 100ms true", "served 1 3 5", "miss absent")
		_, _ = m.RESTMapping(schema.GroupKind{Group: fooKind.Group, Kind: "Absent"})
		metrics.want(t, "a miss without a version",
			"request version 200", "reload version 100ms true", "served 1 3 5",
			"request group 200", "reload group 100ms true", "served 1 3 5", "miss absent")

		serve(server, newKind)
		m.Reset()
		metrics.want(t, "a reset")
		wantServed(t, m, newKind)
		metrics.want(t, "a lookup after it", "request bulk 304", "request bulk 200", "reload document 200ms true", "served 2 4 6", "miss found")

		server.SetFault(fakeapi.All(), fakeapi.Status(503, 0))
		_ = lookUp(m, core) // remembered, but for the change
		metrics.want(t, "a 503", "request version 503", "reload version 100ms false", "served 2 4 6", "miss failed")
		success := m.Status().LastSuccess
		server.SetFault(fakeapi.All(), fakeapi.Refused())
		m.Reset()
		wantServed(t, m, fooKind)
		metrics.want(t, "no connection, a known kind", "request bulk 0", "reload document 100ms false", "served 2 4 6", "miss found")
		if !metrics.last.Equal(success) {
			t.Errorf("the last success was at %v, they are told %v", success, metrics.last)
		}
		server.ClearFaults()
		stop := startMapper(t, m)
		time.Sleep(time.Second)
		metrics.want(t, "a refresh", "request bulk 304", "request bulk 304", "reload document 200ms true", "served 2 4 6")
		stop()
	})
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
