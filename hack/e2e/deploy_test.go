// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Each example has a manifest that an API server takes, whose flags the program knows. The
// program ends with an error if it can't go on.
func TestDeploy(t *testing.T) {
	server, _ := startServer(t.Context(), t)
	for _, name := range consumers(t) {
		t.Run(name, func(t *testing.T) {
			args := deploy(t, server, name, document(t, "testdata/consumers/"+name+"/deploy.yaml"))
			if said, err := runConsumer(t, name, append(slices.Clone(args), "-h")...); err != nil || !strings.Contains(said, "Usage of") {
				t.Errorf("-h: %v\n%s", err, said)
			}
			if said, err := runConsumer(t, name, append(slices.Clone(args), "-kubeconfig", "absent")...); err == nil || !strings.Contains(said, "absent") {
				t.Errorf("-kubeconfig absent: %v\n%s", err, said)
			}
		})
	}
}

// deploy creates the objects of a manifest, and returns the arguments of its Deployment. An
// unknown field is an error, and so is a namespace or a role that comes too late or never.
func deploy(t *testing.T, server *Server, name, manifests string) (args []string) {
	t.Helper()
	strict := client.WithFieldValidation(server.Client, metav1.FieldValidationStrict)
	for _, document := range strings.Split(manifests, "\n---\n") {
		object := &unstructured.Unstructured{}
		must(t, yaml.Unmarshal([]byte(document), &object.Object), strict.Create(t.Context(), object))
		if kind := object.GetKind(); kind != "CustomResourceDefinition" && object.GetName() != name {
			t.Errorf("%s %s: service account, role and binding find one another by the name %s", kind, object.GetName(), name)
		}
		if object.GetKind() == "Deployment" {
			containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
			args, _, _ = unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
		}
	}
	return args
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
