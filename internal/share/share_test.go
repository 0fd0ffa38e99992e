// SPDX-License-Identifier: Apache-2.0

package share

import (
	"errors"
	"net/http"
	goruntime "runtime"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"

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

// Each setting that decides which server answers, or to whom, makes another caller.
func TestServerOf(t *testing.T) {
	client := &http.Client{}
	base := func() *rest.Config {
		return &rest.Config{
			Host:         "https://one.invalid",
			ExecProvider: &api.ExecConfig{Command: "one"},
			AuthProvider: &api.AuthProviderConfig{Name: "one", Config: map[string]string{"one": "1"}},
		}
	}
	servers := map[Server]string{ServerOf(base(), client, "one"): "the same"}
	for name, change := range map[string]func(*rest.Config){
		"address":                  func(c *rest.Config) { c.Host = "https://two.invalid" },
		"path":                     func(c *rest.Config) { c.Host = "https://one.invalid/clusters/two" },
		"APIPath":                  func(c *rest.Config) { c.APIPath = "/two" },
		"user":                     func(c *rest.Config) { c.Username = "two" },
		"password":                 func(c *rest.Config) { c.Password = "two" },
		"token":                    func(c *rest.Config) { c.BearerToken = "two" },
		"token, as user":           func(c *rest.Config) { c.Username, c.BearerToken = "tw", "o" },
		"token file":               func(c *rest.Config) { c.BearerTokenFile = "two" },
		"insecure":                 func(c *rest.Config) { c.Insecure = true },
		"server name":              func(c *rest.Config) { c.ServerName = "two" },
		"protocols":                func(c *rest.Config) { c.NextProtos = []string{"two"} },
		"CA":                       func(c *rest.Config) { c.CAData = []byte("two") },
		"CA file":                  func(c *rest.Config) { c.CAFile = "two" },
		"certificate":              func(c *rest.Config) { c.CertData = []byte("two") },
		"certificate file":         func(c *rest.Config) { c.CertFile = "two" },
		"key":                      func(c *rest.Config) { c.KeyData = []byte("two") },
		"key file":                 func(c *rest.Config) { c.KeyFile = "two" },
		"impersonated user":        func(c *rest.Config) { c.Impersonate.UserName = "two" },
		"impersonated UID":         func(c *rest.Config) { c.Impersonate.UID = "two" },
		"impersonated groups":      func(c *rest.Config) { c.Impersonate.Groups = []string{"two"} },
		"two groups":               func(c *rest.Config) { c.Impersonate.Groups = []string{"tw", "o"} },
		"impersonated extra":       func(c *rest.Config) { c.Impersonate.Extra = map[string][]string{"two": {"2"}} },
		"no plugin":                func(c *rest.Config) { c.ExecProvider = nil },
		"plugin":                   func(c *rest.Config) { c.ExecProvider.Command = "two" },
		"plugin's arguments":       func(c *rest.Config) { c.ExecProvider.Args = []string{"2"} },
		"plugin's environment":     func(c *rest.Config) { c.ExecProvider.Env = []api.ExecEnvVar{{Name: "TWO", Value: "2"}} },
		"its values":               func(c *rest.Config) { c.ExecProvider.Env = []api.ExecEnvVar{{Name: "TWO", Value: "3"}} },
		"plugin's version":         func(c *rest.Config) { c.ExecProvider.APIVersion = "two" },
		"plugin's cluster":         func(c *rest.Config) { c.ExecProvider.ProvideClusterInfo = true },
		"plugin's settings":        func(c *rest.Config) { c.ExecProvider.Config = &runtime.Unknown{Raw: []byte("two")} },
		"no auth provider":         func(c *rest.Config) { c.AuthProvider = nil },
		"auth provider":            func(c *rest.Config) { c.AuthProvider.Name = "two" },
		"auth provider's settings": func(c *rest.Config) { c.AuthProvider.Config["one"] = "2" },
	} {
		cfg := base()
		change(cfg)
		server := ServerOf(cfg, client, "one")
		if other, taken := servers[server]; taken {
			t.Errorf("%s: the same caller as %s", name, other)
		}
		servers[server] = name
	}
	if ServerOf(base(), client, "one") != ServerOf(base(), &http.Client{Transport: opaque{}}, "one") {
		t.Error("equal settings of the same name make different callers")
	}
	if ServerOf(base(), client, "one") == ServerOf(base(), client, "two") {
		t.Error("different names make the same caller")
	}
	if ServerOf(base(), client, "").known() {
		t.Error("a caller of no name is known, though its plugin is not")
	}
}

func TestNothingIsRememberedOfAnUnknownServer(t *testing.T) {
	Remember(Server{}, &Bulk{}, true)
	if Recall(Server{}) != nil {
		t.Error("recalled")
	}
}

// A document that is no news does not replace what another mapper has read since.
func TestRememberOldNews(t *testing.T) {
	server := ServerOf(&rest.Config{}, &http.Client{}, t.Name())
	older, newer := &Bulk{}, &Bulk{}
	Remember(server, older, true)
	Remember(server, newer, true)
	Remember(server, older, false)
	if Recall(server) != newer {
		t.Error("the older document has taken the newer one's place")
	}
	Keep(DefaultKeepFor, DefaultKeepBytes)
	Remember(server, older, false)
	if b := Recall(server); b != older && b != newer { // newer until the collector has run
		t.Errorf("recalled %v", b)
	}
	goruntime.KeepAlive(newer)
}
