// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
	"github.com/freshmapper/freshmapper/manager/restmappermetrics"
)

func document(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	must(t, err)
	return string(text)
}

func documents(t *testing.T) []string {
	t.Helper()
	names := []string{"README.md", "CONTRIBUTING.md", "DESIGN.md", "CHANGELOG.md", "SECURITY.md", "testdata/consumers/README.md"}
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		must(t, err)
		for _, name := range found {
			rel, err := filepath.Rel(root, name)
			must(t, err)
			names = append(names, rel)
		}
	}
	if len(names) < 10 {
		t.Fatalf("documents: %q", names)
	}
	return names
}

func TestReadmeIsShort(t *testing.T) {
	if n := strings.Count(document(t, "README.md"), "\n"); n > 120 {
		t.Errorf("README.md has %d lines, 120 are enough", n)
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fenced  = regexp.MustCompile("(?s)```.*?\n```")
	notSlug = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// Every link into the repository leads somewhere, to its heading, too.
func TestDocumentsLinks(t *testing.T) {
	for _, name := range documents(t) {
		text := fenced.ReplaceAllString(document(t, name), "")
		for _, found := range link.FindAllStringSubmatch(text, -1) {
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
				continue
			}
			if anchor != "" && !hasHeading(document(t, target), anchor) {
				t.Errorf("%s links to %s, but %s has no such heading", name, found[1], target)
			}
		}
	}
}

func hasHeading(text, anchor string) bool {
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "#") {
			slug := notSlug.ReplaceAllString(strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#"))), "")
			if strings.ReplaceAll(slug, " ", "-") == anchor {
				return true
			}
		}
	}
	return false
}

// The whole programs in the documents compile, with the provider as they stand,
// and are as gofmt would have them.
func TestDocumentsPrograms(t *testing.T) {
	dir := t.TempDir()
	absolute, err := filepath.Abs(root)
	must(t, err)
	for _, name := range []string{"go.mod", "go.sum"} {
		write(t, dir, name, strings.ReplaceAll(document(t, "hack/e2e/"+name), "=> ../..", "=> "+absolute))
	}
	program := regexp.MustCompile("(?s)```go\n(package main\n.*?)\n```")
	programs := 0
	for _, name := range documents(t) {
		for i, found := range program.FindAllStringSubmatch(document(t, name), -1) {
			programs++
			folder := strings.TrimSuffix(filepath.Base(name), ".md") + string(rune('a'+i))
			write(t, dir, folder+"/main.go", found[1]+"\n")
		}
	}
	if programs == 0 {
		t.Error("no program in the documents")
	}
	for _, args := range [][]string{{"go", "vet", "-mod=mod", "./..."}, {"gofmt", "-l", "."}} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil || args[0] == "gofmt" && len(out) > 0 {
			t.Errorf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	full := filepath.Join(dir, name)
	must(t, os.MkdirAll(filepath.Dir(full), 0o755))
	must(t, os.WriteFile(full, []byte(text), 0o644))
}

// Demos and benchmarks use the newest release, and the workflow releases all lines.
func TestLinesAreNamed(t *testing.T) {
	for _, module := range []string{"hack/bench", "hack/e2e", "testdata/consumers", "testdata/consumers/plain"} {
		if want := tree.Module + " " + tree.Newest() + "\n"; !strings.Contains(document(t, module+"/go.mod"), want) {
			t.Errorf("%s does not require %s", module, want)
		}
	}
	want := "default: " + tree.Lines[0].Minor + ".." + tree.Lines[len(tree.Lines)-1].Minor + "\n"
	if !strings.Contains(document(t, ".github/workflows/release.yml"), want) {
		t.Errorf("release.yml has no %q", want)
	}
}

// What alerts and dashboard ask for are metrics that there are, and each alert is tested.
// hack/monitoring.sh checks them with promtool.
func TestMonitoring(t *testing.T) {
	known := metrics(t)
	alerts, tests := document(t, "docs/monitoring/alerts.yaml"), document(t, "docs/monitoring/alerts_test.yaml")
	asked := regexp.MustCompile(`controller_runtime_restmapper_[a-z_]+`).FindAllString(alerts+document(t, "docs/monitoring/dashboard.json"), -1)
	names := regexp.MustCompile(`- alert: (\S+)`).FindAllStringSubmatch(alerts, -1)
	if len(asked) < 12 || len(names) < 3 {
		t.Errorf("only %d metrics are asked for, by %d alerts and the dashboard", len(asked), len(names))
	}
	for _, metric := range asked {
		if !known[strings.TrimSuffix(metric, "_bucket")] {
			t.Errorf("alerts or dashboard ask for %s, which is not there", metric)
		}
	}
	for _, name := range names {
		if !strings.Contains(tests, "alertname: "+name[1]) {
			t.Errorf("alerts_test.yaml does not test %s", name[1])
		}
	}
}

// metrics are the names that a recorder registers.
func metrics(t *testing.T) map[string]bool {
	t.Helper()
	registry := prometheus.NewRegistry()
	if _, err := restmappermetrics.New(registry); err != nil {
		t.Fatal(err)
	}
	described := make(chan *prometheus.Desc, 100)
	registry.Describe(described)
	close(described)
	known := map[string]bool{}
	for desc := range described {
		if found := regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(desc.String()); found != nil {
			known[found[1]] = true
		}
	}
	return known
}
