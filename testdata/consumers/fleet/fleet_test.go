// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestParse(t *testing.T) {
	for _, test := range []struct{ args, err string }{
		{"", ""},
		{"-kind Widget.v2.example.com -namespace clusters -leader-elect", ""},
		{"-kind Widget", "-kind: it must be KIND.VERSION.GROUP"},
		{"-kind Widget.example", "-kind: it must be KIND.VERSION.GROUP"},
		{"-namespace=", "-namespace must not be empty"},
		{"-interval 0s", "must be positive"},
	} {
		opts, err := parse(strings.Fields(test.args))
		if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%q: %v; want %q", test.args, err, test.err)
		}
		if test.err == "" && opts.kind.Empty() {
			t.Errorf("%q: no kind", test.args)
		}
	}
}

func TestSelfContained(t *testing.T) {
	for _, cfg := range []*rest.Config{
		{ExecProvider: &api.ExecConfig{Command: "id"}}, {AuthProvider: &api.AuthProviderConfig{}}, {BearerTokenFile: "token"},
		{TLSClientConfig: rest.TLSClientConfig{CAFile: "ca.pem"}}, {TLSClientConfig: rest.TLSClientConfig{CertFile: "cert.pem", KeyFile: "key.pem"}},
		{TLSClientConfig: rest.TLSClientConfig{KeyFile: "key.pem"}},
	} {
		if selfContained(cfg) == nil {
			t.Errorf("not refused: %s", cfg)
		}
	}
	if err := selfContained(&rest.Config{BearerToken: "t"}); err != nil {
		t.Errorf("refused a token: %v", err)
	}
}

// An object is marked once, and one that is gone is nothing to retry.
func TestReconcile(t *testing.T) {
	pod := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod"}}
	pod.SetGroupVersionKind(scheme.Scheme.PrioritizedVersionsForGroup("")[0].WithKind("Pod"))
	c := fake.NewClientBuilder().WithObjects(pod).Build()
	r := &reconciler{client: c, kind: pod.GroupVersionKind(), cluster: "paris"}
	versions := map[string]bool{}
	for range 3 {
		for _, name := range []string{"pod", "gone"} {
			if _, err := r.Reconcile(context.Background(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: name}}); err != nil {
				t.Fatal(name, err)
			}
		}
		if err := c.Get(context.Background(), client.ObjectKeyFromObject(pod), pod); err != nil {
			t.Fatal(err)
		}
		versions[pod.ResourceVersion] = true
		if got := pod.Annotations[clusterAnnotation]; got != "paris" {
			t.Errorf("cluster %q", got)
		}
	}
	if len(versions) != 1 {
		t.Errorf("written %d times", len(versions))
	}
}
