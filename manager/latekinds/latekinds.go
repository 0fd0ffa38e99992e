// SPDX-License-Identifier: Apache-2.0

// Package latekinds runs controllers for kinds that may not be served yet. A controller
// starts when its kinds are served, stops when one of them goes or comes back with another
// scope or resource name, and starts again. The program never exits, and nothing polls.
//
// Give your SetupWithManager to [Add], instead of calling it:
//
//	err := latekinds.Add(mgr, latekinds.Options{
//		Name:  "widget",
//		Kinds: []schema.GroupVersionKind{examplev1.GroupVersion.WithKind("Widget")},
//	}, func(mgr ctrl.Manager) error {
//		return (&WidgetReconciler{Client: mgr.GetClient()}).SetupWithManager(mgr)
//	})
//
// Name every kind in Kinds that the controller watches and that may be absent. Those that
// are always served, as Deployments are, need not be named.
//
// Three things differ from a controller that starts with the program:
//
//   - The function is called each time that the kinds have come. The manager that it gets
//     is not the program's. It has a cache and a client of its own, whose informers end
//     with the controller. So take the client from that manager, and do not keep either.
//   - Webhooks, health checks and metrics handlers belong to the program. Register them with
//     its manager, outside of the function.
//   - The cache has the options that you give in Options, because those of the program's
//     manager can't be read. An operator for a few namespaces names them there, too.
//
// The program's manager needs a mapper that knows when a kind comes and goes: one of
// github.com/freshmapper/freshmapper/apiutil through MapperProvider, or any in a
// controller-runtime that hack/fork has made. Changes are noticed as the mapper's
// RunWhileServed says: about a second after a change with WatchAPIs, else within 30 seconds.
//
// While the controller waits, one log line names the kinds that are missing, and the gauge
// controller_runtime_late_kinds_waiting{controller="widget"} is 1; while it runs, 0.
package latekinds

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Options say what a controller waits for. Name and Kinds are required.
type Options struct {
	// Name is what log lines and the gauge call the controller. It must be the only one of
	// this name in the program.
	Name string
	// Kinds have to be served while the controller runs. For a kind without a version, any
	// version will do.
	Kinds []schema.GroupVersionKind
	// Cache configures the cache that the controller gets. Its Scheme, Mapper and HTTPClient
	// default to those of the program's manager.
	Cache cache.Options
	// Client configures the client that the controller gets. Its Scheme, Mapper, HTTPClient and
	// Cache.Reader default to those of the program's manager, and to the controller's own cache.
	Client client.Options
	// NeedLeaderElection says whether the controller waits until this program leads. Defaults
	// to true, as for any controller.
	NeedLeaderElection *bool
}

// Mapper is what the program's manager must have as its RESTMapper.
type Mapper interface {
	meta.RESTMapper
	RunWhileServed(ctx context.Context, run func(context.Context) error, gvks ...schema.GroupVersionKind) error
}

// Add adds a controller to the program's manager. Each time that the kinds have come, it calls
// setup with a manager on which setup builds the controller, and runs what setup has added to it.
// Call Add before or after the manager has started, from any goroutine.
//
// Add returns an error if an option is missing or if the manager's mapper can't wait for
// kinds. While the program runs, an error of setup, or of what setup has added, ends the manager
// as that of any controller does. A NoMatch of one of the kinds is no such error: the kind has
// just gone, and the controller waits for it again.
func Add(mgr manager.Manager, opts Options, setup func(manager.Manager) error) error {
	switch {
	case opts.Name == "":
		return errors.New("latekinds: Options.Name is empty; name the controller")
	case len(opts.Kinds) == 0:
		return fmt.Errorf("latekinds: Options.Kinds of controller %q is empty; name the kinds that it waits for", opts.Name)
	}
	mapper := waits(mgr.GetRESTMapper())
	if mapper == nil {
		return fmt.Errorf("latekinds: the manager's RESTMapper (%T) can't wait for the kinds of controller %q; "+
			"set Options.MapperProvider of the manager to apiutil.DynamicRESTMapperProvider, or use the fork of controller-runtime",
			mgr.GetRESTMapper(), opts.Name)
	}
	waiting, err := waitingGauge(metrics.Registry)
	if err != nil {
		return err
	}
	return mgr.Add(&late{
		mgr: mgr, mapper: mapper, opts: opts, setup: setup,
		log:     mgr.GetLogger().WithName("latekinds").WithValues("controller", opts.Name),
		waiting: waiting.WithLabelValues(opts.Name),
	})
}

// waits returns the mapper, or the one that it says it wraps, that can wait for kinds; nil if none can.
func waits(mapper meta.RESTMapper) Mapper {
	for mapper != nil {
		if m, ok := mapper.(Mapper); ok {
			return m
		}
		wrapper, ok := mapper.(interface{ Unwrap() meta.RESTMapper })
		if !ok {
			return nil
		}
		mapper = wrapper.Unwrap()
	}
	return nil
}

// waitingGauge registers the gauge, or returns the one that is registered.
func waitingGauge(registerer prometheus.Registerer) (*prometheus.GaugeVec, error) {
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Subsystem: "controller_runtime_late_kinds", Name: "waiting",
		Help: "Whether the controller waits for its kinds to be served (1) or runs (0).",
	}, []string{"controller"})
	err := registerer.Register(gauge)
	var registered prometheus.AlreadyRegisteredError
	if errors.As(err, &registered) {
		if before, ok := registered.ExistingCollector.(*prometheus.GaugeVec); ok {
			return before, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("latekinds: register the gauge of controllers that wait: %w", err)
	}
	return gauge, nil
}

// late is the Runnable that Add adds.
type late struct {
	mgr     manager.Manager
	mapper  Mapper
	opts    Options
	setup   func(manager.Manager) error
	log     logr.Logger
	waiting prometheus.Gauge
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (l *late) NeedLeaderElection() bool {
	return l.opts.NeedLeaderElection == nil || *l.opts.NeedLeaderElection
}

// pauseAfterGone is how long the controller waits after its kind went while it was set up. So a
// server that contradicts itself does not make it spin.
const pauseAfterGone = time.Second

// Start runs the controller while its kinds are served. It blocks until ctx ends.
func (l *late) Start(ctx context.Context) error {
	for ctx.Err() == nil {
		l.await()
		err := l.mapper.RunWhileServed(ctx, l.run, l.opts.Kinds...)
		if !l.gone(err) {
			return err
		}
		l.log.Info("A kind went while the controller started", "reason", err.Error())
		select {
		case <-time.After(pauseAfterGone):
		case <-ctx.Done():
		}
	}
	return nil
}

// await says that the controller waits, and for which kinds.
func (l *late) await() {
	l.waiting.Set(1)
	var missing []string
	for _, gvk := range l.opts.Kinds {
		var versions []string // none: any version
		if gvk.Version != "" {
			versions = []string{gvk.Version}
		}
		if _, err := l.mapper.RESTMapping(gvk.GroupKind(), versions...); err != nil {
			missing = append(missing, gvk.String())
		}
	}
	if len(missing) > 0 {
		l.log.Info("Waiting for kinds to be served", "kinds", missing)
	}
}

// run sets the controller up, and runs it until ctx ends or it fails.
func (l *late) run(ctx context.Context) error {
	child, err := newChild(l.mgr, l.opts)
	if err != nil {
		return fmt.Errorf("controller %q: %w", l.opts.Name, err)
	}
	if err := l.setup(child); err != nil {
		return fmt.Errorf("set up controller %q: %w", l.opts.Name, err)
	}
	l.log.Info("All kinds are served: the controller starts", "kinds", l.opts.Kinds)
	l.waiting.Set(0)
	err = child.run(ctx)
	if ctx.Err() == nil {
		return err
	}
	// It was told to stop. What it could not finish is no reason to end the program.
	if err != nil && !errors.Is(err, context.Canceled) {
		l.log.Error(err, "The controller has stopped with an error")
	}
	l.log.Info("The controller has stopped: a kind is no longer served as it was, or the program ends")
	l.waiting.Set(1)
	return nil
}

// gone reports whether err says that one of the kinds is not served.
func (l *late) gone(err error) bool {
	var noKind *meta.NoKindMatchError
	if !errors.As(err, &noKind) {
		return false
	}
	return slices.ContainsFunc(l.opts.Kinds, func(gvk schema.GroupVersionKind) bool { return gvk.GroupKind() == noKind.GroupKind })
}
