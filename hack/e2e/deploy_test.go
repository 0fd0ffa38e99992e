// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

// Each example has what it takes to run it in a cluster: manifests that an API server takes,
// and that fit together and the program; and all of them a Dockerfile.
func TestDeploy(t *testing.T) {
	names := consumers(t)
	dockerfile := document(t, "testdata/consumers/Dockerfile")
	tree, download := strings.Index(dockerfile, "COPY third_party/"), strings.Index(dockerfile, "RUN go mod download")
	if tree < 0 || download < tree {
		t.Errorf("the Dockerfile does not build the fork:\n%s", dockerfile)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			objects := decodeAll(t, document(t, "testdata/consumers/"+name+"/deploy.yaml"))
			namespace := only[*corev1.Namespace](t, objects)
			account := only[*corev1.ServiceAccount](t, objects)
			role := only[*rbacv1.ClusterRole](t, objects)
			binding := only[*rbacv1.ClusterRoleBinding](t, objects)
			deployment := only[*appsv1.Deployment](t, objects)

			pod := deployment.Spec.Template
			if account.Namespace != namespace.Name || deployment.Namespace != namespace.Name || pod.Spec.ServiceAccountName != account.Name {
				t.Error("namespace and service account do not fit together")
			}
			if subject := binding.Subjects[0]; binding.RoleRef.Name != role.Name || subject.Name != account.Name || subject.Namespace != namespace.Name {
				t.Error("the binding does not give the role to the service account")
			}
			if deployment.Spec.Selector.MatchLabels["app"] != pod.Labels["app"] || len(role.Rules) == 0 {
				t.Error("the selector does not select, or the role has no rules")
			}
			// It knows the flags in its manifest, and ends with an error if it can't go on.
			args := pod.Spec.Containers[0].Args
			if said, err := runConsumer(t, name, append(slices.Clone(args), "-h")...); err != nil || !strings.Contains(said, "Usage of") {
				t.Errorf("-h: %v\n%s", err, said)
			}
			if said, err := runConsumer(t, name, append(slices.Clone(args), "-kubeconfig", "absent")...); err == nil || !strings.Contains(said, "absent") {
				t.Errorf("-kubeconfig absent: %v\n%s", err, said)
			}
		})
	}
}

// consumers are the names of the examples.
func consumers(t *testing.T) (names []string) {
	t.Helper()
	manifests, err := filepath.Glob(consumersRoot + "/*/deploy.yaml")
	must(t, err)
	for _, manifest := range manifests {
		names = append(names, filepath.Base(filepath.Dir(manifest)))
	}
	if len(names) < 4 {
		t.Fatalf("examples: %q", names)
	}
	return names
}

func runConsumer(t *testing.T, name string, args ...string) (said string, err error) {
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"run", "-tags", "stock", "."}, args...)...)
	cmd.Dir = filepath.Join(consumersRoot, name)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// decodeAll is strict: a field that does not exist is an error.
func decodeAll(t *testing.T, manifests string) []runtime.Object {
	t.Helper()
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	var objects []runtime.Object
	for _, document := range strings.Split(manifests, "\n---\n") {
		object, _, err := decoder.Decode([]byte(document), nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		objects = append(objects, object)
	}
	return objects
}

func only[T runtime.Object](t *testing.T, objects []runtime.Object) T {
	t.Helper()
	var found []T
	for _, object := range objects {
		if typed, ok := object.(T); ok {
			found = append(found, typed)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d objects of %T", len(found), *new(T))
	}
	return found[0]
}
