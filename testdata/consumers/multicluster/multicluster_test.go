// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// A tenant that cannot have its Peer yet is tried again after a constant delay, another error goes
// through the backoff, and nothing out of a Secret is told. hack/e2e has tenants that get their Peers.
func TestTenantsThatAreNotReady(t *testing.T) {
	const retry = 7 * time.Second
	forbidding := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer forbidding.Close()
	leadingTo := func(server, user string) map[string]string {
		return map[string]string{kubeconfigKey: `{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: "` + server + `"}}],
			users: [{name: u, user: {` + user + `}}], contexts: [{name: x, context: {cluster: c, user: u}}], current-context: x}`}
	}
	for name, test := range map[string]struct {
		secret          map[string]string // nil: there is none
		reason, message string
	}{
		"no Secret":   {nil, secretMissing, "no Secret default/tenant-a"},
		"no key":      {map[string]string{"other": ""}, kubeconfigMissing, `no key "kubeconfig" in Secret default/tenant-a`},
		"no meaning":  {map[string]string{kubeconfigKey: "clusters: hunter2"}, kubeconfigInvalid, errNotKubeconfig.Error()},
		"a program":   {leadingTo("https://127.0.0.1:1", "exec: {command: id, apiVersion: v1, interactiveMode: Never}"), kubeconfigInvalid, "not name a program"},
		"not running": {leadingTo("http://127.0.0.1:1", ""), unreachable, "refused"},
		"forbidden":   {leadingTo(forbidding.URL, ""), reasonFailed, "failed to list nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			mesh := newObject()
			mesh.SetNamespace("default")
			mesh.SetName("mesh")
			mesh.Object["spec"] = map[string]any{"tenants": []any{map[string]any{"name": "a", "kubeconfigSecret": "tenant-a"}}}
			mesh.Object["status"] = map[string]any{"tenants": []any{map[string]any{"name": "gone"}}}
			objects := []client.Object{mesh}
			if test.secret != nil {
				secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tenant-a"}, Data: map[string][]byte{}}
				for key, value := range test.secret {
					secret.Data[key] = []byte(value)
				}
				objects = append(objects, secret)
			}
			types := runtime.NewScheme()
			types.AddKnownTypeWithName(clusterMeshKind, &unstructured.Unstructured{})
			if err := scheme.AddToScheme(types); err != nil {
				t.Fatal(err)
			}
			hosting := fake.NewClientBuilder().WithScheme(types).WithObjects(objects...).WithStatusSubresource(newObject()).Build()
			r := &reconciler{client: hosting, live: hosting, tenants: newTenants(30 * time.Second), interval: time.Minute, retry: retry}
			got, err := r.Reconcile(t.Context(), request{client.ObjectKeyFromObject(mesh), "a"})
			if backoff := test.reason == reasonFailed; (err != nil) != backoff || !backoff && got != (ctrl.Result{RequeueAfter: retry}) {
				t.Errorf("Reconcile returned %v, %v; want backoff: %t, else a retry after %v", got, err, backoff, retry)
			}
			if err := hosting.Get(t.Context(), client.ObjectKeyFromObject(mesh), mesh); err != nil {
				t.Fatal(err)
			}
			written, err := decode(mesh)
			if err != nil || len(written.Status.Tenants) != 1 || meta.IsStatusConditionTrue(written.Status.Conditions, typeComplete) {
				t.Fatalf("the status is %+v, %v; want the tenant of the spec alone, and the mesh incomplete", written, err)
			}
			ready := meta.FindStatusCondition(written.Status.Tenants[0].Conditions, typeReady)
			if ready == nil || ready.Reason != test.reason || !strings.Contains(ready.Message, test.message) || strings.Contains(ready.Message, "hunter2") {
				t.Errorf("the condition is %+v; want %s: %s, and nothing out of the Secret", ready, test.reason, test.message)
			}
		})
	}
}
