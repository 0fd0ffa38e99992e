// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"strings"
	"testing"
	"time"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

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
