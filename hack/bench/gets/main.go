// SPDX-License-Identifier: Apache-2.0

// Command gets prints how many nanoseconds a Get takes: through a client that asks the server
// over a connection, through one that calls it, and from a cache. The server is in this process.
// BenchmarkOnceGets builds it on stock controller-runtime and on the fork.
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

const pod = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", "namespace": "default", "resourceVersion": "1"}}`

// transport answers as an API server with one pod.
type transport struct{ discovery http.RoundTripper }

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	body := io.Reader(strings.NewReader(pod))
	switch path := req.URL.Path; {
	case !strings.Contains(path, "/pods"):
		return t.discovery.RoundTrip(req)
	case strings.HasSuffix(path, "/pods"): // a watch that begins with what is there, and then nothing happens
		silence, _ := io.Pipe()
		body = io.MultiReader(strings.NewReader(`{"type": "ADDED", "object": `+pod+`}{"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "Pod",
			"metadata": {"resourceVersion": "2", "annotations": {"k8s.io/initial-events-end": "true"}}}}`), silence)
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(body), Request: req}, nil
}

// ServeHTTP answers likewise over a connection.
func (t transport) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	resp, err := t.RoundTrip(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	_, _ = io.Copy(w, resp.Body)
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "gets:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	// The garbage collector runs as in a program of ordinary size, and on stock, which has
	// more to keep, not less often than on the fork.
	defer runtime.KeepAlive(make([]byte, 64<<20))
	server := transport{fakeapi.New(fakeapi.Typical(100, 2, 3)...).Client().Transport}
	at := httptest.NewServer(server)
	defer at.Close()
	remote, err := client.New(&rest.Config{Host: at.URL, QPS: -1}, client.Options{})
	if err != nil {
		return err
	}
	cfg := &rest.Config{Host: "http://fake.invalid", QPS: -1, Transport: server}
	live, err := client.New(cfg, client.Options{})
	if err != nil {
		return err
	}
	cached, err := cache.New(cfg, cache.Options{})
	if err != nil {
		return err
	}
	go func() { _ = cached.Start(ctx) }()
	cached.WaitForCacheSync(ctx)
	for _, reader := range []client.Reader{remote, live, cached} {
		for n, took := 1, time.Duration(0); took < 300*time.Millisecond; n *= 2 {
			begun := time.Now()
			for range n {
				if err := reader.Get(ctx, client.ObjectKey{Namespace: "default", Name: "one"}, &corev1.Pod{}); err != nil {
					return err
				}
			}
			if took = time.Since(begun); took >= 300*time.Millisecond {
				fmt.Println(took.Nanoseconds() / int64(n))
			}
		}
	}
	return nil
}
