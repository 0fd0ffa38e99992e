// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// late is how long an operator is left with what has no CRD yet.
const late = 8 * time.Second

var scenarios = map[string]*scenario{
	"github.com/fluxcd/kustomize-controller": flux(),
	"github.com/kubernetes-sigs/kro":         kro(),
}

// crd is a CRD of example.com.
func crd(kind, version, scope string) string {
	name := strings.ToLower(kind)
	return fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]ss.example.com}
spec:
  group: example.com
  scope: %[4]s
  names: {kind: %[2]s, listKind: %[2]sList, plural: %[1]ss, singular: %[1]s}
  versions:
  - name: %[3]s
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {size: {type: string}}}
`, name, kind, version, scope)
}

// object is one of a CRD of example.com, in a namespace unless that is "".
func object(kind, version, namespace string) string {
	ns := ""
	if namespace != "" {
		ns = ", namespace: " + namespace
	}
	return fmt.Sprintf(`
apiVersion: example.com/%s
kind: %s
metadata: {name: one%s}
spec: {size: small}
`, version, kind, ns)
}

// moduleFiles are files of a module of which the operator's go.mod names another part.
func moduleFiles(ctx context.Context, module, version, pattern string) ([]string, error) {
	dir, err := os.MkdirTemp("", "adopters")
	if err != nil {
		return nil, err
	}
	if err := download(ctx, module, version, dir); err != nil {
		return nil, err
	}
	return filepath.Glob(filepath.Join(dir, pattern))
}

// flux has a Kustomization wait for a kind in a version that its group did not have
// when the operator asked for the group first.
func flux() *scenario {
	const gadget, widget = "gadget", "widget"
	return &scenario{
		about: "The command as it is, with its own CRDs and source-controller's. The sources are served by the proof: the tarball of one manifest each. " +
			"Both Kustomizations have `wait: true`. example.com has the kind Gadget in v1 at first; Widget, in v2, comes 8 s after the Kustomization that applies one. " +
			"Times are from the moment when the API server serves the CRD. " +
			"Applying looks a kind up with its version, which stock asks the server for; the health check looks it up without one, through a mapper of its own, " +
			"in which the group has on stock the versions that it had at first. After a change of scope that mapper is right on the fork when it has confirmed " +
			"what is in use, which it does every 30 s (`MaxAge`); no option is set.",
		main: ".",
		args: []string{"--metrics-addr=0", "--health-addr=0", "--log-level=debug", "--min-retry-delay=500ms", "--max-retry-delay=2s"},
		crds: func(ctx context.Context, t *trees) ([]string, error) {
			own, err := filepath.Glob(filepath.Join(t.stock, "config/crd/bases/*.yaml"))
			if err != nil {
				return nil, err
			}
			mod, err := readMod(ctx, t.stock)
			if err != nil {
				return nil, err
			}
			version := mod.requires("github.com/fluxcd/source-controller/api")
			others, err := moduleFiles(ctx, "github.com/fluxcd/source-controller", version, "config/crd/bases/*.yaml")
			return append(own, others...), err
		},
		steps: []scene{
			{
				what: "a Kustomization applies a Gadget, whose CRD is there, and finds it healthy",
				do: func(ctx context.Context, c *cluster) error {
					if err := c.apply(ctx, crd("Gadget", "v1", "Namespaced")); err != nil {
						return err
					}
					return publish(ctx, c, gadget, object("Gadget", "v1", "default"))
				},
				until: hasCondition(kustomization(gadget), "Ready"),
			},
			{
				what: "the CRD of Widget comes: the Widget is applied",
				do: func(ctx context.Context, c *cluster) error {
					if err := publish(ctx, c, widget, object("Widget", "v2", "default")); err != nil {
						return err
					}
					time.Sleep(late)
					return c.apply(ctx, crd("Widget", "v2", "Namespaced"))
				},
				until: exists(object("Widget", "v2", "default")),
			},
			{what: "… and its Kustomization is Ready", until: hasCondition(kustomization(widget), "Ready")},
			{
				what: "the CRD of Widget is deleted and comes back with scope Cluster, the source follows: the Widget is applied",
				do: func(ctx context.Context, c *cluster) error {
					if err := c.remove(ctx, crd("Widget", "v2", "Namespaced")); err != nil {
						return err
					}
					if err := publish(ctx, c, widget, object("Widget", "v2", "")); err != nil {
						return err
					}
					return c.apply(ctx, crd("Widget", "v2", "Cluster"))
				},
				until: exists(object("Widget", "v2", "")),
			},
			{what: "… and its Kustomization is Ready", until: hasCondition(kustomization(widget), "Ready")},
		},
	}
}

const (
	graph = `
apiVersion: kro.run/v1alpha1
kind: ResourceGraphDefinition
metadata: {name: app}
spec:
  schema:
    apiVersion: v1alpha1
    kind: App
    spec: {size: string}
  resources:
  - id: widget
    template:
      apiVersion: example.com/v1
      kind: Widget
      metadata: {name: one}
      spec: {size: "${schema.spec.size}"}
`
	app = `
apiVersion: kro.run/v1alpha1
kind: App
metadata: {name: one, namespace: default}
spec: {size: small}
`
)

// kro has an App that is made of a Widget, whose CRD changes.
func kro() *scenario {
	return &scenario{
		about: "The command as it is, with its own CRDs. A ResourceGraphDefinition makes a Widget of each App; its CRD, with scope Cluster, comes 8 s later. " +
			"Times are from the moment when the API server serves the CRD, or has the App. " +
			"kro sends its requests itself, to the path that the mapper has given it. Its mapper is right on the fork when it has confirmed what is in use, " +
			"which it does every 30 s (`MaxAge`); no option is set.",
		main: "./cmd/controller",
		args: []string{
			"--metrics-bind-address=0", "--health-probe-bind-address=0",
			"--dynamic-controller-rate-limiter-max-delay=2s", "--dynamic-controller-default-queue-max-retries=1000",
		},
		crds: func(_ context.Context, t *trees) ([]string, error) {
			return filepath.Glob(filepath.Join(t.stock, "helm/crds/*.yaml"))
		},
		steps: []scene{
			{
				what: "the CRD of Widget comes: the ResourceGraphDefinition is Ready",
				do: func(ctx context.Context, c *cluster) error {
					if err := c.apply(ctx, graph); err != nil {
						return err
					}
					time.Sleep(late)
					return c.apply(ctx, crd("Widget", "v1", "Cluster"))
				},
				until: hasCondition(graph, "Ready"),
			},
			{
				what:  "an App is made: its Widget is there",
				do:    func(ctx context.Context, c *cluster) error { return c.apply(ctx, app) },
				until: exists(object("Widget", "v1", "")),
			},
			{
				what: "the CRD of Widget is deleted and comes back with scope Namespaced: the App's Widget is there",
				do: func(ctx context.Context, c *cluster) error {
					if err := c.remove(ctx, crd("Widget", "v1", "Cluster")); err != nil {
						return err
					}
					return c.apply(ctx, crd("Widget", "v1", "Namespaced"))
				},
				until: exists(object("Widget", "v1", "default")),
			},
		},
	}
}
