// SPDX-License-Identifier: Apache-2.0

//go:build stock

package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	ctrl "sigs.k8s.io/controller-runtime"
)

// scanner is the apis of stock controller-runtime: it asks for everything that is served,
// again and again, and compares.
type scanner struct {
	client   discovery.DiscoveryInterface
	interval time.Duration
}

func withAPIs(opts ctrl.Options, _ time.Duration) ctrl.Options { return opts }

func apisOf(mgr ctrl.Manager, interval time.Duration) (apis, error) {
	client, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	return &scanner{client: client, interval: interval}, err
}

func (s *scanner) Watch(ctx context.Context, changed func([]change)) {
	for before := map[schema.GroupVersionKind]resource(nil); ctx.Err() == nil; pause(ctx, s.interval) {
		served, err := s.scan(before)
		if err != nil {
			ctrl.Log.WithName("scan").Error(err, "cannot tell what is served, keeping what is known")
			continue
		}
		changed(difference(before, served))
		before = served
	}
}

// scan asks for every version of every kind. If a group does not answer, its kinds stay
// as they were.
func (s *scanner) scan(before map[schema.GroupVersionKind]resource) (map[schema.GroupVersionKind]resource, error) {
	_, lists, err := s.client.ServerGroupsAndResources()
	var failed *discovery.ErrGroupDiscoveryFailed
	if err != nil && !errors.As(err, &failed) {
		return nil, err
	}
	served := map[schema.GroupVersionKind]resource{}
	for gvk, r := range before {
		if failed != nil && failed.Groups[gvk.GroupVersion()] != nil {
			served[gvk] = r
		}
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

// RunWhileServed runs run once: only the next scan tells that a kind has gone.
func (s *scanner) RunWhileServed(
	ctx context.Context,
	run func(context.Context) error,
	_ ...schema.GroupVersionKind,
) error {
	return run(ctx)
}
