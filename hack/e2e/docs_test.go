// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func document(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	must(t, err)
	return string(text)
}

// documents are the names of the pages, of which no other program tests what they say.
func documents(t *testing.T) (names []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", ".github/*.md", "docs/*.md", "docs/*/*.md", "hack/*.md", "hack/*/*.md", "examples/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		must(t, err)
		for _, name := range found {
			names = append(names, strings.TrimPrefix(name, root+"/"))
		}
	}
	if len(names) < 10 {
		t.Fatalf("only these documents were found: %q", names)
	}
	return names
}

// Every link into the repository leads somewhere, to its heading, too.
func TestDocumentsLinks(t *testing.T) {
	link, fenced := regexp.MustCompile(`\]\(([^)\s]+)\)`), regexp.MustCompile("(?s)```.*?\n```")
	heading, notSlug := regexp.MustCompile(`(?m)^#+ *(.*?) *$`), regexp.MustCompile(`[^a-z0-9 _-]`)
	for _, name := range documents(t) {
		for _, found := range link.FindAllStringSubmatch(fenced.ReplaceAllString(document(t, name), ""), -1) {
			if strings.Contains(found[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(found[1], "#")
			target := name
			if file != "" {
				target = filepath.Join(filepath.Dir(name), file)
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s links to %s: %v", name, found[1], err)
			} else if anchor != "" && !slices.ContainsFunc(heading.FindAllStringSubmatch(document(t, target), -1), func(h []string) bool {
				return strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-") == anchor
			}) {
				t.Errorf("%s links to %s, but %s has no such heading", name, found[1], target)
			}
		}
	}
}

// The whole programs in the documents compile, with the provider as they stand, and are as gofmt has them.
func TestDocumentsPrograms(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		full := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(full), 0o755), os.WriteFile(full, []byte(text), 0o644))
	}
	absolute, err := filepath.Abs(root)
	must(t, err)
	for _, name := range []string{"go.mod", "go.sum"} {
		write(name, strings.ReplaceAll(document(t, "hack/e2e/"+name), "=> ../..", "=> "+absolute))
	}
	program := regexp.MustCompile("(?s)```go\n(package main\n.*?)\n```")
	programs := 0
	for _, name := range documents(t) {
		for _, found := range program.FindAllStringSubmatch(document(t, name), -1) {
			programs++
			write(fmt.Sprintf("%s%d/main.go", strings.TrimSuffix(filepath.Base(name), ".md"), programs), found[1]+"\n")
		}
	}
	if programs == 0 {
		t.Error("no document has a program")
	}
	for _, args := range [][]string{{"go", "vet", "-mod=mod", "./..."}, {"gofmt", "-l", "."}} {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil || args[0] == "gofmt" && len(out) > 0 {
			t.Errorf("the programs in the documents: %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// What alerts and dashboard ask for are metrics that there are. hack/monitoring.sh tests them with promtool.
func TestMonitoring(t *testing.T) {
	source := document(t, "fresh/restmappermetrics/recorder.go")
	alerts := document(t, "docs/monitoring/alerts.yaml")
	asked := regexp.MustCompile(`controller_runtime_restmapper_([a-z_]+)`).FindAllStringSubmatch(alerts+document(t, "docs/monitoring/dashboard.json"), -1)
	for _, metric := range asked {
		if !strings.Contains(source, `"`+strings.TrimSuffix(metric[1], "_bucket")+`"`) {
			t.Errorf("alerts or dashboard ask for %s, which the recorder does not have", metric[0])
		}
	}
}

// Each example has a manifest that an API server takes, with flags that the program knows, and ends with an error if it must.
func TestDeploy(t *testing.T) {
	t.Parallel()
	server, _ := startServer(t.Context(), t)
	manifests, err := filepath.Glob(examplesRoot + "/*/deploy.yaml")
	must(t, err)
	if len(manifests) < 5 {
		t.Errorf("only the examples %q have a manifest", manifests)
	}
	for _, manifest := range manifests {
		name := filepath.Base(filepath.Dir(manifest))
		t.Run(name, func(t *testing.T) {
			way := "stock"
			if name == "selfheal" { // which is about the mapper, and has no way for stock
				way = "fork"
			}
			binary, args := build(t.Context(), t, name, way, nil), deploy(t, server, name)
			for last, want := range map[string]string{"-h": "Usage of", "-kubeconfig=absent": "absent"} {
				said, err := exec.CommandContext(t.Context(), binary, append(slices.Clone(args), last)...).CombinedOutput()
				if (err == nil) != (last == "-h") || !strings.Contains(string(said), want) {
					t.Errorf("%q and %s: %v; want success for -h alone, and the words %q in\n%s", args, last, err, want, said)
				}
			}
		})
	}
}

// deploy creates the objects of a manifest, and returns the arguments of its Deployment. An
// unknown field is an error, and so is a namespace or a role that comes too late or never.
func deploy(t *testing.T, server *Server, name string) (args []string) {
	t.Helper()
	strict := client.WithFieldValidation(server.Client, metav1.FieldValidationStrict)
	for _, document := range strings.Split(document(t, "examples/"+name+"/deploy.yaml"), "\n---\n") {
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

// What troubleshooting quotes of our log lines and errors is in the code, or in a story that holds what is logged, so that a search finds the page.
func TestTroubleshootingQuotes(t *testing.T) {
	var code strings.Builder
	for _, pattern := range []string{"apiutil/*.go", "apiutil/*/*.go", "internal/*/*.go", "fresh/*.go", "apiutil/testdata/stories/*.txt"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		must(t, err)
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				text, err := os.ReadFile(file)
				must(t, err)
				code.Write(text)
			}
		}
	}
	page := document(t, "docs/troubleshooting.md")
	_, healthy, _ := strings.Cut(page, "\n## Is it healthy?\n")
	healthy, _, _ = strings.Cut(healthy, "\n## ")
	quotes := []string{
		"a proxy or a gateway has answered", "the response is about", "the ClusterRole system:discovery allows it",
		"cannot watch for API changes", " is cluster-scoped now and was namespaced before, so there is no ",
	}
	for _, quote := range quotes {
		if !strings.Contains(page, quote) {
			t.Errorf("the page does not have %q", quote)
		}
	}
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*?) \\|").FindAllStringSubmatch(healthy, -1) {
		for _, quote := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(row[1], -1) {
			quotes = append(quotes, strings.Split(quote[1], "…")[0])
		}
	}
	if len(quotes) < 15 {
		t.Errorf("only %d quotes were found: %q", len(quotes), quotes)
	}
	for _, quote := range quotes {
		if !strings.Contains(code.String(), quote) {
			t.Errorf("troubleshooting quotes %q, which no code says", quote)
		}
	}
}
