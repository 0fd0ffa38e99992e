// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// publish does source-controller's part: it serves a manifest as a tarball, and says in
// the status of a GitRepository where that is.
func publish(ctx context.Context, c *cluster, name, manifest string) error {
	data, err := tarball(manifest)
	if err != nil {
		return err
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(data))
	address := c.serve("/"+sum+".tar.gz", data)
	if err := c.apply(ctx, repository(name)); err != nil {
		return err
	}
	objects, err := parse(fmt.Sprintf(`%s
status:
  artifact:
    digest: sha256:%[2]s
    lastUpdateTime: %[3]s
    path: %[4]s/%[2]s.tar.gz
    revision: main@sha256:%[2]s
    size: %[5]d
    url: %[6]s
`, repository(name), sum, time.Now().UTC().Format(time.RFC3339), name, len(data), address))
	if err != nil {
		return err
	}
	if _, err := c.of(objects[0]).ApplyStatus(ctx, name, objects[0], metav1.ApplyOptions{FieldManager: "source", Force: true}); err != nil {
		return fmt.Errorf("publish %s: %w", name, err)
	}
	return c.apply(ctx, kustomization(name))
}

func repository(name string) string {
	return fmt.Sprintf(`
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: %[1]s, namespace: default}
spec: {interval: 1h, url: "https://example.com/%[1]s"}`, name)
}

func kustomization(name string) string {
	return fmt.Sprintf(`
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: %[1]s, namespace: default}
spec:
  interval: 5s
  retryInterval: 2s
  timeout: 10s
  path: ./
  prune: true
  wait: true
  sourceRef: {kind: GitRepository, name: %[1]s}
`, name)
}

func tarball(manifest string) ([]byte, error) {
	var out bytes.Buffer
	packed := gzip.NewWriter(&out)
	files := tar.NewWriter(packed)
	if err := files.WriteHeader(&tar.Header{Name: "object.yaml", Mode: 0o644, Size: int64(len(manifest))}); err != nil {
		return nil, err
	}
	if _, err := files.Write([]byte(manifest)); err != nil {
		return nil, err
	}
	if err := errors.Join(files.Close(), packed.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// serve serves data at a path, and returns the address.
func (c *cluster) serve(path string, data []byte) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(data) // who asked is gone
	}))
	c.servers = append(c.servers, server)
	return server.URL + path
}
