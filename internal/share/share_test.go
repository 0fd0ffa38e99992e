// SPDX-License-Identifier: Apache-2.0

package share

import (
	"errors"
	"net/http"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/transport"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

func TestKeys(t *testing.T) {
	a := KeyOf("json", []byte("group"))
	if a != KeyOf("json", []byte("group")) {
		t.Error("equal bytes have different keys")
	}
	for name, other := range map[string]Key{
		"other bytes":         KeyOf("json", []byte("groups")),
		"another form":        KeyOf("protobuf", []byte("group")),
		"the boundary shifts": KeyOf("jsongr", []byte("oup")),
	} {
		if a == other {
			t.Errorf("%s: the same key", name)
		}
	}
}

func TestFailedGroupsAreNotKept(t *testing.T) {
	before := Kept()
	reason := errors.New("no group")
	if _, err := Group(KeyOf("", []byte("bad")), func() (*snapshot.Group, error) { return nil, reason }); !errors.Is(err, reason) {
		t.Error(err)
	}
	if got := Kept(); got != before {
		t.Errorf("%v kept, not %v", got, before)
	}
}

// Each setting that has a part in who answers, and to whom, makes another server.
func TestServerOf(t *testing.T) {
	client := &http.Client{Transport: &http.Transport{}}
	base := func() *rest.Config { return &rest.Config{Host: "https://one.invalid"} }
	servers := map[Server]string{ServerOf(base(), client): "the same"}
	for name, change := range map[string]func(*rest.Config){
		"address":             func(c *rest.Config) { c.Host = "https://two.invalid" },
		"path":                func(c *rest.Config) { c.Host = "https://one.invalid/clusters/two" },
		"APIPath":             func(c *rest.Config) { c.APIPath = "/two" },
		"user":                func(c *rest.Config) { c.Username = "two" },
		"password":            func(c *rest.Config) { c.Password = "two" },
		"token":               func(c *rest.Config) { c.BearerToken = "two" },
		"token, as user":      func(c *rest.Config) { c.Username, c.BearerToken = "tw", "o" },
		"token file":          func(c *rest.Config) { c.BearerTokenFile = "two" },
		"insecure":            func(c *rest.Config) { c.Insecure = true },
		"server name":         func(c *rest.Config) { c.ServerName = "two" },
		"CA":                  func(c *rest.Config) { c.CAData = []byte("two") },
		"CA file":             func(c *rest.Config) { c.CAFile = "two" },
		"certificate":         func(c *rest.Config) { c.CertData = []byte("two") },
		"certificate file":    func(c *rest.Config) { c.CertFile = "two" },
		"key":                 func(c *rest.Config) { c.KeyData = []byte("two") },
		"key file":            func(c *rest.Config) { c.KeyFile = "two" },
		"impersonated user":   func(c *rest.Config) { c.Impersonate.UserName = "two" },
		"impersonated UID":    func(c *rest.Config) { c.Impersonate.UID = "two" },
		"impersonated groups": func(c *rest.Config) { c.Impersonate.Groups = []string{"two"} },
		"two groups":          func(c *rest.Config) { c.Impersonate.Groups = []string{"tw", "o"} },
		"impersonated extra":  func(c *rest.Config) { c.Impersonate.Extra = map[string][]string{"two": {"2"}} },
		"plugin":              func(c *rest.Config) { c.ExecProvider = &api.ExecConfig{Command: "two"} },
		"plugin's arguments":  func(c *rest.Config) { c.ExecProvider = &api.ExecConfig{Command: "two", Args: []string{"3"}} },
		"auth provider":       func(c *rest.Config) { c.AuthProvider = &api.AuthProviderConfig{Name: "two"} },
	} {
		cfg := base()
		change(cfg)
		server := ServerOf(cfg, client)
		if !server.known() {
			continue // nothing is shared with anybody: go1.23
		}
		if other, taken := servers[server]; taken {
			t.Errorf("%s: the same server as %s", name, other)
		}
		servers[server] = name
	}
	if one, other := ServerOf(base(), client), ServerOf(base(), client); one != other {
		t.Error("equal settings make different servers")
	}
}

// opaque is a round tripper that nobody can see through.
type opaque struct{ http.RoundTripper }

// seeThrough is somebody's round tripper that says what is below it. It may send
// requests anywhere all the same.
type seeThrough struct{ http.RoundTripper }

func (rt seeThrough) WrappedRoundTripper() http.RoundTripper { return rt.RoundTripper }

func TestTransports(t *testing.T) {
	cfg := &rest.Config{Host: "https://one.invalid"}
	base, otherBase := &http.Transport{}, &http.Transport{}
	wrapped := func(rt http.RoundTripper) *http.Client {
		return &http.Client{Transport: transport.NewUserAgentRoundTripper("test", rt)}
	}
	hidden := &http.Client{Transport: opaque{base}}
	routed := &http.Client{Transport: transport.NewDebuggingRoundTripper(&seeThrough{base})}
	for name, test := range map[string]struct {
		a, b *http.Client
		same bool
	}{
		"the same transport":           {&http.Client{Transport: base}, &http.Client{Transport: base}, true},
		"the same below wrappers":      {wrapped(base), wrapped(wrapped(base).Transport), true},
		"the default transport":        {&http.Client{}, &http.Client{Transport: http.DefaultTransport}, true},
		"other transports":             {&http.Client{Transport: base}, &http.Client{Transport: otherBase}, false},
		"others below wrappers":        {wrapped(base), wrapped(otherBase), false},
		"one that nobody sees through": {hidden, &http.Client{Transport: opaque{base}}, false},
		"that one's own base":          {hidden, &http.Client{Transport: base}, false},
		"the same client":              {hidden, hidden, true},
		"somebody's wrappers":          {wrapped(seeThrough{base}), wrapped(seeThrough{base}), false},
		"pointers to them":             {routed, &http.Client{Transport: transport.NewDebuggingRoundTripper(&seeThrough{base})}, false},
		"one, and its own base":        {wrapped(seeThrough{base}), wrapped(base), false},
		"one in the same client":       {routed, routed, true},
	} {
		a, b := ServerOf(cfg, test.a), ServerOf(cfg, test.b)
		if a.known() && (a == b) != test.same {
			t.Errorf("%s: same is %v", name, a == b)
		}
	}
}

// Each call of rest.HTTPClientFor makes a client of its own; those of equal
// configurations reach the same server with the same credentials.
func TestClientsOfEqualConfigurations(t *testing.T) {
	servers := map[Server]string{}
	for name, change := range map[string]func(*rest.Config){
		"nothing":       func(*rest.Config) {},
		"token":         func(c *rest.Config) { c.BearerToken = "one" },
		"token file":    func(c *rest.Config) { c.BearerTokenFile = "share_test.go" },
		"password":      func(c *rest.Config) { c.Username, c.Password = "one", "one" },
		"impersonation": func(c *rest.Config) { c.Impersonate.UserName = "one" },
		"insecure":      func(c *rest.Config) { c.Insecure = true },
		"server name":   func(c *rest.Config) { c.ServerName = "one" },
	} {
		of := func() Server {
			cfg := &rest.Config{Host: "https://one.invalid", UserAgent: "one"}
			change(cfg)
			client, err := rest.HTTPClientFor(cfg)
			if err != nil {
				t.Fatal(err)
			}
			return ServerOf(cfg, client)
		}
		server := of()
		if server != of() {
			t.Errorf("%s: equal configurations make different servers", name)
		}
		if other, taken := servers[server]; taken && server.known() {
			t.Errorf("%s: the same server as %s", name, other)
		}
		servers[server] = name
	}
}

func TestNothingIsRememberedOfAnUnknownServer(t *testing.T) {
	Remember(Server{}, &Bulk{})
	if Recall(Server{}) != nil {
		t.Error("recalled")
	}
}
