// SPDX-License-Identifier: Apache-2.0

//go:build stock

package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// scanner is the apis of stock controller-runtime: it asks for everything that is served,
// again and again, and compares.
type scanner struct {
	client   discovery.DiscoveryInterface
	interval time.Duration

	mu      sync.Mutex
	served  map[schema.GroupVersionKind]resource // as last scanned; replaced, never written to
	changed chan struct{}                        // closed, and replaced, when served is replaced
}

func withAPIs(opts ctrl.Options, _ time.Duration) ctrl.Options { return opts }

func apisOf(mgr ctrl.Manager, interval time.Duration) (apis, error) {
	client, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	s := &scanner{client: client, interval: interval, changed: make(chan struct{})}
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

// scan asks for every version of every kind. If a group does not answer, its kinds stay
// as they were.
func (s *scanner) scan() (map[schema.GroupVersionKind]resource, error) {
	_, lists, err := s.client.ServerGroupsAndResources()
	var failed *discovery.ErrGroupDiscoveryFailed
	if err != nil && !errors.As(err, &failed) {
		return nil, err
	}
	served := map[schema.GroupVersionKind]resource{}
	if failed != nil {
		before, _ := s.known()
		maps.Copy(served, before)
		maps.DeleteFunc(served, func(gvk schema.GroupVersionKind, _ resource) bool {
			return failed.Groups[gvk.GroupVersion()] == nil
		})
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if gvk := gv.WithKind(r.Kind); !strings.Contains(r.Name, "/") {
				served[gvk] = newResource(gvk, r.Name, r.Namespaced, r.Verbs)
			}
		}
	}
	return served, nil
}

func (s *scanner) publish(served map[schema.GroupVersionKind]resource) {
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
func (s *scanner) known() (map[schema.GroupVersionKind]resource, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served, s.changed
}

// Watch compares each scan with the one before.
func (s *scanner) Watch(ctx context.Context, changed func([]change)) {
	var before map[schema.GroupVersionKind]resource
	for ctx.Err() == nil {
		served, again := s.known()
		if served != nil {
			changed(difference(before, served))
			before = served
		}
		await(ctx, again)
	}
}

func difference(before, now map[schema.GroupVersionKind]resource) []change {
	var changes []change
	for gvk, r := range before {
		if _, ok := now[gvk]; !ok {
			changes = append(changes, change{r, false})
		}
	}
	for gvk, r := range now {
		if r != before[gvk] {
			changes = append(changes, change{r, true})
		}
	}
	return changes
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
	ctx context.Context, cancel func(), resources []resource, kinds []schema.GroupVersionKind,
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
func (s *scanner) resources(kinds []schema.GroupVersionKind) ([]resource, <-chan struct{}) {
	served, changed := s.known()
	var resources []resource
	for _, kind := range kinds {
		r, ok := served[kind]
		if !ok {
			return nil, changed
		}
		resources = append(resources, r)
	}
	return resources, changed
}

func await(ctx context.Context, done <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-done:
	}
}
