// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// repository is a git repository with files of these texts.
func repository(t *testing.T, texts map[string]string) checkout {
	t.Helper()
	c := checkout(t.TempDir())
	for name, text := range texts {
		if err := os.MkdirAll(filepath.Dir(c.path(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(c.path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", ".gitignore"}} {
		cmd := exec.Command("git", args...)
		cmd.Dir = string(c)
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
	}
	return c
}

func TestModules(t *testing.T) {
	c := repository(t, map[string]string{
		".gitignore": "ignored/\n", "go.mod": "", "hack/tools/go.mod": "", "testdata/consumers/heal/go.mod": "",
		"testdata/input/go.mod": "", "hack/testdata/go.mod": "", "ignored/go.mod": "", "hack/ä b/go.mod": "",
	})
	files, err := c.files()
	modules := modulesOf(files)
	if want := []string{".", "hack/tools", "hack/ä b", "testdata/consumers/heal"}; err != nil || !slices.Equal(modules, want) {
		t.Errorf("%v, %q", err, modules)
	}
}

func TestLocalPaths(t *testing.T) {
	t.Setenv("HOME", "/home/gopher")
	c := repository(t, map[string]string{
		".gitignore": "", "good": "see /home/gophers and a/home/gopher/b", "bad": "one\nsee /home/gopher/notes\n",
	})
	files, err := c.files()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.paths(files); err == nil || err.Error() != "a path of this machine in bad:2: see /home/gopher/notes" {
		t.Errorf("%v", err)
	}
}

func TestChecks(t *testing.T) {
	c := repository(t, map[string]string{
		".gitignore": "", "go.mod": "module m\n\ngo 1.23\n", "a.go": "package m\nvar  A int\n", "bad.sh": "if\n", "good.sh": "true\n",
		"pins/go.mod": "module m/pins\n\ngo 1.23\n", "untidy/go.mod": "module m/untidy\n\ngo 1.23\n\nrequire example.com/m v1.0.0\n",
	})
	t.Setenv("GOWORK", "off")
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOCACHE", filepath.Join(t.TempDir(), "cache")) // HOME leads to it
	t.Setenv("HOME", "/home/gopher")
	checks, err := c.checks(true, "none")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, check := range checks {
		verdict := "ok"
		if check.run() != nil {
			verdict = "failed"
		}
		got = append(got, check.name+" "+verdict)
	}
	want := "gofmt failed, bash failed, paths ok, vet/. ok, tidy/. ok, tidy/pins ok, tidy/untidy failed"
	if strings.Join(got, ", ") != want {
		t.Errorf("%q", got)
	}
}

func TestLinted(t *testing.T) {
	c := repository(t, map[string]string{
		".gitignore": "", "go.mod": "", "a.go": "", "hack/tools/go.mod": "", "hack/envtest/etcd/go.mod": "", "hack/envtest/etcd/main.go": "", "more/go.mod": "", "more/a.go": "",
	})
	for lint, want := range map[string]string{"none": "gofmt bash paths", "root": "gofmt bash paths lint/config lint/.", "all": "gofmt bash paths lint/config lint/. lint/more"} {
		checks, err := c.checks(false, lint)
		var got []string
		for _, check := range checks {
			got = append(got, check.name)
		}
		if strings.Join(got, " ") != want || err != nil {
			t.Errorf("%s: %v, %v", lint, got, err)
		}
	}
}
