// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// Nothing out of a Secret is told, and no kubeconfig makes the operator use its own rights. hack/e2e has tenants that
// are not ready yet, and get their Peers.
func TestKubeconfigs(t *testing.T) {
	with := func(user string) string {
		return `{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}],
			users: [{name: u, user: {` + user + `}}], contexts: [{name: x, context: {cluster: c, user: u}}], current-context: x}`
	}
	for what, test := range map[string]struct{ kubeconfig, want string }{
		"a token":   {with("token: hunter2"), ""},
		"no YAML":   {"clusters: hunter2", errNotKubeconfig.Error()},
		"no user":   {`{current-context: x}`, errNotKubeconfig.Error()},
		"a program": {with("exec: {command: id, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}"), "not name a program"},
	} {
		got := ""
		if _, err := restConfig([]byte(test.kubeconfig)); err != nil {
			got = err.Error()
		}
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) || strings.Contains(got, "hunter2") {
			t.Errorf("a kubeconfig with %s: got the error %q, want %q, and nothing out of it", what, got, test.want)
		}
	}
}
