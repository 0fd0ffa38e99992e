// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/hack/control"
)

// cluster is a control plane as its clients see it.
type cluster struct {
	plane    *control.Plane
	balancer *control.Balancer // nil with one server
	config   *rest.Config      // the mapper's
	client   *http.Client      // the mapper's
	crds     []dynamic.ResourceInterface
	truths   []discovery.DiscoveryInterface // by server, live
}

// newCluster installs the kinds that are served throughout.
func newCluster(ctx context.Context, plane *control.Plane) (*cluster, error) {
	c := &cluster{plane: plane, config: plane.Servers[0].Config()}
	var err error
	if len(plane.Servers) > 1 {
		if c.balancer, err = plane.NewBalancer(); err != nil {
			return nil, err
		}
		c.config = c.balancer.Config()
	}
	if c.client, err = rest.HTTPClientFor(c.config); err != nil {
		return nil, err
	}
	for _, s := range plane.Servers {
		crds, err := s.CRDs()
		if err != nil {
			return nil, err
		}
		c.crds = append(c.crds, crds)
		own := s.Config()
		own.Timeout = 10 * time.Second
		truth, err := discovery.NewDiscoveryClientForConfig(own)
		if err != nil {
			return nil, err
		}
		c.truths = append(c.truths, truth.WithLegacy())
	}
	for _, k := range steadyCRDs() {
		if err := c.install(ctx, k); err != nil {
			return nil, err
		}
	}
	return c, c.awaitSteady(ctx)
}

// close closes the connections.
func (c *cluster) close() {
	if c.balancer != nil {
		c.balancer.Close()
	}
	utilnet.CloseIdleConnectionsFor(c.client.Transport)
}

// leaks begins to look for goroutines. What it returns names those that have begun
// since and have not ended, once all had time to.
func (c *cluster) leaks() (left func() error) {
	before := goleak.IgnoreCurrent()
	return func() error {
		var err error
		for range 40 { // requests that nobody waits for end by their timeouts
			if err = goleak.Find(before,
				// Of our own clients, which are shared with the next part.
				goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
				goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*clientConnReadLoop).run"),
				goleak.IgnoreAnyFunction("net/http.(*http2clientConnReadLoop).run")); err == nil {
				return nil
			}
			time.Sleep(time.Second)
		}
		return err
	}
}

// kind is a custom resource.
type kind struct {
	group, kind string
	versions    []string
	cluster     bool // not of a namespace
}

func (k kind) plural() string { return control.Plural(k.kind) }
func (k kind) name() string   { return k.plural() + "." + k.group }

func (k kind) gvk(version string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: k.group, Version: version, Kind: k.kind}
}

func (k kind) crd() *unstructured.Unstructured {
	return control.CRD(k.group, k.kind, k.cluster, k.versions...)
}

func (c *cluster) install(ctx context.Context, k kind) error {
	_, err := c.crds[0].Create(ctx, k.crd(), metav1.CreateOptions{})
	return err
}

// awaitSteady waits until every server serves what is served throughout.
func (c *cluster) awaitSteady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		missing := c.missing()
		if missing == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not served: %w", missing, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (c *cluster) missing() string {
	for n := range c.truths {
		served, err := c.truth(n)
		if err != nil {
			return err.Error()
		}
		for _, s := range steady() {
			if _, ok := served[s.gvk]; !ok {
				return s.gvk.String()
			}
		}
	}
	return ""
}

// truth is what a server serves, by its live endpoints: resource and scope.
func (c *cluster) truth(server int) (map[schema.GroupVersionKind]string, error) {
	_, lists, err := c.truths[server].ServerGroupsAndResources()
	if err != nil {
		return nil, err
	}
	served := map[schema.GroupVersionKind]string{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if gvk := gv.WithKind(r.Kind); !strings.Contains(r.Name, "/") && served[gvk] == "" {
				served[gvk] = describe(r.Name, r.Namespaced)
			}
		}
	}
	return served, nil
}

func describe(resource string, namespaced bool) string {
	return fmt.Sprintf("%s %t", resource, namespaced)
}
