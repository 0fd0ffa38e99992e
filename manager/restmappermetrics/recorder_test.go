// SPDX-License-Identifier: Apache-2.0

package restmappermetrics_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/manager/restmappermetrics"
)

// After one lookup that finds, two hits, one lookup that does not find, and one
// that cannot find out.
const scrape = `
# HELP controller_runtime_restmapper_followed_total How often a client or a cache has followed a kind to another path.
# TYPE controller_runtime_restmapper_followed_total counter
controller_runtime_restmapper_followed_total{what="cache"} 1
# HELP controller_runtime_restmapper_generation Moves when the served APIs change.
# TYPE controller_runtime_restmapper_generation gauge
controller_runtime_restmapper_generation 1
# HELP controller_runtime_restmapper_groups API groups that are known to be served.
# TYPE controller_runtime_restmapper_groups gauge
controller_runtime_restmapper_groups 4
# HELP controller_runtime_restmapper_kinds Kinds that are known to be served; one counts once for each version.
# TYPE controller_runtime_restmapper_kinds gauge
controller_runtime_restmapper_kinds 25
# HELP controller_runtime_restmapper_misses_total Lookups that the API server was read for, by outcome (found, absent, failed).
# TYPE controller_runtime_restmapper_misses_total counter
controller_runtime_restmapper_misses_total{outcome="absent"} 1
controller_runtime_restmapper_misses_total{outcome="failed"} 1
controller_runtime_restmapper_misses_total{outcome="found"} 1
# HELP controller_runtime_restmapper_reloads_total Reads of the API server, by what was read (document, list, version) and result (success, error).
# TYPE controller_runtime_restmapper_reloads_total counter
controller_runtime_restmapper_reloads_total{reason="document",result="success"} 1
controller_runtime_restmapper_reloads_total{reason="version",result="error"} 1
controller_runtime_restmapper_reloads_total{reason="version",result="success"} 1
# HELP controller_runtime_restmapper_requests_total Discovery requests, by class of path (document, list, version) and status code.
# TYPE controller_runtime_restmapper_requests_total counter
controller_runtime_restmapper_requests_total{code="200",path="document"} 2
controller_runtime_restmapper_requests_total{code="200",path="version"} 1
controller_runtime_restmapper_requests_total{code="<error>",path="version"} 1
`

func TestRecorder(t *testing.T) {
	groups := fakeapi.Typical(3, 2, 3)
	server := fakeapi.New(groups...)
	started := time.Now()

	recorder, err := restmappermetrics.New(metrics.Registry)
	if err != nil {
		t.Fatal(err)
	}
	mapper, err := apiutil.NewDynamicRESTMapperWithOptions(server.Config(), server.Client(), apiutil.DynamicRESTMapperOptions{Metrics: recorder})
	if err != nil {
		t.Fatal(err)
	}
	last := groups[len(groups)-1]
	version := last.Versions[0]
	for range 3 {
		if _, err := mapper.RESTMapping(schema.GroupKind{Group: last.Name, Kind: version.Resources[0].Kind}, version.Name); err != nil {
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

	var names []string
	for _, line := range strings.Split(scrape, "\n") {
		if name, ok := strings.CutPrefix(line, "# TYPE "); ok {
			names = append(names, strings.Fields(name)[0])
		}
	}
	// A reload is reported once nobody waits for it any more.
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if err := testutil.GatherAndCompare(metrics.Registry, strings.NewReader(scrape), names...); err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	at := 0.0
	for _, family := range families {
		if family.GetName() == "controller_runtime_restmapper_last_success_timestamp_seconds" {
			at = family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	if at < float64(started.Unix()) || at > float64(time.Now().Unix()+1) {
		t.Errorf("the last success was at %v", at)
	}
	if n, err := testutil.GatherAndCount(metrics.Registry, "controller_runtime_restmapper_reload_duration_seconds"); n != 2 || err != nil {
		t.Errorf("%d histograms, %v; want those of document and version", n, err)
	}
	if _, err := restmappermetrics.New(metrics.Registry); !errors.As(err, &prometheus.AlreadyRegisteredError{}) {
		t.Errorf("a second recorder: %v", err)
	}
	if _, err := restmappermetrics.New(prometheus.WrapRegistererWith(prometheus.Labels{"cluster": "b"}, prometheus.NewRegistry())); err != nil {
		t.Errorf("one of its own, with a label: %v", err)
	}
}
