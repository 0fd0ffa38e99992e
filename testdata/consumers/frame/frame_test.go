// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"
)

func TestParse(t *testing.T) {
	for args, want := range map[string]string{
		"":              "7 1m0s <nil>",
		"-n 2 -d 3s":    "2 3s <nil>",
		"-n 0":          "0 1m0s -n must be positive, not 0",
		"-d 0 -n -1":    "-1 0s -d must be positive, not 0s\n-n must be positive, not -1",
		"more":          `7 1m0s unexpected argument "more"`,
		"-kubeconfig f": "7 1m0s <nil>",
		"-none":         "7 1m0s flag provided but not defined: -none",
	} {
		var n int
		var d time.Duration
		err := Parse("it", strings.Fields(args), func(flags *flag.FlagSet) {
			flags.SetOutput(t.Output())
			flags.IntVar(&n, "n", 7, "")
			flags.DurationVar(&d, "d", time.Minute, "")
		})
		if got := fmt.Sprint(n, " ", d, " ", err); got != want {
			t.Errorf("Parse(%q): got %q, want %q", args, got, want)
		}
	}
}

func TestSelfContained(t *testing.T) {
	if err := SelfContained(&rest.Config{BearerToken: "t", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("ca")}}); err != nil {
		t.Errorf("credentials in the kubeconfig itself: %v", err)
	}
	for what, cfg := range map[string]*rest.Config{
		"a token file": {BearerTokenFile: "token"}, "a program": {ExecProvider: &api.ExecConfig{}}, "a plugin": {AuthProvider: &api.AuthProviderConfig{}},
		"a CA file":  {TLSClientConfig: rest.TLSClientConfig{CAFile: "ca.pem"}},
		"a key file": {TLSClientConfig: rest.TLSClientConfig{CertFile: "cert.pem", KeyFile: "key.pem"}},
	} {
		if SelfContained(cfg) == nil {
			t.Errorf("a kubeconfig that names %s is not refused", what)
		}
	}
}
