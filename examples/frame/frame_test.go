// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"
)

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
