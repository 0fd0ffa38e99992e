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
