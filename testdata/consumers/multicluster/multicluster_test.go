// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

const testRetry = 7 * time.Second

func meshObject(tenants ...string) *unstructured.Unstructured {
	list := make([]any, 0, len(tenants))
	for _, name := range tenants {
		list = append(list, map[string]any{"name": name, "kubeconfigSecret": "tenant-" + name})
	}
	mesh := newObject()
	mesh.SetNamespace("default")
	mesh.SetName("mesh")
	mesh.Object["spec"] = map[string]any{"tenants": list}
	return mesh
}

// newReconciler returns a reconciler whose hosting cluster holds the objects.
func newReconciler(t *testing.T, objects ...client.Object) *reconciler {
	t.Helper()
	types := runtime.NewScheme()
	if err := scheme.AddToScheme(types); err != nil {
		t.Fatal(err)
	}
	types.AddKnownTypeWithName(clusterMeshKind, &unstructured.Unstructured{})
	hosting := fake.NewClientBuilder().WithScheme(types).WithObjects(objects...).WithStatusSubresource(newObject()).Build()
	return &reconciler{
		client: hosting, live: hosting, tenants: newTenants(200 * time.Millisecond),
		peer: schema.GroupKind{Group: "mesh.example.com", Kind: "Peer"}, interval: time.Minute, retry: testRetry,
	}
}

func status(t *testing.T, r *reconciler) meshStatus {
	t.Helper()
	object := newObject()
	if err := r.client.Get(t.Context(), client.ObjectKeyFromObject(meshObject()), object); err != nil {
		t.Fatal(err)
	}
	mesh, err := decode(object)
	if err != nil {
		t.Fatal(err)
	}
	return mesh.Status
}

func asking(tenant string) request {
	return request{client.ObjectKeyFromObject(meshObject()), tenant}
}

// A tenant that cannot have its Peer yet is tried again after a constant delay; another error
// goes through the backoff. hack/e2e has tenants that get their Peers.
func TestReconcile(t *testing.T) {
	const forbids = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"no","code":403}`
	forbidding := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, forbids)
	}))
	defer forbidding.Close()
	program := kubeconfigOf("https://127.0.0.1:1", "exec: {command: id, apiVersion: v1, interactiveMode: Never}")
	for name, test := range map[string]struct {
		secret          map[string]string // nil: there is none
		reason, message string
		err             bool
	}{
		"no Secret":   {nil, secretMissing, "no Secret default/tenant-a", false},
		"no key":      {map[string]string{"other": ""}, kubeconfigMissing, `no key "kubeconfig" in Secret default/tenant-a`, false},
		"no meaning":  {map[string]string{kubeconfigKey: "clusters: hunter2"}, kubeconfigInvalid, errNotKubeconfig.Error(), false},
		"a program":   {map[string]string{kubeconfigKey: program}, kubeconfigInvalid, "not name a program", false},
		"not running": {map[string]string{kubeconfigKey: kubeconfigOf("http://127.0.0.1:1", "")}, unreachable, "refused", false},
		"forbidden":   {map[string]string{kubeconfigKey: kubeconfigOf(forbidding.URL, "")}, reasonFailed, "failed to list nodes", true},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{meshObject("a", "b")}
			if test.secret != nil {
				secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tenant-a"}, Data: map[string][]byte{}}
				for key, value := range test.secret {
					secret.Data[key] = []byte(value)
				}
				objects = append(objects, secret)
			}
			r := newReconciler(t, objects...)
			got, err := r.Reconcile(t.Context(), asking("a"))
			if (err != nil) != test.err || !test.err && got != (ctrl.Result{RequeueAfter: testRetry}) {
				t.Errorf("got %v, %v", got, err)
			}
			written := status(t, r)
			if len(written.Tenants) != 1 || meta.IsStatusConditionTrue(written.Conditions, typeComplete) {
				t.Fatalf("got %+v, want one tenant, and the mesh incomplete", written)
			}
			ready := meta.FindStatusCondition(written.Tenants[0].Conditions, typeReady)
			if ready == nil || ready.Reason != test.reason || !strings.Contains(ready.Message, test.message) || strings.Contains(ready.Message, "hunter2") {
				t.Errorf("got %+v, want %s: %s, and nothing out of the Secret", ready, test.reason, test.message)
			}
		})
	}
}

func TestTakenOut(t *testing.T) {
	mesh := meshObject("a")
	mesh.Object["status"] = map[string]any{"tenants": []any{map[string]any{"name": "gone"}}}
	r := newReconciler(t, mesh)
	if _, err := r.tenants.get(asking("gone"), []byte(kubeconfigOf("http://127.0.0.1:1", ""))); err != nil {
		t.Fatal(err)
	}
	if got := requests(t.Context(), mesh); len(got) != 2 || got[1] != asking("gone") {
		t.Errorf("got requests %v, want one for the tenant that is gone as well", got)
	}
	if got, err := r.Reconcile(t.Context(), asking("gone")); err != nil || got != (ctrl.Result{}) {
		t.Errorf("got %v, %v", got, err)
	}
	if got := status(t, r); len(got.Tenants) != 0 || len(r.tenants.all) != 0 {
		t.Errorf("got %+v and %d clusters, want no trace of it", got, len(r.tenants.all))
	}
}

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
