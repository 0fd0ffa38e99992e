// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// kubeconfigOf leads to server; user is of the YAML of one.
func kubeconfigOf(server, user string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "%s"}}]
users: [{name: u, user: {%s}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, server, user)
}

func TestRestConfig(t *testing.T) {
	tests := map[string]struct{ kubeconfig, err string }{
		"token":      {kubeconfigOf("https://a.example.com", "token: t"), ""},
		"not YAML":   {"{{ hunter2", errNotKubeconfig.Error()},
		"other YAML": {"clusters: hunter2", errNotKubeconfig.Error()},
		"empty":      {"{}", errNotKubeconfig.Error()},
		"no server":  {kubeconfigOf("", "token: t"), errNotKubeconfig.Error()},
		"program":    {kubeconfigOf("https://a.example.com", "exec: {command: id, apiVersion: client.authentication.k8s.io/v1}"), "not name a program or a file"},
		"token file": {kubeconfigOf("https://a.example.com", "tokenFile: /etc/token"), "not name a program or a file"},
		"key file":   {kubeconfigOf("https://a.example.com", "client-key: key.pem"), "not name a program or a file"},
		"CA file": {
			strings.Replace(kubeconfigOf("https://a.example.com", ""), "cluster: {", "cluster: {certificate-authority: ca.pem, ", 1),
			`cluster "c" in the kubeconfig must hold its certificate authority itself`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cfg, err := restConfig([]byte(test.kubeconfig))
			switch {
			case test.err == "" && (err != nil || cfg.Host != "https://a.example.com"):
				t.Errorf("got %v, %v", cfg, err)
			case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
				t.Errorf("got error %v, want %q", err, test.err)
			case err != nil && strings.Contains(err.Error(), "hunter2"):
				t.Errorf("%v: quotes from the Secret", err)
			}
		})
	}
}

func TestTenantsAreKept(t *testing.T) {
	all := newTenants(time.Second)
	first, second := []byte(kubeconfigOf("http://a.example.com", "")), []byte(kubeconfigOf("http://b.example.com", ""))
	a, err := all.get(asking("a"), first)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := all.get(asking("a"), first); again != a {
		t.Error("got another cluster for the same kubeconfig")
	}
	if other, err := all.get(asking("a"), second); err != nil || other == a || other.GetConfig().Host != "http://b.example.com" {
		t.Errorf("got %v, %v for another kubeconfig", other, err)
	}
	if _, err := all.get(asking("a"), []byte("{}")); err == nil || len(all.all) != 0 {
		t.Errorf("got %v and %d clusters for a bad kubeconfig", err, len(all.all))
	}
}

// fakeTenant is as much of an API server as the program asks for.
type fakeTenant struct {
	nodes          int
	version        string // of Peer; empty: not served
	hangs, forbids bool

	mu sync.Mutex // guards version
}

func (f *fakeTenant) serve(version string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version = version
}

func (f *fakeTenant) served() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.version
}

// start returns the address of the tenant, which is there until the test ends.
func (f *fakeTenant) start(t *testing.T) string {
	over := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if f.hangs {
			<-over
			return
		}
		w.Header().Set("Content-Type", "application/json")
		code, body := f.answer(req)
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(over) })
	return server.URL
}

func (f *fakeTenant) answer(req *http.Request) (code int, body string) {
	version := f.served()
	served := "/apis/mesh.example.com/" + version
	switch path := req.URL.Path; {
	case path == "/api/v1/nodes":
		items := strings.TrimSuffix(strings.Repeat(`{"metadata":{"name":"node"}},`, f.nodes), ",")
		return http.StatusOK, `{"apiVersion":"v1","kind":"NodeList","items":[` + items + `]}`
	case path == "/api":
		return http.StatusOK, `{"kind":"APIVersions","versions":["v1"]}`
	case path == "/api/v1":
		return http.StatusOK, `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"nodes","kind":"Node","namespaced":false}]}`
	case path == "/apis":
		groups := ""
		if version != "" {
			groups = f.group(version)
		}
		return http.StatusOK, `{"kind":"APIGroupList","apiVersion":"v1","groups":[` + groups + `]}`
	case version != "" && path == served:
		return http.StatusOK, `{"kind":"APIResourceList","groupVersion":"mesh.example.com/` + version + `","resources":[{"name":"peers","kind":"Peer","namespaced":true}]}`
	case version != "" && req.Method == http.MethodPatch && path == served+"/namespaces/default/peers/mesh":
		return f.apply(version)
	}
	return http.StatusNotFound, "404 page not found"
}

func (f *fakeTenant) group(version string) string {
	v := `{"groupVersion":"mesh.example.com/` + version + `","version":"` + version + `"}`
	return `{"name":"mesh.example.com","versions":[` + v + `],"preferredVersion":` + v + `}`
}

func (f *fakeTenant) apply(version string) (code int, body string) {
	if f.forbids {
		return http.StatusForbidden, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`
	}
	return http.StatusOK, `{"apiVersion":"mesh.example.com/` + version + `","kind":"Peer","metadata":{"namespace":"default","name":"mesh"}}`
}
