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

func secret(tenant, kubeconfig string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tenant-" + tenant}}
	if kubeconfig != "" {
		s.Data = map[string][]byte{kubeconfigKey: []byte(kubeconfig)}
	}
	return s
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

// answers is a tenant that gives one answer to all that the program asks.
func answers(t *testing.T, code int, body string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// A tenant that cannot have its Peer yet is tried again after a constant delay; another error
// goes through the backoff. hack/e2e has tenants that get their Peers.
func TestReconcile(t *testing.T) {
	const forbids = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"no","code":403}`
	tests := map[string]struct {
		secret  *corev1.Secret
		reason  string
		message string
		err     bool
	}{
		"no Secret":   {secret("other", ""), secretMissing, "no Secret default/tenant-a", false},
		"no key":      {secret("a", ""), kubeconfigMissing, `no key "kubeconfig" in Secret default/tenant-a`, false},
		"no meaning":  {secret("a", "clusters: hunter2"), kubeconfigInvalid, errNotKubeconfig.Error(), false},
		"not running": {secret("a", kubeconfigOf("http://127.0.0.1:1", "")), unreachable, "refused", false},
		"forbidden":   {secret("a", kubeconfigOf(answers(t, http.StatusForbidden, forbids), "")), reasonFailed, "failed to list nodes", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newReconciler(t, meshObject("a", "b"), test.secret)
			got, err := r.Reconcile(t.Context(), asking("a"))
			if (err != nil) != test.err || !test.err && got != (ctrl.Result{RequeueAfter: testRetry}) {
				t.Errorf("got %v, %v", got, err)
			}
			written := status(t, r)
			if len(written.Tenants) != 1 || meta.IsStatusConditionTrue(written.Conditions, typeComplete) {
				t.Fatalf("got %+v, want one tenant, and the mesh incomplete", written)
			}
			ready := meta.FindStatusCondition(written.Tenants[0].Conditions, typeReady)
			if ready == nil || ready.Reason != test.reason || !strings.Contains(ready.Message, test.message) {
				t.Errorf("got %+v, want %s: %s", ready, test.reason, test.message)
			}
		})
	}
}

func TestComplete(t *testing.T) {
	r := newReconciler(t, meshObject("a", "b"))
	for _, req := range []request{asking("a"), asking("b")} {
		if got := status(t, r); meta.IsStatusConditionTrue(got.Conditions, typeComplete) {
			t.Errorf("complete without %s: %+v", req.Tenant, got)
		}
		if err := r.record(t.Context(), req, "v1", condition(nil)); err != nil {
			t.Fatal(err)
		}
	}
	if got := status(t, r); !meta.IsStatusConditionTrue(got.Conditions, typeComplete) || got.Tenants[1].PeerVersion != "v1" {
		t.Errorf("got %+v, want it complete, and the version of each Peer", got)
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

func TestFlags(t *testing.T) {
	for flag, want := range map[string]string{
		"-workers=0": "-workers must be positive, not 0", "-peer=Peer": "-peer must be a kind with its group",
	} {
		if _, err := parse([]string{flag}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", flag, err, want)
		}
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

func TestRestConfig(t *testing.T) {
	tests := map[string]struct{ kubeconfig, err string }{
		"token":      {kubeconfigOf("https://a.example.com", "token: t"), ""},
		"not YAML":   {"{{ hunter2", errNotKubeconfig.Error()},
		"other YAML": {"clusters: hunter2", errNotKubeconfig.Error()},
		"empty":      {"{}", errNotKubeconfig.Error()},
		"no server":  {kubeconfigOf("", "token: t"), errNotKubeconfig.Error()},
		"program":    {kubeconfigOf("https://a.example.com", "exec: {command: id, apiVersion: client.authentication.k8s.io/v1}"), "not name a program or a file"},
		"token file": {kubeconfigOf("https://a.example.com", "tokenFile: /etc/token"), "not name a program or a file"},
		"key file":   {kubeconfigOf("https://a.example.com", "client-key: key.pem"), "not name a program or a file"},
		"CA file": {
			strings.Replace(kubeconfigOf("https://a.example.com", ""), "cluster: {", "cluster: {certificate-authority: ca.pem, ", 1),
			`cluster "c" in the kubeconfig must hold its certificate authority itself`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cfg, err := restConfig([]byte(test.kubeconfig))
			switch {
			case test.err == "" && (err != nil || cfg.Host != "https://a.example.com"):
				t.Errorf("got %v, %v", cfg, err)
			case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
				t.Errorf("got error %v, want %q", err, test.err)
			case err != nil && strings.Contains(err.Error(), "hunter2"):
				t.Errorf("%v: quotes from the Secret", err)
			}
		})
	}
}

func TestTenantsAreKept(t *testing.T) {
	all := newTenants(time.Second)
	first, second := []byte(kubeconfigOf("http://a.example.com", "")), []byte(kubeconfigOf("http://b.example.com", ""))
	a, err := all.get(asking("a"), first)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := all.get(asking("a"), first); again != a {
		t.Error("got another cluster for the same kubeconfig")
	}
	if other, err := all.get(asking("a"), second); err != nil || other == a || other.GetConfig().Host != "http://b.example.com" {
		t.Errorf("got %v, %v for another kubeconfig", other, err)
	}
	if _, err := all.get(asking("a"), []byte("{}")); err == nil || len(all.all) != 0 {
		t.Errorf("got %v and %d clusters for a bad kubeconfig", err, len(all.all))
	}
}
