// SPDX-License-Identifier: Apache-2.0

package main

import (
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

const (
	testInterval = time.Minute
	testRetry    = 7 * time.Second
)

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
		peer: schema.GroupKind{Group: "mesh.example.com", Kind: "Peer"}, interval: testInterval, retry: testRetry,
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

func TestReconcile(t *testing.T) {
	again := ctrl.Result{RequeueAfter: testRetry}
	tests := map[string]struct {
		tenant  *fakeTenant
		secret  *corev1.Secret // nil: one that leads to tenant
		reason  string
		message string
		want    ctrl.Result
		err     bool
	}{
		"pushed":      {tenant: &fakeTenant{nodes: 1, version: "v2"}, reason: reasonPushed, message: "up to date", want: ctrl.Result{RequeueAfter: testInterval}},
		"no nodes":    {tenant: &fakeTenant{version: "v2"}, reason: noNodes, message: "no nodes yet", want: again},
		"not served":  {tenant: &fakeTenant{nodes: 1}, reason: peerNotServed, message: `no matches for kind "Peer"`, want: again},
		"hanging":     {tenant: &fakeTenant{hangs: true}, reason: unreachable, message: "failed to list nodes", want: again},
		"forbidden":   {tenant: &fakeTenant{nodes: 1, version: "v2", forbids: true}, reason: reasonFailed, message: "failed to apply", err: true},
		"no Secret":   {secret: secret("other", ""), reason: secretMissing, message: "no Secret default/tenant-a", want: again},
		"no key":      {secret: secret("a", ""), reason: kubeconfigMissing, message: `no key "kubeconfig" in Secret default/tenant-a`, want: again},
		"no meaning":  {secret: secret("a", "clusters: hunter2"), reason: kubeconfigInvalid, message: errNotKubeconfig.Error(), want: again},
		"not running": {secret: secret("a", kubeconfigOf("http://127.0.0.1:1", "")), reason: unreachable, message: "refused", want: again},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.secret == nil {
				test.secret = secret("a", kubeconfigOf(test.tenant.start(t), ""))
			}
			r := newReconciler(t, meshObject("a", "b"), test.secret)
			got, err := r.Reconcile(t.Context(), asking("a"))
			if (err != nil) != test.err || !test.err && got != test.want {
				t.Errorf("got %v, %v", got, err)
			}
			written := status(t, r)
			if len(written.Tenants) != 1 {
				t.Fatalf("got %+v, want one tenant", written)
			}
			ready := meta.FindStatusCondition(written.Tenants[0].Conditions, typeReady)
			if ready == nil || ready.Reason != test.reason || !strings.Contains(ready.Message, test.message) {
				t.Errorf("got %+v, want %s: %s", ready, test.reason, test.message)
			}
			if meta.IsStatusConditionTrue(written.Conditions, typeComplete) {
				t.Error("the mesh is complete without b")
			}
		})
	}
}

func TestComplete(t *testing.T) {
	r := newReconciler(t, meshObject("a", "b"),
		secret("a", kubeconfigOf((&fakeTenant{nodes: 1, version: "v1"}).start(t), "")),
		secret("b", kubeconfigOf((&fakeTenant{nodes: 1, version: "v2"}).start(t), "")))
	for _, tenant := range []string{"a", "b"} {
		if _, err := r.Reconcile(t.Context(), asking(tenant)); err != nil {
			t.Fatal(err)
		}
	}
	got := status(t, r)
	if !meta.IsStatusConditionTrue(got.Conditions, typeComplete) {
		t.Errorf("got %+v, want it complete", got.Conditions)
	}
	if got.Tenants[0].PeerVersion != "v1" || got.Tenants[1].PeerVersion != "v2" {
		t.Errorf("got %+v, want v1 in a and v2 in b", got.Tenants)
	}
}

// TestUpgrade has the version go that the mapper knows. Stock's mapper does not
// find the other one.
func TestUpgrade(t *testing.T) {
	tenant := &fakeTenant{nodes: 1, version: "v1"}
	r := newReconciler(t, meshObject("a"), secret("a", kubeconfigOf(tenant.start(t), "")))
	if _, err := r.Reconcile(t.Context(), asking("a")); err != nil {
		t.Fatal(err)
	}
	tenant.serve("v2")
	if got, err := r.Reconcile(t.Context(), asking("a")); err == nil {
		t.Errorf("got %v, want an error, to be tried again with backoff", got)
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

// TestReset shows the trap: MaybeResetRESTMapper returns no error for a mapper that
// cannot be reset.
func TestReset(t *testing.T) {
	r := newReconciler(t)
	r.resetOnNoMatch = true
	_, err := r.lookUp(t.Context(), meta.NewDefaultRESTMapper(nil))
	if !meta.IsNoMatchError(err) || !strings.Contains(err.Error(), "cannot be reset") {
		t.Errorf("got %v", err)
	}
}

func TestFlags(t *testing.T) {
	for flag, want := range map[string]string{
		"-interval=0": "-interval must be positive, not 0s", "-retry=-1s": "-retry must be positive, not -1s",
		"-timeout=0s": "-timeout must be positive", "-workers=0": "-workers must be positive, not 0",
		"-peer=Peer": "-peer must be a kind with its group", "more": `unexpected argument "more"`,
	} {
		if _, err := parse([]string{flag}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", flag, err, want)
		}
	}
}
