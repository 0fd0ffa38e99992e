// SPDX-License-Identifier: Apache-2.0

// Package restmappermetrics exports what a DynamicRESTMapper does as Prometheus metrics, under names like those of
// controller-runtime's own. Use it if your program sets MapperProvider or makes the mapper itself. fresh.NewManager
// and the patched controller-runtime register the same metrics without it.
//
//	recorder, err := restmappermetrics.New(metrics.Registry) // sigs.k8s.io/controller-runtime/pkg/metrics
//	options.MapperProvider = apiutil.DynamicRESTMapperProvider(apiutil.DynamicRESTMapperOptions{Metrics: recorder})
//
// Several mappers, for example of several clusters, need a label to be told apart:
//
//	prometheus.WrapRegistererWith(prometheus.Labels{"cluster": name}, metrics.Registry)
//
// The metrics are:
//
//	controller_runtime_restmapper_requests_total{path,code}
//	controller_runtime_restmapper_reloads_total{reason,result}
//	controller_runtime_restmapper_reload_duration_seconds{reason}
//	controller_runtime_restmapper_misses_total{outcome}
//	controller_runtime_restmapper_followed_total{what}
//	controller_runtime_restmapper_generation
//	controller_runtime_restmapper_groups
//	controller_runtime_restmapper_kinds
//	controller_runtime_restmapper_last_success_timestamp_seconds
//	controller_runtime_restmapper_watching
//	controller_runtime_restmapper_waiting_caches{group,version,kind}
//
// Two alerts that are worth having:
//
//	time() - controller_runtime_restmapper_last_success_timestamp_seconds > 3 * 600  # RefreshInterval: 10 minutes
//	rate(controller_runtime_restmapper_misses_total{outcome="absent"}[5m]) > 1       # something polls for an absent kind
package restmappermetrics

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
)

// Recorder is an apiutil.DynamicRESTMapperMetrics. Its methods may be called from
// any goroutine.
type Recorder struct {
	requests, reloads, misses, followed    *prometheus.CounterVec
	durations                              *prometheus.HistogramVec
	generation, groups, kinds, lastSuccess *prometheus.GaugeVec // no series before the first read
	watching                               *prometheus.GaugeVec // no series without WatchAPIs
	waiting                                *prometheus.GaugeVec // a series for each kind that is waited for
}

var _ apiutil.DynamicRESTMapperMetrics = (*Recorder)(nil)

// New makes a recorder and registers its metrics. It returns an error if the
// registerer has metrics of these names already, for example from a recorder before this one.
func New(registerer prometheus.Registerer) (*Recorder, error) {
	r := newRecorder()
	for _, c := range r.collectors() {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("register the RESTMapper's metrics: %w", err)
		}
	}
	return r, nil
}

// Shared is New for several mappers that count together: if the registerer has the metrics of a recorder already,
// those are used.
func Shared(registerer prometheus.Registerer) (*Recorder, error) {
	r := newRecorder()
	for _, err := range []error{
		share(registerer, &r.requests),
		share(registerer, &r.reloads),
		share(registerer, &r.misses),
		share(registerer, &r.followed),
		share(registerer, &r.durations),
		share(registerer, &r.generation),
		share(registerer, &r.groups),
		share(registerer, &r.kinds),
		share(registerer, &r.lastSuccess),
		share(registerer, &r.watching),
		share(registerer, &r.waiting),
	} {
		if err != nil {
			return nil, fmt.Errorf("register the RESTMapper's metrics: %w", err)
		}
	}
	return r, nil
}

// share registers a collector, or replaces it with the one of its name that is registered.
func share[C prometheus.Collector](registerer prometheus.Registerer, c *C) error {
	err := registerer.Register(*c)
	var registered prometheus.AlreadyRegisteredError
	if !errors.As(err, &registered) {
		return err
	}
	existing, ok := registered.ExistingCollector.(C)
	if !ok {
		return err
	}
	*c = existing
	return nil
}

func newRecorder() *Recorder {
	return &Recorder{
		requests: counter("requests_total",
			"Discovery requests, by class of path (document, list, version) and status code.", "path", "code"),
		reloads: counter("reloads_total",
			"Reads of the API server, by what was read (document, list, version) and result (success, error).",
			"reason", "result"),
		misses: counter("misses_total",
			"Lookups that the API server was read for, by outcome (found, absent, failed).", "outcome"),
		followed: counter("followed_total", "How often a client or a cache has switched a kind to another path.",
			"what"),
		generation: gauge("generation", "Grows when the served APIs change."),
		groups:     gauge("groups", "API groups that are known to be served."),
		kinds:      gauge("kinds", "Kinds that are known to be served; one counts once for each version."),
		lastSuccess: gauge("last_success_timestamp_seconds",
			"When the API server was last read with success, 0 if never."),
		watching: gauge("watching", "Whether all watches of WatchAPIs are open (1) or not (0)."),
		waiting:  gauge("waiting_caches", "Caches that wait for a kind to be served.", "group", "version", "kind"),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Subsystem: subsystem,
			Name:      "reload_duration_seconds",
			Help:      "How long in seconds reads of the API server take, by what was read.",
			Buckets:   []float64{0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"reason"}),
	}
}

func (r *Recorder) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		r.requests, r.reloads, r.misses, r.followed, r.durations, r.generation, r.groups, r.kinds,
		r.lastSuccess, r.watching, r.waiting,
	}
}

const subsystem = "controller_runtime_restmapper"

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: subsystem, Name: name, Help: help}, labels)
}

func gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Subsystem: subsystem, Name: name, Help: help}, labels)
}

// Request counts a request. The code is 0 if there was no answer.
func (r *Recorder) Request(path string, code int) {
	status := strconv.Itoa(code)
	if code == 0 {
		status = "<error>" // as in rest_client_requests_total
	}
	r.requests.WithLabelValues(path, status).Inc()
}

// Reload counts a read of the server and how long it took.
func (r *Recorder) Reload(reason string, duration time.Duration, err error) {
	result := "success"
	if err != nil {
		result = "error"
	}
	r.reloads.WithLabelValues(reason, result).Inc()
	r.durations.WithLabelValues(reason).Observe(duration.Seconds())
}

// Miss counts a lookup that could not be answered from what was known.
func (r *Recorder) Miss(outcome string) { r.misses.WithLabelValues(outcome).Inc() }

// Followed counts that a client or a cache has switched a kind to another path.
func (r *Recorder) Followed(who string) { r.followed.WithLabelValues(who).Inc() }

// Served sets what is known now.
func (r *Recorder) Served(generation uint64, groups, kinds int, lastSuccess time.Time) {
	r.generation.WithLabelValues().Set(float64(generation))
	r.groups.WithLabelValues().Set(float64(groups))
	r.kinds.WithLabelValues().Set(float64(kinds))
	r.lastSuccess.WithLabelValues().Set(max(0, float64(lastSuccess.UnixMilli())/1000)) // the zero time is below 0
}

// Watching sets whether all watches are open.
func (r *Recorder) Watching(open bool) {
	value := 0.0
	if open {
		value = 1
	}
	r.watching.WithLabelValues().Set(value)
}

// WaitingKinds sets how many caches wait for a kind.
func (r *Recorder) WaitingKinds(gvk schema.GroupVersionKind, caches int) {
	if caches == 0 {
		r.waiting.DeleteLabelValues(gvk.Group, gvk.Version, gvk.Kind)
		return
	}
	r.waiting.WithLabelValues(gvk.Group, gvk.Version, gvk.Kind).Set(float64(caches))
}
