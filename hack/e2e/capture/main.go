// SPDX-License-Identifier: Apache-2.0

// Command capture starts an API server and writes its discovery documents, byte
// for byte, into a folder: the aggregated ones in JSON and protobuf, and the plain
// ones of every path. hack/capture.sh runs it for both API servers.
//
//	go run ./capture -assets FOLDER -version v2 -o FOLDER
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/freshmapper/freshmapper/hack/e2e/internal/runner"
)

func main() {
	assets := flag.String("assets", "", "folder with kube-apiserver and etcd")
	version := flag.String("version", "v2", "version of apidiscovery.k8s.io that the server speaks")
	out := flag.String("o", "", "folder to write to; it is replaced")
	flag.Parse()
	if err := run(*assets, *version, *out); err != nil {
		fmt.Fprintln(os.Stderr, "capture:", err)
		os.Exit(1)
	}
}

func run(assets, version, out string) (err error) {
	if assets == "" || out == "" {
		return errors.New("-assets and -o are needed")
	}
	scratch, err := os.MkdirTemp("", "capture")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	server, err := runner.StartServer(context.Background(), assets, scratch)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	c, err := newClient(server.Kubeconfig)
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(out), os.MkdirAll(out, 0o755)); err != nil {
		return err
	}
	return errors.Join(c.aggregated(version, out), c.plain(out))
}

type client struct {
	http *http.Client
	host string
}

func newClient(kubeconfig string) (*client, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	httpClient, err := rest.HTTPClientFor(cfg)
	return &client{http: httpClient, host: strings.TrimSuffix(cfg.Host, "/")}, err
}

// aggregated writes the bulk documents as aggregated.<path>.json and .pb.
func (c *client) aggregated(version, out string) error {
	forms := map[string]string{"json": "application/json", "pb": "application/vnd.kubernetes.protobuf"}
	for _, path := range []string{"api", "apis"} {
		for suffix, mediaType := range forms {
			accept := fmt.Sprintf("%s;g=apidiscovery.k8s.io;v=%s;as=APIGroupDiscoveryList", mediaType, version)
			if _, err := c.save("/"+path, accept, filepath.Join(out, "aggregated."+path+"."+suffix)); err != nil {
				return err
			}
		}
	}
	return nil
}

// plain writes each path as plain<path with underscores for slashes>.json.
func (c *client) plain(out string) error {
	paths := []string{"/api", "/apis", "/api/v1"}
	body, err := c.get("/apis", "application/json")
	if err != nil {
		return err
	}
	var list metav1.APIGroupList
	if err := json.Unmarshal(body, &list); err != nil {
		return err
	}
	for _, group := range list.Groups {
		paths = append(paths, "/apis/"+group.Name)
		for _, v := range group.Versions {
			paths = append(paths, "/apis/"+v.GroupVersion)
		}
	}
	for _, path := range paths {
		name := "plain" + strings.ReplaceAll(path, "/", "_") + ".json"
		if _, err := c.save(path, "application/json", filepath.Join(out, name)); err != nil {
			return err
		}
	}
	fmt.Fprintf(os.Stderr, "%s: %d groups\n", out, len(list.Groups)+1)
	return nil
}

func (c *client) save(path, accept, file string) ([]byte, error) {
	body, err := c.get(path, accept)
	if err != nil {
		return nil, err
	}
	return body, os.WriteFile(file, body, 0o644)
}

func (c *client) get(path, accept string) (body []byte, err error) {
	req, err := http.NewRequest(http.MethodGet, c.host+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s as %s: %s", path, accept, resp.Status)
	}
	return io.ReadAll(resp.Body)
}
