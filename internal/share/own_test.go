// SPDX-License-Identifier: Apache-2.0

package share

import (
	"context"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/transport"
)

// opaque is a round tripper that nobody can see through.
type opaque struct{ http.RoundTripper }

// seeThrough is a round tripper that shows the one below it. It may send requests
// anywhere all the same.
type seeThrough struct{ http.RoundTripper }

func (rt *seeThrough) WrappedRoundTripper() http.RoundTripper { return rt.RoundTripper }

// clientFor is rest.HTTPClientFor.
func clientFor(t *testing.T, cfg *rest.Config) *http.Client {
	t.Helper()
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// writeFile writes a file of its own and returns its name.
func writeFile(t *testing.T, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// ca returns a certificate, in PEM.
func ca(t *testing.T) string {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}

// configs are settings that a client of client-go's says all of.
func configs(t *testing.T) map[string]func(*rest.Config) {
	token, otherToken, certificate := writeFile(t, "one"), writeFile(t, "one"), ca(t)
	caFile := writeFile(t, certificate)
	return map[string]func(*rest.Config){
		"nothing":               func(*rest.Config) {},
		"token":                 func(c *rest.Config) { c.BearerToken = "one" },
		"another token":         func(c *rest.Config) { c.BearerToken = "two" },
		"token file":            func(c *rest.Config) { c.BearerTokenFile = token },
		"another token file":    func(c *rest.Config) { c.BearerTokenFile = otherToken },
		"in a cluster":          func(c *rest.Config) { c.BearerToken, c.BearerTokenFile, c.CAFile = "one", token, caFile },
		"password":              func(c *rest.Config) { c.Username, c.Password = "one", "one" },
		"another password":      func(c *rest.Config) { c.Username, c.Password = "one", "two" },
		"impersonation":         func(c *rest.Config) { c.Impersonate.UserName = "one" },
		"another impersonation": func(c *rest.Config) { c.Impersonate.UserName, c.Impersonate.Groups = "one", []string{"two"} },
		"yet another": func(c *rest.Config) {
			c.Impersonate.UserName, c.Impersonate.Extra = "one", map[string][]string{"two": {"2"}}
		},
		"insecure":       func(c *rest.Config) { c.Insecure = true },
		"server name":    func(c *rest.Config) { c.ServerName = "one" },
		"CA":             func(c *rest.Config) { c.CAData = []byte(certificate) },
		"plugin":         func(c *rest.Config) { c.ExecProvider = plugin("one") },
		"another plugin": func(c *rest.Config) { c.ExecProvider = plugin("two") },
	}
}

func plugin(env string) *api.ExecConfig {
	return &api.ExecConfig{
		Command: "no-such-plugin", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: api.NeverExecInteractiveMode,
		Env: []api.ExecEnvVar{{Name: "WHO", Value: env}},
	}
}

// Each call of rest.HTTPClientFor makes a client of its own; those of equal
// configurations are the same caller. A client of another configuration is not.
func TestClientsOfConfigurations(t *testing.T) {
	all := configs(t)
	of := func(name string) *rest.Config {
		cfg := &rest.Config{Host: "https://one.invalid", UserAgent: "one"}
		all[name](cfg)
		return cfg
	}
	servers := map[Server]string{}
	for name := range all {
		server := ServerOf(of(name), clientFor(t, of(name)), "")
		if !server.known() || server != ServerOf(of(name), clientFor(t, of(name)), "") {
			t.Errorf("%s: equal configurations make different callers", name)
		}
		if other, taken := servers[server]; taken {
			t.Errorf("%s: the same caller as %s", name, other)
		}
		servers[server] = name
		for other := range all {
			if other != name && ServerOf(of(name), clientFor(t, of(other)), "").known() {
				t.Errorf("%s: a client for %s is taken for its own", name, other)
			}
		}
	}
}

// If a configuration does not describe a client completely, the client has no known
// caller.
func TestClientsThatNobodyKnows(t *testing.T) {
	jar, _ := cookiejar.New(nil)
	for name, test := range map[string]struct {
		cfg    func(*rest.Config)
		client func(*http.Client)
	}{
		"a wrapper": {cfg: func(c *rest.Config) { c.Wrap(func(rt http.RoundTripper) http.RoundTripper { return &seeThrough{rt} }) }},
		"a wrapper that does nothing": {cfg: func(c *rest.Config) {
			c.Wrap(func(rt http.RoundTripper) http.RoundTripper { return rt })
		}},
		"client-go's wrapper, added": {cfg: func(c *rest.Config) {
			c.Wrap(func(rt http.RoundTripper) http.RoundTripper { return transport.NewBearerAuthRoundTripper("two", rt) })
		}},
		"a transport":    {cfg: func(c *rest.Config) { c.Transport = &http.Transport{} }},
		"a dialer":       {cfg: func(c *rest.Config) { c.Dial = (&net.Dialer{}).DialContext }},
		"a proxy":        {cfg: func(c *rest.Config) { c.Proxy = http.ProxyURL(&url.URL{Host: "proxy.invalid"}) }},
		"cookies":        {client: func(c *http.Client) { c.Jar = jar }},
		"redirects":      {client: func(c *http.Client) { c.CheckRedirect = func(*http.Request, []*http.Request) error { return nil } }},
		"another around": {client: func(c *http.Client) { c.Transport = &seeThrough{c.Transport} }},
		"opaque":         {client: func(c *http.Client) { c.Transport = opaque{c.Transport} }},
		"more of client-go's around": {client: func(c *http.Client) {
			c.Transport = transport.NewImpersonatingRoundTripper(transport.ImpersonationConfig{UserName: "two"}, c.Transport)
		}},
		"fewer": {client: func(c *http.Client) { c.Transport = c.Transport.(utilnet.RoundTripperWrapper).WrappedRoundTripper() }},
		"none":  {client: func(c *http.Client) { c.Transport = nil }},
		"another base": {client: func(c *http.Client) {
			c.Transport = transport.NewBearerAuthRoundTripper("one", &http.Transport{MaxIdleConnsPerHost: idleConnections()})
		}},
	} {
		cfg := &rest.Config{Host: "https://one.invalid", BearerToken: "one"}
		if test.cfg != nil {
			test.cfg(cfg)
		}
		client := *clientFor(t, cfg)
		if test.client != nil {
			test.client(&client)
		}
		if ServerOf(cfg, &client, "").known() {
			t.Errorf("%s: known", name)
		}
	}
}

// http.DefaultTransport is client-go's for a configuration without settings, unless
// a program has put something else there.
func TestDefaultTransport(t *testing.T) {
	cfg := &rest.Config{Host: "http://one.invalid"}
	server := ServerOf(cfg, &http.Client{}, "")
	if !server.known() || server != ServerOf(cfg, http.DefaultClient, "") || server != ServerOf(cfg, clientFor(t, cfg), "") {
		t.Error("the default transport is not known")
	}
	secure := &rest.Config{Host: "https://one.invalid", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	if ServerOf(secure, &http.Client{}, "").known() {
		t.Error("the default transport is taken for one with TLS settings")
	}
	defer func(before http.RoundTripper) { http.DefaultTransport = before }(http.DefaultTransport)
	for _, other := range []http.RoundTripper{
		&http.Transport{}, &http.Transport{MaxIdleConnsPerHost: idleConnections()}, opaque{defaultTransport},
		transport.NewBearerAuthRoundTripper("one", defaultTransport),
	} {
		http.DefaultTransport = other
		for _, client := range []*http.Client{{}, {Transport: other}, {Transport: defaultTransport}} {
			if ServerOf(cfg, client, "").known() {
				t.Errorf("a program's own default transport, a %T, is known", other)
			}
		}
	}
}

// To look at a client does not make client-go keep a transport that nobody uses,
// nor watch the files of its certificate: goleak would see that.
func TestLookingLeavesNothing(t *testing.T) {
	cfg := &rest.Config{Host: "https://one.invalid", TLSClientConfig: rest.TLSClientConfig{CertFile: "no-such-file", KeyFile: "no-such-file"}}
	for _, rt := range []http.RoundTripper{nil, &http.Transport{}, transport.NewUserAgentRoundTripper("one", &http.Transport{})} {
		if ServerOf(cfg, &http.Client{Transport: rt}, "").known() {
			t.Errorf("%T is known", rt)
		}
	}
}

// A transport may be in use while it is compared: run with -race.
func TestLookingAtTransportsInUse(t *testing.T) {
	listener := httptest.NewServer(http.NotFoundHandler())
	defer listener.Close()
	cfg := &rest.Config{Host: listener.URL, BearerToken: "one", BearerTokenFile: writeFile(t, "two")}
	client := clientFor(t, cfg)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 50 {
			req, _ := http.NewRequestWithContext(context.Background(), http.MethodGet, listener.URL, nil)
			if resp, err := client.Do(req); err == nil {
				resp.Body.Close()
			}
		}
	}()
	for range 50 {
		if !ServerOf(cfg, client, "").known() {
			t.Error("not known")
		}
	}
	<-done
	client.CloseIdleConnections()
}

// A client-go that keeps its source of tokens in another way is not looked into.
func TestUnknownSourceOfTokens(t *testing.T) {
	type cachingTokenSource struct{ base struct{ path string } } //nolint:unused // looked at by its name
	a, b := &cachingTokenSource{}, &cachingTokenSource{}
	if sameSource(reflect.ValueOf(a), reflect.ValueOf(b)) {
		t.Error("two sources of a kind that is not known are one")
	}
	if !sameSource(reflect.ValueOf(a), reflect.ValueOf(a)) {
		t.Error("one source is two")
	}
}
