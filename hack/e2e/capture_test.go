// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

var captured = flag.String("capture", "", "`folder` for TestCapture to write to, which is replaced")

// TestCapture writes the discovery documents of an API server, byte for byte, into
// a folder: the aggregated ones in JSON and protobuf, and the plain ones by their
// paths in one file. hack/capture.sh runs it for both API servers. Without -capture it shows that
// this works.
func TestCapture(t *testing.T) {
	if *captured == "" {
		*captured = t.TempDir()
	}
	must(t, os.RemoveAll(*captured), os.MkdirAll(*captured, 0o755))
	_, cfg := startServer(t.Context(), t)
	httpClient, err := rest.HTTPClientFor(cfg)
	must(t, err)
	get := func(path, accept string) []byte {
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
		return body
	}
	save := func(file string, body []byte) { must(t, os.WriteFile(filepath.Join(*captured, file), body, 0o644)) }
	documents := map[string]json.RawMessage{}
	plain := func(path string) []byte {
		documents[path] = get(path, "application/json")
		return documents[path]
	}
	for suffix, accept := range map[string]string{"json": "application/json", "pb": "application/vnd.kubernetes.protobuf"} {
		accept += ";g=apidiscovery.k8s.io;as=APIGroupDiscoveryList;v="
		for _, path := range []string{"api", "apis"} {
			save("aggregated."+path+"."+suffix, get("/"+path, accept+"v2,"+accept+"v2beta1")) // the newest that the server speaks
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
	var text bytes.Buffer // a line for each path
	for _, path := range slices.Sorted(maps.Keys(documents)) {
		fmt.Fprintf(&text, "%s%q: %s", map[bool]string{true: "{\n", false: ",\n"}[text.Len() == 0], path, bytes.TrimSpace(documents[path]))
	}
	text.WriteString("\n}\n")
	save("plain.json", text.Bytes())
	t.Logf("%s: %d groups", *captured, len(list.Groups)+1)
}
