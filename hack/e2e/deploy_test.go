// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

// Each example has what it takes to run it in a cluster: a Dockerfile, and
// manifests that an API server takes and that fit together and the program.
func TestDeploy(t *testing.T) {
	modules, err := filepath.Glob(filepath.Join("..", "..", "testdata", "consumers", "*", "go.mod"))
	if err != nil || len(modules) < 4 {
		t.Fatalf("modules: %q, %v", modules, err)
	}
	for _, module := range modules {
		folder := filepath.Dir(module)
		name := filepath.Base(folder)
		t.Run(name, func(t *testing.T) {
			objects := decodeAll(t, filepath.Join(folder, "deploy.yaml"))
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
			takes(t, folder, pod.Spec.Containers[0].Args)

			dockerfile, err := os.ReadFile(filepath.Join(folder, "Dockerfile"))
			must(t, err)
			tree, download := strings.Index(string(dockerfile), "COPY third_party/"), strings.Index(string(dockerfile), "RUN go mod download")
			if tree < 0 || download < tree || !strings.Contains(string(dockerfile), `ENTRYPOINT ["/`+name+`"]`) {
				t.Errorf("the Dockerfile does not build the fork:\n%s", dockerfile)
			}
		})
	}
}

// decodeAll is strict: a field that does not exist is an error.
func decodeAll(t *testing.T, manifest string) []runtime.Object {
	t.Helper()
	text, err := os.ReadFile(manifest)
	must(t, err)
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	var objects []runtime.Object
	for _, document := range strings.Split(string(text), "\n---\n") {
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

// takes checks that a program knows the flags in its manifest.
func takes(t *testing.T, folder string, args []string) {
	t.Helper()
	cmd := exec.Command("go", append(append([]string{"run", "-tags", "stock", "."}, args...), "-h")...)
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "Usage of") {
		t.Errorf("%v\n%s", err, out)
	}
}
