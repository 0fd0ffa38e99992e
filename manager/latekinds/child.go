// SPDX-License-Identifier: Apache-2.0

package latekinds

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// child is the manager that setup gets. It is the program's, but for its cache and client, and
// it keeps what is added to it.
type child struct {
	manager.Manager
	cache  cache.Cache
	client client.Client

	mu        sync.Mutex
	runnables []manager.Runnable // what setup added; nil once it runs
	running   bool
	refused   error // the first thing that setup must not do, and did
}

func newChild(mgr manager.Manager, opts Options) (*child, error) {
	cacheOpts := opts.Cache
	if cacheOpts.Scheme == nil {
		cacheOpts.Scheme = mgr.GetScheme()
	}
	if cacheOpts.Mapper == nil {
		cacheOpts.Mapper = mgr.GetRESTMapper()
	}
	if cacheOpts.HTTPClient == nil {
		cacheOpts.HTTPClient = mgr.GetHTTPClient()
	}
	newCache, newClient := opts.NewCache, opts.NewClient
	if newCache == nil {
		newCache = cache.New
	}
	if newClient == nil {
		newClient = client.New
	}
	informers, err := newCache(mgr.GetConfig(), cacheOpts)
	if err != nil {
		return nil, fmt.Errorf("make its cache: %w", err)
	}
	clientOpts := opts.Client
	if clientOpts.Scheme == nil {
		clientOpts.Scheme = mgr.GetScheme()
	}
	if clientOpts.Mapper == nil {
		clientOpts.Mapper = mgr.GetRESTMapper()
	}
	if clientOpts.HTTPClient == nil {
		clientOpts.HTTPClient = mgr.GetHTTPClient()
	}
	reads := client.CacheOptions{}
	if clientOpts.Cache != nil {
		reads = *clientOpts.Cache // a copy, because the caller's options serve the next child
	}
	if reads.Reader == nil {
		reads.Reader = informers
	}
	clientOpts.Cache = &reads
	c, err := newClient(mgr.GetConfig(), clientOpts)
	if err != nil {
		return nil, fmt.Errorf("make its client: %w", err)
	}
	return &child{Manager: mgr, cache: informers, client: c}, nil
}

func (c *child) GetCache() cache.Cache                { return c.cache }
func (c *child) GetClient() client.Client             { return c.client }
func (c *child) GetFieldIndexer() client.FieldIndexer { return c.cache }

// GetControllerOptions lets a controller's name come back.
func (c *child) GetControllerOptions() config.Controller {
	opts, again := c.Manager.GetControllerOptions(), true
	opts.SkipNameValidation = &again
	return opts
}

// Add keeps a runnable until setup is done.
func (c *child) Add(r manager.Runnable) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running {
		return errors.New("latekinds: add it in setup; the controller runs already")
	}
	c.runnables = append(c.runnables, r)
	return nil
}

// Start is not setup's to call.
func (c *child) Start(context.Context) error {
	return errors.New("latekinds: setup must not start its manager; it runs when setup has returned")
}

// What belongs to the program is refused. A handler would keep the client of a controller that has
// stopped, and can't be taken back.

// AddHealthzCheck is not setup's to call.
func (c *child) AddHealthzCheck(string, healthz.Checker) error { return c.refuse("health check") }

// AddReadyzCheck is not setup's to call.
func (c *child) AddReadyzCheck(string, healthz.Checker) error { return c.refuse("readiness check") }

// AddMetricsServerExtraHandler is not setup's to call.
func (c *child) AddMetricsServerExtraHandler(string, http.Handler) error {
	return c.refuse("metrics handler")
}

// GetWebhookServer returns a server that is never started, because it can't return an error.
func (c *child) GetWebhookServer() webhook.Server {
	_ = c.refuse("webhook")
	return webhook.NewServer(webhook.Options{})
}

func (c *child) refuse(what string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := fmt.Errorf("latekinds: a %s belongs to the program; register it with the program's manager, outside of setup", what)
	if c.refused == nil {
		c.refused = err
	}
	return err
}

// setUp calls setup, and returns its error, or that it did what it must not do.
func (c *child) setUp(setup func(manager.Manager) error) error {
	if err := setup(c); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused
}

// run runs the cache and then, as a manager does, what was added, until ctx ends or one of them fails.
func (c *child) run(ctx context.Context) error {
	c.mu.Lock()
	runnables := c.runnables
	c.runnables, c.running = nil, true
	c.mu.Unlock()
	if len(runnables) == 0 {
		return errors.New("setup has added nothing to the manager that it was given; build the controller on that one, not on the program's")
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.cache.Start(ctx) })
	group.Go(func() error {
		if !c.cache.WaitForCacheSync(ctx) {
			return errors.Join(errors.New("its cache did not sync"), ctx.Err())
		}
		for _, r := range runnables {
			group.Go(func() error { return r.Start(ctx) })
		}
		return nil
	})
	return group.Wait()
}
