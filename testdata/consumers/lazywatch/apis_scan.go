// SPDX-License-Identifier: Apache-2.0

//go:build stock

package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// scanner is the apis of stock controller-runtime: it asks for everything that is served,
// again and again, and compares.
type scanner struct {
	client   discovery.DiscoveryInterface
	mapper   meta.RESTMapper
	interval time.Duration

	mu      sync.Mutex
	served  map[schema.GroupKind]schema.GroupVersionResource // as last scanned; replaced, never written to
	changed chan struct{}                                    // closed, and replaced, when served is replaced
}

func withAPIs(opts ctrl.Options, _ time.Duration) ctrl.Options { return opts }

func apisOf(mgr ctrl.Manager, interval time.Duration) (apis, error) {
	client, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	s := &scanner{client: client, mapper: mgr.GetRESTMapper(), interval: interval, changed: make(chan struct{})}
	return s, mgr.Add(manager.RunnableFunc(s.start))
}

func (s *scanner) start(ctx context.Context) error {
	for ctx.Err() == nil {
		if served, err := s.scan(); err != nil {
			ctrl.Log.WithName("scan").Error(err, "cannot tell what is served, keeping what is known")
		} else {
			s.publish(served)
		}
		pause(ctx, s.interval)
	}
	return nil
}

// scan asks for the preferred version of every kind. If a group does not answer, its
// kinds stay as they were.
func (s *scanner) scan() (map[schema.GroupKind]schema.GroupVersionResource, error) {
	lists, err := discovery.ServerPreferredResources(s.client)
	var failed *discovery.ErrGroupDiscoveryFailed
	if err != nil && !errors.As(err, &failed) {
		return nil, err
	}
	served := map[schema.GroupKind]schema.GroupVersionResource{}
	if failed != nil {
		before, _ := s.known()
		maps.Copy(served, before)
		maps.DeleteFunc(served, func(_ schema.GroupKind, resource schema.GroupVersionResource) bool {
			return failed.Groups[resource.GroupVersion()] == nil
		})
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			served[gv.WithKind(r.Kind).GroupKind()] = gv.WithResource(r.Name)
		}
	}
	return served, nil
}

func (s *scanner) publish(served map[schema.GroupKind]schema.GroupVersionResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served != nil && maps.Equal(s.served, served) {
		return
	}
	s.served = served
	close(s.changed)
	s.changed = make(chan struct{})
}

// known returns what is served, or nil before the first scan, and a channel that is
// closed when that changes.
func (s *scanner) known() (map[schema.GroupKind]schema.GroupVersionResource, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served, s.changed
}

// Served calls found with everything that is served after each change, not only with what
// came: the receiver knows what it has already.
func (s *scanner) Served(ctx context.Context, found func([]schema.GroupKind)) {
	for ctx.Err() == nil {
		served, changed := s.known()
		if served != nil {
			found(slices.Collect(maps.Keys(served)))
		}
		await(ctx, changed)
	}
}

// Mapping gives the mapper the version that the scan has found: by itself, stock's mapper
// does not see new versions of a group that it knows.
func (s *scanner) Mapping(kind schema.GroupKind) (*meta.RESTMapping, error) {
	served, _ := s.known()
	return s.mapper.RESTMapping(kind, served[kind].Version)
}

func (s *scanner) RunWhileServed(ctx context.Context, run func(context.Context) error, kinds ...schema.GroupVersionKind) error {
	for ctx.Err() == nil {
		resources, changed := s.resources(kinds)
		if resources == nil {
			await(ctx, changed)
			continue
		}
		runCtx, cancel := context.WithCancel(ctx)
		go s.cancelWhenChanged(runCtx, cancel, resources, kinds)
		err := run(runCtx)
		told := runCtx.Err() != nil
		cancel()
		if !told || err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return nil
}

func (s *scanner) cancelWhenChanged(
	ctx context.Context, cancel func(), resources []schema.GroupVersionResource, kinds []schema.GroupVersionKind,
) {
	defer cancel()
	for ctx.Err() == nil {
		now, changed := s.resources(kinds)
		if !slices.Equal(resources, now) {
			return
		}
		await(ctx, changed)
	}
}

// resources returns how the kinds are served, or nil unless all of them are, and a
// channel that is closed when that may change.
func (s *scanner) resources(kinds []schema.GroupVersionKind) ([]schema.GroupVersionResource, <-chan struct{}) {
	served, changed := s.known()
	var resources []schema.GroupVersionResource
	for _, kind := range kinds {
		resource, ok := served[kind.GroupKind()]
		if !ok {
			return nil, changed
		}
		resources = append(resources, resource)
	}
	return resources, changed
}

func await(ctx context.Context, done <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-done:
	}
}
