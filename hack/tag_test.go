// SPDX-License-Identifier: Apache-2.0

//go:build linux

package hack

import (
	"archive/zip"
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var releases = flag.Bool("releases", false, "simulate a release, and use it as others will")

const (
	ours       = "github.com/freshmapper/freshmapper"
	simulated  = "v0.1.0"
	quickStart = `package main

import (
	"log"

	"github.com/freshmapper/freshmapper/fresh"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	mgr, err := fresh.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(mgr.Start(ctrl.SetupSignalHandler()))
}
`
)

// notForOthers are files of packages that nobody else imports.
var notForOthers = regexp.MustCompile(`(^|/)(hack|internal|testdata|examples)/`)

// A release can be used as the README says: each of its modules by go get, and the tool by go run. The modules come from a
// folder that is a module proxy, as they will from a public one after their tags are pushed.
func TestReleaseCanBeUsed(t *testing.T) {
	if !*releases {
		t.Skip("-releases is not given")
	}
	clone := filepath.Join(t.TempDir(), "clone")
	command(t, ".", nil, "git", "clone", "-q", "..", clone)
	command(t, clone, nil, "sed", "-i", "s/^## Unreleased$/## "+simulated+"/", "CHANGELOG.md")
	who := []string{"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.com"}
	command(t, clone, who, "git", "commit", "-q", "--allow-empty", "-am", "Name the release")
	command(t, clone, who, "hack/tag.sh", simulated)

	proxy := t.TempDir()
	var modules []string
	packages := map[string][]string{} // of each module
	for _, tag := range strings.Fields(command(t, clone, nil, "git", "tag", "--points-at", "HEAD")) {
		folder := strings.TrimSuffix(strings.TrimSuffix(tag, simulated), "/")
		module := path.Join(ours, folder)
		modules = append(modules, module)
		packages[module] = publish(t, clone, folder, proxy)
	}
	if !slices.Contains(modules, ours) || !slices.Contains(modules, ours+"/fresh") {
		t.Fatalf("tagged %q", modules)
	}

	// The modules of others come from the module cache, which is laid out as a proxy is, and then from the proxy in use.
	others := strings.TrimSpace(command(t, ".", nil, "go", "env", "GOMODCACHE"))
	env := []string{
		"GOPROXY=file://" + proxy + ",file://" + others + "/cache/download," + strings.TrimSpace(command(t, ".", nil, "go", "env", "GOPROXY")),
		"GOPRIVATE=", "GONOPROXY=", "GONOSUMDB=" + ours + "," + ours + "/*", // nobody has published the sums
		"GOMODCACHE=" + t.TempDir(), "GOWORK=off",
		"GOFLAGS=-modcacherw -trimpath", // with -trimpath what is built does not depend on the folder of the cache
	}
	for _, module := range modules {
		dir := t.TempDir()
		command(t, dir, env, "go", "mod", "init", "example.com/operator")
		get := []string{"get"}
		for _, name := range packages[module] {
			get = append(get, name+"@"+simulated)
		}
		command(t, dir, env, "go", get...)
		if listed := command(t, dir, env, "go", "list", "-m", "-f", "{{.Version}}", module); strings.TrimSpace(listed) != simulated {
			t.Errorf("go get of %s@%s selects %s", module, simulated, listed)
		}
		command(t, dir, env, "go", append([]string{"build"}, packages[module]...)...)
	}

	dir := t.TempDir()
	write(t, filepath.Join(dir, "main.go"), quickStart)
	command(t, dir, env, "go", "mod", "init", "example.com/operator")
	command(t, dir, env, "go", "get", ours+"/fresh@"+simulated)
	command(t, dir, env, "go", "mod", "tidy")
	command(t, dir, env, "go", "vet", ".")

	write(t, filepath.Join(dir, "main.go"), strings.NewReplacer("fresh.NewManager", "ctrl.NewManager", "\t\""+ours+"/fresh\"\n", "").Replace(quickStart))
	command(t, dir, env, "go", "mod", "tidy")
	fork := ours + "/hack/fork@" + simulated
	command(t, dir, env, "go", "run", fork, "-into", ".")
	command(t, dir, env, "go", "run", fork, "-check", ".")
	if said := command(t, dir, env, "go", "run", fork, "-V"); !strings.Contains(said, simulated) {
		t.Errorf("the tool does not know its version: %s", said)
	}
}

// publish puts a module of the clone into a folder, as a module proxy has it. It returns the packages that others can import.
func publish(t *testing.T, clone, folder, proxy string) (packages []string) {
	t.Helper()
	module := path.Join(ours, folder)
	to := filepath.Join(proxy, module, "@v")
	files := strings.Fields(command(t, clone, nil, "git", "ls-files", "./"+folder))
	var nested []string
	for _, name := range files {
		if dir := path.Dir(name); path.Base(name) == "go.mod" && dir != path.Join(".", folder) {
			nested = append(nested, dir+"/")
		}
	}
	var buffer bytes.Buffer
	archive := zip.NewWriter(&buffer)
	for _, name := range files {
		if slices.ContainsFunc(nested, func(dir string) bool { return strings.HasPrefix(name, dir) }) {
			continue
		}
		if dir := path.Dir(name); path.Ext(name) == ".go" && !strings.HasSuffix(name, "_test.go") && !notForOthers.MatchString(name) {
			packages = append(packages, path.Join(ours, dir))
		}
		data, err := os.ReadFile(filepath.Join(clone, name))
		if err != nil {
			t.Fatal(err)
		}
		file, err := archive.Create(module + "@" + simulated + "/" + strings.TrimPrefix(strings.TrimPrefix(name, folder), "/"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(clone, folder, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(to, "list"), simulated+"\n")
	write(t, filepath.Join(to, simulated+".info"), fmt.Sprintf(`{"Version":%q,"Time":"2026-01-01T00:00:00Z"}`, simulated))
	write(t, filepath.Join(to, simulated+".mod"), string(mod))
	write(t, filepath.Join(to, simulated+".zip"), buffer.String())
	slices.Sort(packages)
	return slices.Compact(packages)
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// command runs a command in dir, and returns what it wrote to stdout.
func command(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	var stderr strings.Builder
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stderr = dir, &stderr
	cmd.Env = append(cmd.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, &stderr)
	}
	t.Logf("%s %s\n%s", name, strings.Join(args, " "), out)
	return string(out)
}
