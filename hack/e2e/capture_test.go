// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

var captured = flag.String("capture", "", "`folder` for TestCapture to write to, which is replaced")

// TestCapture writes the discovery documents of an API server, byte for byte, into
// a folder: the aggregated ones in JSON and protobuf, and the plain ones of every
// path. hack/capture.sh runs it for both API servers. Without -capture it shows that
// this works.
func TestCapture(t *testing.T) {
	if *captured == "" {
		*captured = t.TempDir()
	}
	must(t, os.RemoveAll(*captured), os.MkdirAll(*captured, 0o755))
	_, cfg := startServer(t.Context(), t)
	httpClient, err := rest.HTTPClientFor(cfg)
	must(t, err)
	save := func(path, accept, file string) []byte {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, cfg.Host+path, nil)
		must(t, err)
		req.Header.Set("Accept", accept)
		resp, err := httpClient.Do(req)
		must(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		must(t, err)
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("GET %s as %s: %s", path, accept, resp.Status)
		}
		must(t, os.WriteFile(filepath.Join(*captured, file), body, 0o644))
		return body
	}
	plain := func(path string) []byte {
		return save(path, "application/json", "plain"+strings.ReplaceAll(path, "/", "_")+".json")
	}
	for suffix, accept := range map[string]string{"json": "application/json", "pb": "application/vnd.kubernetes.protobuf"} {
		accept += ";g=apidiscovery.k8s.io;as=APIGroupDiscoveryList;v="
		for _, path := range []string{"api", "apis"} {
			save("/"+path, accept+"v2,"+accept+"v2beta1", "aggregated."+path+"."+suffix) // the newest that the server speaks
		}
	}
	plain("/api")
	plain("/api/v1")
	var list metav1.APIGroupList
	must(t, json.Unmarshal(plain("/apis"), &list))
	for _, group := range list.Groups {
		plain("/apis/" + group.Name)
		for _, v := range group.Versions {
			plain("/apis/" + v.GroupVersion)
		}
	}
	t.Logf("%s: %d groups", *captured, len(list.Groups)+1)
}
