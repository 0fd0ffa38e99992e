// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// askingMetrics looks something up at each call, except at calls that its own lookups
// cause.
type askingMetrics struct {
	ask   func()
	asked atomic.Int32
	busy  atomic.Bool
}

func (m *askingMetrics) once() {
	if m.busy.Swap(true) {
		return
	}
	defer m.busy.Store(false)
	m.asked.Add(1)
	m.ask()
}

func (m *askingMetrics) Request(string, int) { m.once() }

func (m *askingMetrics) Reload(string, time.Duration, error) { m.once() }

func (m *askingMetrics) Miss(string) { m.once() }

func (m *askingMetrics) Served(uint64, int, int, time.Time) { m.once() }

func (m *askingMetrics) logger() logr.Logger {
	return funcr.New(func(string, string) { m.once() }, funcr.Options{Verbosity: 10})
}

// A callback may ask the mapper anything. It may even make a lookup that misses, which
// has to read the server.
func TestCallbacksMayMiss(t *testing.T) {
	lookups := map[string]func(context.Context, *apiutil.DynamicRESTMapper) error{
		"the same version": func(ctx context.Context, m *apiutil.DynamicRESTMapper) error {
			_, err := m.RESTMappingWithContext(ctx, schema.GroupKind{Group: fooKind.Group, Kind: "Absent"}, "v1")
			return err
		},
		"the document": func(ctx context.Context, m *apiutil.DynamicRESTMapper) error {
			_, err := m.RESTMappingWithContext(ctx, schema.GroupKind{Group: "absent.example.com", Kind: "Absent"})
			return err
		},
		"any group": func(ctx context.Context, m *apiutil.DynamicRESTMapper) error {
			_, err := m.KindForWithContext(ctx, schema.GroupVersionResource{Resource: "absents"})
			return err
		},
		"after a Reset": func(ctx context.Context, m *apiutil.DynamicRESTMapper) error {
			m.Reset()
			_, err := m.RESTMappingWithContext(ctx, schema.GroupKind{Group: fooKind.Group, Kind: "Absent"}, "v1")
			return err
		},
	}
	for name, lookup := range lookups {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // ends a deadlock
				defer cancel()
				metrics := &askingMetrics{}
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{
					Metrics: metrics, Logger: metrics.logger(), RefreshInterval: 2 * time.Second,
				})
				metrics.ask = func() {
					// Each lookup makes the next callback, until ctx ends.
					if err := lookup(ctx, m); !meta.IsNoMatchError(err) && ctx.Err() == nil {
						t.Errorf("a lookup in a callback: %v", err)
					}
				}
				server.SetLatency(latency)
				start := time.Now()
				for range 5 {
					if err := lookup(ctx, m); !meta.IsNoMatchError(err) {
						t.Errorf("a lookup: %v", err)
					}
				}
				if took := time.Since(start); took > 10*time.Second {
					t.Errorf("5 lookups took %v", took)
				}
				stop := startMapper(t, m)
				time.Sleep(10 * time.Second)
				stop()
				if metrics.asked.Load() == 0 {
					t.Error("no callback")
				}
				cancel()
				time.Sleep(time.Minute) // for the lookup of the last callback to end
			})
		})
	}
}

// slowMetrics takes its time for each report.
type slowMetrics struct {
	takes   time.Duration
	reports atomic.Int32
	ends    chan struct{} // closed when it is to take no more time
}

func (m *slowMetrics) report() {
	m.reports.Add(1)
	select {
	case <-time.After(m.takes):
	case <-m.ends:
	}
}

func (m *slowMetrics) Request(string, int) {}

func (m *slowMetrics) Miss(string) {}

func (m *slowMetrics) Reload(string, time.Duration, error) { m.report() }

func (m *slowMetrics) Served(uint64, int, int, time.Time) {}

// Reports that take longer than their reads do not pile up. Neither lookups nor the end
// of Start wait for them.
func TestSlowReports(t *testing.T) {
	const misses, pause = 3000, 20 * time.Millisecond // 50 a second for a minute
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		metrics := &slowMetrics{takes: 100 * time.Millisecond, ends: make(chan struct{})}
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{Metrics: metrics, RefreshInterval: 10 * time.Second})
		readAll(t, m)
		ctx, cancel := context.WithCancel(context.Background())
		returned := make(chan error, 1)
		go func() { returned <- m.Start(ctx) }()
		before := runtime.NumGoroutine()
		absent := schema.GroupKind{Group: fooKind.Group, Kind: "Absent"}
		for range misses {
			start := time.Now()
			if _, err := m.RESTMapping(absent, "v1"); !meta.IsNoMatchError(err) || time.Since(start) > 0 {
				t.Fatalf("a lookup took %v: %v", time.Since(start), err)
			}
			time.Sleep(pause)
		}
		if now := runtime.NumGoroutine(); now > before+20 {
			t.Errorf("%d goroutines, %d before", now, before)
		}
		cancelled := time.Now()
		cancel()
		select {
		case err := <-returned:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Hour):
			t.Error("Start does not return")
			close(metrics.ends)
			<-returned
		}
		if took := time.Since(cancelled); took > time.Second {
			t.Errorf("Start returned %v after its context ended", took)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := metrics.reports.Load(); n < 100 {
			t.Errorf("%d reports of %d reads", n, misses)
		}
	})
}

// Refreshes do not wait for reports that take longer than the interval, nor does Start
// when it ends.
func TestReportsSlowerThanRefreshes(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		metrics := &slowMetrics{takes: time.Minute, ends: make(chan struct{})}
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{Metrics: metrics, RefreshInterval: 10 * time.Second})
		stop := startMapper(t, m)
		for n := range 20 {
			serve(server, schema.GroupVersionKind{Group: fmt.Sprintf("new%d.example.com", n), Version: "v1", Kind: "New"})
			time.Sleep(10 * time.Second)
			if got := m.Status().Groups; got != 4+n {
				t.Errorf("%d groups known an interval after the next, want %d", got, 4+n)
			}
		}
		start := time.Now()
		stop()
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("Start returned %v after its context ended", took)
		}
		close(metrics.ends)
		synctest.Wait()
	})
}

// If several reports wait, the last one is made, so metrics are right in the end.
func TestLastReportIsMade(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		metrics := &slowRecordedMetrics{}
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{Metrics: metrics})
		for n := range 50 {
			gvk := schema.GroupVersionKind{Group: fmt.Sprintf("new%d.example.com", n), Version: "v1", Kind: "New"}
			serve(server, gvk)
			wantServed(t, m, gvk)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Hour)
		metrics.mu.Lock()
		defer metrics.mu.Unlock()
		if metrics.generation != m.Generation() {
			t.Errorf("the last report is of generation %d, the mapper is at %d", metrics.generation, m.Generation())
		}
	})
}

type slowRecordedMetrics struct {
	recordedMetrics
	mu         sync.Mutex
	generation uint64
}

func (m *slowRecordedMetrics) Served(generation uint64, _, _ int, _ time.Time) {
	time.Sleep(time.Second)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.generation = generation
}
