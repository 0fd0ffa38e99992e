// SPDX-License-Identifier: Apache-2.0

package adopters

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/freshmapper/freshmapper/hack/control"
)

const settled = 30 * time.Second // for what the API server itself has to do

// cluster is an API server, and a client that needs no mapper to know the paths:
// the scenarios are about programs that need one.
type cluster struct {
	client     dynamic.Interface
	kubeconfig string
	sources    *httptest.Server
	tarballs   sync.Map // by path
}

func newCluster(ctx context.Context, t *testing.T, assets string) *cluster {
	plane, err := control.Start(ctx, assets, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = plane.Stop() }) // what may be left is in a temporary folder
	cfg := plane.Servers[0].Config()
	c := &cluster{client: dynamic.NewForConfigOrDie(cfg), kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	file := clientcmdapi.NewConfig()
	file.Clusters["proof"] = &clientcmdapi.Cluster{Server: cfg.Host, InsecureSkipTLSVerify: true}
	file.AuthInfos["proof"] = &clientcmdapi.AuthInfo{Token: cfg.BearerToken}
	file.Contexts["proof"] = &clientcmdapi.Context{Cluster: "proof", AuthInfo: "proof"}
	file.CurrentContext = "proof"
	if err := clientcmd.WriteToFile(*file, c.kubeconfig); err != nil {
		t.Fatal(err)
	}
	c.sources = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, ok := c.tarballs.Load(r.URL.Path)
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(data.([]byte)) // who asked is gone
	}))
	t.Cleanup(c.sources.Close)
	return c
}

// of returns the client of an object's kind.
func (c *cluster) of(o *unstructured.Unstructured) dynamic.ResourceInterface {
	plural, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	if ns := o.GetNamespace(); ns != "" {
		return c.client.Resource(plural).Namespace(ns)
	}
	return c.client.Resource(plural)
}

func (c *cluster) do(ctx context.Context, a action) error {
	switch {
	case a.Apply != nil:
		return c.apply(ctx, a.Apply)
	case a.Remove != nil:
		return c.remove(ctx, a.Remove)
	case a.Publish != nil:
		return c.publish(ctx, a.Publish)
	}
	pause(ctx, a.Pause.Duration)
	return nil
}

// pause waits, but not longer than ctx lasts.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// apply applies an object, and waits until it is served if it is a CRD.
func (c *cluster) apply(ctx context.Context, o *unstructured.Unstructured) error {
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
	return nil
}

func (c *cluster) served(ctx context.Context, crd *unstructured.Unstructured) error {
	if said, ok := c.is(ctx, crd, "Established"); !ok {
		return errors.New(said)
	}
	plural, group, _ := strings.Cut(crd.GetName(), ".")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	version, _ := versions[0].(map[string]any)["name"].(string)
	_, err := c.client.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: plural}).List(ctx, metav1.ListOptions{Limit: 1})
	return err
}

// remove deletes an object, and waits until it is gone.
func (c *cluster) remove(ctx context.Context, o *unstructured.Unstructured) error {
	if err := c.of(o).Delete(ctx, o.GetName(), metav1.DeleteOptions{}); err != nil {
		return err
	}
	return eventually(ctx, func() error {
		if _, err := c.of(o).Get(ctx, o.GetName(), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%s is still there (%w)", o.GetName(), err)
		}
		return nil
	})
}

// eventually tries until there is no error, for as long as an API server takes.
func eventually(ctx context.Context, try func() error) error {
	for end := time.Now().Add(settled); ; pause(ctx, look) {
		err := try()
		if err == nil || time.Now().After(end) || ctx.Err() != nil {
			return err
		}
	}
}

// publish does source-controller's part: it serves an object as a tarball, and
// writes the tarball's address into the status of a GitRepository that is named
// like the object's kind.
func (c *cluster) publish(ctx context.Context, o *unstructured.Unstructured) error {
	data, err := tarball(o)
	if err != nil {
		return err
	}
	name, sum := strings.ToLower(o.GetKind()), fmt.Sprintf("%x", sha256.Sum256(data))
	c.tarballs.Store("/"+sum+".tar.gz", data)
	repository := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
		"metadata": map[string]any{"name": name, "namespace": "default"},
		"spec":     map[string]any{"interval": "1h", "url": "https://example.com/" + name},
	}}
	if err := c.apply(ctx, repository); err != nil {
		return err
	}
	repository.Object["status"] = map[string]any{"artifact": map[string]any{
		"digest": "sha256:" + sum, "revision": "main@sha256:" + sum, "size": int64(len(data)), "lastUpdateTime": time.Now().UTC().Format(time.RFC3339),
		"path": name + "/" + sum + ".tar.gz", "url": c.sources.URL + "/" + sum + ".tar.gz",
	}}
	if _, err := c.of(repository).ApplyStatus(ctx, name, repository, metav1.ApplyOptions{FieldManager: "source", Force: true}); err != nil {
		return fmt.Errorf("publish %s: %w", name, err)
	}
	return nil
}

func tarball(o *unstructured.Unstructured) ([]byte, error) {
	manifest, err := o.MarshalJSON()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	packed := gzip.NewWriter(&out)
	files := tar.NewWriter(packed)
	err = files.WriteHeader(&tar.Header{Name: "object.yaml", Mode: 0o644, Size: int64(len(manifest))})
	if err == nil {
		_, err = files.Write(manifest)
	}
	return out.Bytes(), errors.Join(err, files.Close(), packed.Close())
}

// await waits until an object is there, and a condition, if any, is True, and
// reports whether that came. If not, said is what was there instead.
func (c *cluster) await(ctx context.Context, o *unstructured.Unstructured, kind string) (said string, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, giveUp)
	defer cancel()
	last := ""
	for ctx.Err() == nil {
		state, ok := c.is(ctx, o, kind)
		if ok {
			return "", true
		}
		if ctx.Err() == nil && (last == "" || !strings.Contains(state, " is Unknown: ")) { // "in progress", between two tries
			last = state
		}
		pause(ctx, look)
	}
	return fmt.Sprintf("**not within %v**: %s", giveUp, last), false
}

// is reports whether an object is there and a condition, if any, is True.
func (c *cluster) is(ctx context.Context, o *unstructured.Unstructured, kind string) (said string, ok bool) {
	is, err := c.of(o).Get(ctx, o.GetName(), metav1.GetOptions{})
	if err != nil {
		return err.Error(), false
	}
	if kind == "" {
		return "", true
	}
	return condition(is, kind)
}

// condition reports whether a condition is True for the present generation, and
// returns its text.
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

// applyFile applies all objects of a file.
func (c *cluster) applyFile(ctx context.Context, t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range parse(t, text) {
		if err := c.apply(ctx, o); err != nil {
			t.Fatalf("%s: %v", filepath.Base(file), err)
		}
	}
}

func parse(t *testing.T, manifest []byte) (objects []*unstructured.Unstructured) {
	for from := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096); ; {
		var raw json.RawMessage
		if err := from.Decode(&raw); errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			t.Fatal(err)
		}
		if len(raw) == 0 || string(raw) == "null" { // between two lines of "---"
			continue
		}
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(raw); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, o)
	}
}
