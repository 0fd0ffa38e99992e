// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"errors"
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
		"":                    "7 1m0s a",
		"-n 2 -d 3s -s b":     "2 3s b",
		"-n 0":                "-n must be positive, not 0",
		"-d -1s":              "-d must be positive, not -1s",
		"-d 0 -n -1":          "-d must be positive, not 0s\n-n must be positive, not -1",
		"-s b more":           `unexpected argument "more"`,
		"-kubeconfig f -list": "7 1m0s a",
		"-none":               "flag provided but not defined: -none",
		"-h":                  flag.ErrHelp.Error(),
	} {
		var n int
		var d time.Duration
		var s string
		err := Parse("it", strings.Fields(args), func(flags *flag.FlagSet) {
			flags.SetOutput(t.Output())
			flags.IntVar(&n, "n", 7, "")
			flags.DurationVar(&d, "d", time.Minute, "")
			flags.StringVar(&s, "s", "a", "")
			flags.BoolFunc("list", "", func(string) error { return nil })
		})
		if err == nil {
			err = errors.New(fmt.Sprint(n, " ", d, " ", s))
		}
		if err.Error() != want {
			t.Errorf("%s: got %q, want %q", args, err, want)
		}
	}
}

func TestSelfContained(t *testing.T) {
	if err := SelfContained(&rest.Config{BearerToken: "t", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("ca")}}); err != nil {
		t.Error(err)
	}
	for _, cfg := range []*rest.Config{
		{BearerTokenFile: "token"}, {ExecProvider: &api.ExecConfig{}}, {AuthProvider: &api.AuthProviderConfig{}},
		{TLSClientConfig: rest.TLSClientConfig{CAFile: "ca.pem"}}, {TLSClientConfig: rest.TLSClientConfig{CertFile: "cert.pem"}},
		{TLSClientConfig: rest.TLSClientConfig{KeyFile: "key.pem"}},
	} {
		if SelfContained(cfg) == nil {
			t.Errorf("not refused: %s", cfg)
		}
	}
}
