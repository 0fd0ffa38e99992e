// SPDX-License-Identifier: Apache-2.0

// Package latekinds is for controllers of kinds that may not be served. That a kind is absent never ends the program.
// Other failures do, as with any controller: an error of setup, and for [Kind] an outage or a missing permission that
// lasts longer than the controller's CacheSyncTimeout.
//
// [Kind] is one optional watch of a controller that runs anyway: source.Kind for a kind that may come and go.
//
// [Add] is for a controller that runs only while all its kinds are served. It starts when they are,
// stops when one of them goes or comes back with another scope or resource name, and starts again.
// Give your SetupWithManager to it, instead of calling it:
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
//     its manager, outside of the function: the one that the function gets refuses them.
//   - The cache has the options that you give in Options, because those of the program's
//     manager can't be read. An operator for a few namespaces names them there, too.
//
// The program's manager needs a mapper that knows when a kind comes and goes: one of
// github.com/freshmapper/freshmapper/apiutil through MapperProvider, or any in the
// fork of controller-runtime. Changes are noticed as the mapper's
// RunWhileServed says: about a second after a change with WatchAPIs, else within 30 seconds.
//
// Each time that the controller waits, a log line names the kinds that are missing, and the gauge
// controller_runtime_late_kinds_waiting{controller="widget"} is 1; while it runs, 0. A program that
// does not lead has no value. controller-runtime's own metrics go on under the controller's name;
// but what is in a priority queue when the controller stops stays in workqueue_depth.
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
	// this name in the program, unless the manager's controllers have SkipNameValidation.
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
	// NewCache and NewClient make these. They default to cache.New and client.New. A program with
	// fresh.NewManager gives fresh.NewCache and fresh.NewClient, which follow kinds that move.
	NewCache  cache.NewCacheFunc
	NewClient client.NewClientFunc
	// NeedLeaderElection is whether the controller waits until this program leads. Defaults
	// to what the manager has for its controllers, and that to true.
	NeedLeaderElection *bool
}

// Mapper is what the program's manager must have as its RESTMapper.
type Mapper interface {
	meta.ResettableRESTMapper
	RESTMappingWithContext(ctx context.Context, gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error)
	RunWhileServed(ctx context.Context, run func(context.Context) error, gvks ...schema.GroupVersionKind) error
	IsServed(ctx context.Context, gvk schema.GroupVersionKind) (bool, error)
}

// Add adds a controller to the program's manager. Each time that the kinds have come, it calls
// setup with a manager on which setup builds the controller, and runs what setup has added to it.
// Call Add before or after the manager has started, from any goroutine.
//
// Add returns an error, and adds nothing, if an option or setup is missing, if the name is taken, if
// the manager's mapper can't wait for kinds, or if the manager refuses it. While the program runs, an error of setup, or of what setup has added,
// ends the manager as that of any controller does. If one of the kinds has just gone, whatever
// the error is, the controller waits for it again.
func Add(mgr manager.Manager, opts Options, setup func(manager.Manager) error) error {
	switch {
	case opts.Name == "":
		return errors.New("latekinds: Options.Name is empty; name the controller")
	case len(opts.Kinds) == 0:
		return fmt.Errorf("latekinds: Options.Kinds of controller %q is empty; name the kinds that it waits for", opts.Name)
	case slices.ContainsFunc(opts.Kinds, func(gvk schema.GroupVersionKind) bool { return gvk.Kind == "" }):
		return fmt.Errorf("latekinds: Options.Kinds of controller %q has an element without a Kind, which nothing serves", opts.Name)
	case setup == nil:
		return fmt.Errorf("latekinds: setup of controller %q is nil; give a function that builds the controller", opts.Name)
	}
	mapper := waits(mgr.GetRESTMapper())
	if mapper == nil {
		return cannotWait(mgr.GetRESTMapper(), fmt.Sprintf("the kinds of controller %q", opts.Name))
	}
	if opts.NeedLeaderElection == nil {
		opts.NeedLeaderElection = mgr.GetControllerOptions().NeedLeaderElection
	}
	opts.Kinds = slices.Clone(opts.Kinds) // the caller may change its own later
	waiting, release, err := waitingGauge(metrics.Registry, opts.Name, mgr.GetControllerOptions().SkipNameValidation)
	if err != nil {
		return err
	}
	err = mgr.Add(&late{
		mgr: mgr, mapper: mapper, opts: opts, setup: setup, waiting: waiting,
		log: mgr.GetLogger().WithName("latekinds").WithValues("controller", opts.Name),
	})
	if err != nil {
		release()
	}
	return err
}

func cannotWait(mapper meta.RESTMapper, what string) error {
	return fmt.Errorf("latekinds: the manager's RESTMapper (%T) can't wait for %s; "+
		"set Options.MapperProvider of the manager to apiutil.DynamicRESTMapperProvider, or use the fork of controller-runtime", mapper, what)
}

// mostWrappers is how many mappers may wrap one another. A mapper that says that it wraps itself has
// no end.
const mostWrappers = 100

// waits returns the mapper, or the one that it says it wraps, that can wait for kinds; nil if none can.
func waits(mapper meta.RESTMapper) Mapper {
	for n := 0; mapper != nil && n < mostWrappers; n++ {
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

// waitingGauge registers the gauge of a controller; release makes the name free again. If it is
// registered, the name is taken; if that may be, the gauge is shared. It has no value before the
// controller waits or runs, because a program that does not lead does neither.
func waitingGauge(registerer prometheus.Registerer, name string, mayBeTaken *bool) (gauge *prometheus.GaugeVec, release func(), err error) {
	gauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Subsystem: "controller_runtime_late_kinds", Name: "waiting",
		Help:        "Whether the controller waits for its kinds to be served (1) or runs (0).",
		ConstLabels: prometheus.Labels{"controller": name},
	}, nil)
	err = registerer.Register(gauge)
	var registered prometheus.AlreadyRegisteredError
	if errors.As(err, &registered) {
		before, ok := registered.ExistingCollector.(*prometheus.GaugeVec)
		if ok && mayBeTaken != nil && *mayBeTaken {
			return before, func() {}, nil
		}
		return nil, nil, fmt.Errorf("latekinds: a controller of the name %q was added before; give each another Options.Name, "+
			"or set SkipNameValidation in the Controller options of the manager", name)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("latekinds: register the gauge of controller %q: %w", name, err)
	}
	return gauge, func() { registerer.Unregister(gauge) }, nil
}

// late is the Runnable that Add adds.
type late struct {
	mgr     manager.Manager
	mapper  Mapper
	opts    Options
	setup   func(manager.Manager) error
	log     logr.Logger
	waiting *prometheus.GaugeVec
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
		l.await(ctx)
		err := l.mapper.RunWhileServed(ctx, func(served context.Context) error { return l.run(ctx, served) }, l.opts.Kinds...)
		if ctx.Err() != nil || !l.gone(ctx, err) {
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

// await shows that the controller waits, and for which kinds.
func (l *late) await(ctx context.Context) {
	l.waiting.WithLabelValues().Set(1)
	var missing []string
	for _, gvk := range l.opts.Kinds {
		if err := l.find(ctx, gvk); err != nil {
			missing = append(missing, gvk.String())
		}
	}
	if len(missing) > 0 && ctx.Err() == nil {
		l.log.Info("Waiting for kinds to be served", "kinds", missing)
	}
}

// find returns an error if the kind is not served. It waits for the server until ctx ends.
func (l *late) find(ctx context.Context, gvk schema.GroupVersionKind) error {
	var versions []string // none: any version
	if gvk.Version != "" {
		versions = []string{gvk.Version}
	}
	_, err := l.mapper.RESTMappingWithContext(ctx, gvk.GroupKind(), versions...)
	return err
}

// run sets the controller up, and runs it until served ends or it fails. The program ends with ctx.
func (l *late) run(ctx, served context.Context) error {
	child, err := newChild(l.mgr, l.opts)
	if err != nil {
		return fmt.Errorf("controller %q: %w", l.opts.Name, err)
	}
	if err := child.setUp(l.setup); err != nil {
		return fmt.Errorf("set up controller %q: %w", l.opts.Name, err)
	}
	l.log.Info("All kinds are served: the controller starts", "kinds", l.opts.Kinds)
	l.waiting.WithLabelValues().Set(0)
	err = child.run(served)
	if served.Err() == nil && err != nil {
		return fmt.Errorf("controller %q: %w", l.opts.Name, err)
	}
	// It was told to stop. What it could not finish is no reason to end the program.
	if err != nil && !errors.Is(err, context.Canceled) {
		l.log.Error(err, "The controller has stopped with an error")
	}
	l.waiting.WithLabelValues().Set(1)
	if ctx.Err() != nil {
		l.log.Info("The controller has stopped: the program ends")
		return nil
	}
	l.log.Info("The controller has stopped: a kind is no longer served as it was")
	l.await(ctx)
	return nil
}

// gone reports whether err came because one of the kinds is not served: it says so, or the
// server does, asked again. The first is enough, because servers may contradict each other.
func (l *late) gone(ctx context.Context, err error) bool {
	if err == nil {
		return false
	}
	l.mapper.Reset()
	return slices.ContainsFunc(l.opts.Kinds, func(gvk schema.GroupVersionKind) bool {
		return notServed(err, gvk) || notServed(l.find(ctx, gvk), gvk)
	})
}

// notServed reports whether err means that the kind is not served, in the version that it has.
func notServed(err error, gvk schema.GroupVersionKind) bool {
	var noKind *meta.NoKindMatchError
	return errors.As(err, &noKind) && noKind.GroupKind == gvk.GroupKind() &&
		(gvk.Version == "" || len(noKind.SearchedVersions) == 0 || slices.Contains(noKind.SearchedVersions, gvk.Version))
}
