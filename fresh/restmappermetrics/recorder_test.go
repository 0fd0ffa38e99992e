// SPDX-License-Identifier: Apache-2.0

package restmappermetrics_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/fresh/restmappermetrics"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// After one lookup that finds, two hits, one lookup that does not find, and one that cannot find out.
const scrape = `followed_total what=cache 1
generation 1
groups 4
kinds 25
misses_total outcome=absent 1
misses_total outcome=failed 1
misses_total outcome=found 1
reload_duration_seconds reason=document 1
reload_duration_seconds reason=version 2
reloads_total reason=document result=success 1
reloads_total reason=version result=error 1
reloads_total reason=version result=success 1
requests_total code=200 path=document 2
requests_total code=200 path=version 1
requests_total code=<error> path=version 1
`

// scraped is what a registry has, a value a line, and the time of the last success.
func scraped(t *testing.T, registry prometheus.Gatherer) (text string, lastSuccess float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			line := strings.TrimPrefix(family.GetName(), "controller_runtime_restmapper_")
			for _, label := range metric.GetLabel() {
				line += fmt.Sprintf(" %s=%s", label.GetName(), label.GetValue())
			}
			// It is one of the three; of a histogram we want how much it has counted.
			value := metric.GetGauge().GetValue() + metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
			if line == "last_success_timestamp_seconds" {
				lastSuccess = value
			} else {
				text += fmt.Sprintln(line, value)
			}
		}
	}
	return text, lastSuccess
}

func TestRecorder(t *testing.T) {
	groups := fakeapi.Typical(3, 2, 3)
	server := fakeapi.New(groups...)
	started := time.Now()
	registry := prometheus.NewRegistry()
	recorder, err := restmappermetrics.New(registry)
	if err != nil {
		t.Fatal(err)
	}
	if before, _ := scraped(t, registry); before != "" {
		t.Errorf("before anything was read the metrics are\n%s", before)
	}
	mapper, err := apiutil.NewDynamicRESTMapperWithOptions(server.Config(), server.Client(),
		apiutil.DynamicRESTMapperOptions{Metrics: recorder})
	if err != nil {
		t.Fatal(err)
	}
	last := groups[len(groups)-1]
	version := last.Versions[0]
	for range 3 {
		if _, err := mapper.RESTMapping(schema.GroupKind{Group: last.Name, Kind: version.Resources[0].Kind},
			version.Name); err != nil {
			t.Fatal(err)
		}
	}
	absent := schema.GroupKind{Group: last.Name, Kind: "Absent"}
	if _, err := mapper.RESTMapping(absent, version.Name); !meta.IsNoMatchError(err) {
		t.Fatal(err)
	}
	server.SetFault(fakeapi.All(), fakeapi.Refused())
	if _, err := mapper.RESTMapping(absent, version.Name); err == nil || meta.IsNoMatchError(err) {
		t.Fatal(err)
	}

	recorder.Followed("cache") // as a cache of fresh does
	// A reload is reported once nobody waits for it any more.
	got, at := scraped(t, registry)
	for deadline := time.Now().Add(time.Minute); got != scrape &&
		time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		got, at = scraped(t, registry)
	}
	if got != scrape {
		t.Errorf("the metrics are\n%swant\n%s", got, scrape)
	}
	if at < float64(started.Unix()) || at > float64(time.Now().Unix()+1) {
		t.Errorf("the last success was at %v, want a time after the test began at %v", at, started.Unix())
	}
	if _, err := restmappermetrics.New(registry); !errors.As(err, &prometheus.AlreadyRegisteredError{}) {
		t.Errorf("a second recorder: %v", err)
	}
	if _, err := restmappermetrics.New(prometheus.WrapRegistererWith(prometheus.Labels{"cluster": "b"},
		prometheus.NewRegistry())); err != nil {
		t.Errorf("one of its own, with a label: %v", err)
	}
}

// Whether all watches are open, and how many caches wait for a kind, are what was reported last. A kind for which none
// waits any more has no series.
func TestGaugesHaveWhatWasReportedLast(t *testing.T) {
	registry := prometheus.NewRegistry()
	recorder, err := restmappermetrics.New(registry)
	if err != nil {
		t.Fatal(err)
	}
	widget := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	gadget := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"}
	for _, step := range []struct {
		open             bool
		widgets, gadgets int
		want             string
	}{
		{true, 2, 1, `waiting_caches group=example.com kind=Gadget version=v1 1
waiting_caches group=example.com kind=Widget version=v1 2
watching 1
`},
		{false, 1, 0, `waiting_caches group=example.com kind=Widget version=v1 1
watching 0
`},
		{true, 0, 0, "watching 1\n"},
	} {
		recorder.Watching(step.open)
		recorder.WaitingKinds(widget, step.widgets)
		recorder.WaitingKinds(gadget, step.gadgets)
		if got, _ := scraped(t, registry); got != step.want {
			t.Errorf("after %+v the metrics are\n%swant\n%s", step, got, step.want)
		}
	}
}
