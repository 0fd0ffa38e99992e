// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"slices"
	"testing"
	"time"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

type watchingMetrics struct{ recordedMetrics }

func (m *watchingMetrics) Watching(open bool) { m.add("watching %t", open) }

// taken returns what was said of watches, each state once.
func (m *watchingMetrics) taken() []string {
	said := slices.DeleteFunc(m.take(), func(line string) bool { return len(line) < 8 || line[:8] != "watching" })
	return slices.Compact(said)
}

// A watch that is lost is seen in the metrics, even if nobody looks anything up.
func TestMetricsOfWatches(t *testing.T) {
	metrics := &watchingMetrics{}
	watchInBubble(t, apiutil.DynamicRESTMapperOptions{Metrics: metrics}, nil,
		func(t *testing.T, server *fakeapi.Server, watched *watchServer, m *apiutil.DynamicRESTMapper) {
			want := func(what string, states ...string) {
				t.Helper()
				if got := metrics.taken(); !slices.Equal(got, states) {
					t.Errorf("%s: %q, want %q", what, got, states)
				}
			}
			settled(t, server, m)
			want("begun", "watching false", "watching true")
			watched.lists[apiServicesPath].setFailure(listFailure{refused: true})
			time.Sleep(time.Minute)
			want("lost", "watching false")
		})
}
