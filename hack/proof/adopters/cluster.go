// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/freshmapper/freshmapper/hack/control"
)

const settled = 30 * time.Second // for what the API server itself has to do

// cluster is an API server, and a client that knows where everything is without
// asking: the scenarios are about those who ask.
type cluster struct {
	plane      *control.Plane
	client     dynamic.Interface
	kubeconfig string
	servers    []*httptest.Server
	last       string // why a scene has not come to its end
}

func newCluster(ctx context.Context, assets, name string) (*cluster, error) {
	plane, err := control.Start(ctx, assets, 1)
	if err != nil {
		return nil, err
	}
	c := &cluster{plane: plane, kubeconfig: name + ".kubeconfig"}
	cfg := plane.Servers[0].Config()
	c.client, err = dynamic.NewForConfig(cfg)
	if err == nil {
		file := clientcmdapi.NewConfig()
		file.Clusters["proof"] = &clientcmdapi.Cluster{Server: cfg.Host, InsecureSkipTLSVerify: true}
		file.AuthInfos["proof"] = &clientcmdapi.AuthInfo{Token: cfg.BearerToken}
		file.Contexts["proof"] = &clientcmdapi.Context{Cluster: "proof", AuthInfo: "proof"}
		file.CurrentContext = "proof"
		err = clientcmd.WriteToFile(*file, c.kubeconfig)
	}
	if err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

func (c *cluster) stop() {
	for _, s := range c.servers {
		s.Close()
	}
	_ = c.plane.Stop() // what may be left is in a temporary folder
}

// of returns the client of an object's kind.
func (c *cluster) of(o *unstructured.Unstructured) dynamic.ResourceInterface {
	plural, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	if ns := o.GetNamespace(); ns != "" {
		return c.client.Resource(plural).Namespace(ns)
	}
	return c.client.Resource(plural)
}

// apply applies objects, and waits until CRDs among them are served.
func (c *cluster) apply(ctx context.Context, manifest string) error {
	objects, err := parse(manifest)
	if err != nil {
		return err
	}
	for _, o := range objects {
		err := eventually(ctx, func() error {
			_, err := c.of(o).Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: "proof", Force: true})
			return err
		})
		if err == nil && o.GetKind() == "CustomResourceDefinition" {
			err = eventually(ctx, func() error { return c.served(ctx, o) })
		}
		if err != nil {
			return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

func (c *cluster) served(ctx context.Context, crd *unstructured.Unstructured) error {
	is, err := c.of(crd).Get(ctx, crd.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	if said, ok := condition(is, "Established"); !ok {
		return fmt.Errorf("not established: %s", said)
	}
	group, _, _ := unstructured.NestedString(is.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(is.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(is.Object, "spec", "versions")
	version, _ := versions[0].(map[string]any)["name"].(string)
	_, err = c.client.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: plural}).List(ctx, metav1.ListOptions{Limit: 1})
	return err
}

func (c *cluster) applyFiles(ctx context.Context, files []string) error {
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil {
			err = c.apply(ctx, string(text))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(file), err)
		}
	}
	return nil
}

// remove deletes what a manifest names, and waits until it is gone.
func (c *cluster) remove(ctx context.Context, manifest string) error {
	objects, err := parse(manifest)
	if err != nil {
		return err
	}
	for _, o := range objects {
		if err := c.of(o).Delete(ctx, o.GetName(), metav1.DeleteOptions{}); err != nil {
			return err
		}
		err := eventually(ctx, func() error {
			if _, err := c.of(o).Get(ctx, o.GetName(), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%s is still there (%w)", o.GetName(), err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// eventually tries until there is no error, for as long as an API server takes.
func eventually(ctx context.Context, try func() error) error {
	for end := time.Now().Add(settled); ; time.Sleep(look) {
		err := try()
		if err == nil || time.Now().After(end) || ctx.Err() != nil {
			return err
		}
	}
}

// exists is an until: the object of a manifest is there.
func exists(manifest string) func(context.Context, *cluster) (string, bool) {
	return func(ctx context.Context, c *cluster) (string, bool) {
		_, said, ok := c.get(ctx, manifest)
		return said, ok
	}
}

// hasCondition is an until: the object of a manifest is there, and the condition True.
func hasCondition(manifest, kind string) func(context.Context, *cluster) (string, bool) {
	return func(ctx context.Context, c *cluster) (string, bool) {
		o, said, ok := c.get(ctx, manifest)
		if !ok {
			return said, false
		}
		return condition(o, kind)
	}
}

func (c *cluster) get(ctx context.Context, manifest string) (*unstructured.Unstructured, string, bool) {
	objects, err := parse(manifest)
	if err != nil {
		return nil, err.Error(), false
	}
	o, err := c.of(objects[0]).Get(ctx, objects[0].GetName(), metav1.GetOptions{})
	if err != nil {
		return nil, err.Error(), false
	}
	return o, "", true
}

// condition returns whether a condition is True of the present generation, and what it says.
func condition(o *unstructured.Unstructured, kind string) (said string, ok bool) {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, entry := range list {
		if is, _ := entry.(map[string]any); is["type"] == kind {
			seen, numbered := is["observedGeneration"].(int64)
			said := strings.Join(strings.Fields(fmt.Sprintf("%v is %v: %v", kind, is["status"], is["message"])), " ")
			return said[:min(len(said), 200)], is["status"] == "True" && (!numbered || seen >= o.GetGeneration())
		}
	}
	return "no condition " + kind, false
}

func parse(manifest string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for from := yaml.NewYAMLOrJSONDecoder(bytes.NewBufferString(manifest), 4096); ; {
		var raw runtime.RawExtension
		err := from.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if raw.Raw = bytes.TrimSpace(raw.Raw); err == nil && (len(raw.Raw) == 0 || bytes.Equal(raw.Raw, []byte("null"))) {
			continue
		}
		o := &unstructured.Unstructured{}
		if err := errors.Join(err, o.UnmarshalJSON(raw.Raw)); err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
}
