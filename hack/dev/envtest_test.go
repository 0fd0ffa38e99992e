// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package dev tests the scripts in hack.
package dev

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

const platform = runtime.GOOS + "-" + runtime.GOARCH

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func program(t *testing.T, name, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(name), 0o755))
	must(t, os.WriteFile(name, []byte("#!/bin/sh\n"+text), 0o755))
}

// assets makes a folder with programs that only say which version they are.
func assets(t *testing.T, dir, version string) string {
	t.Helper()
	for _, name := range []string{"kube-apiserver", "etcd"} {
		program(t, filepath.Join(dir, name), "echo Kubernetes "+version+"\n")
	}
	return dir
}

// home makes a home with nothing in it, and returns the cache and setup-envtest's store there.
func home(t *testing.T) (cache, store string) {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	for name, value := range map[string]string{
		"HOME": home, "XDG_DATA_HOME": filepath.Join(home, "data"), "XDG_CACHE_HOME": filepath.Join(home, "cache"),
		"FRESHMAPPER_CACHE": "", "FRESHMAPPER_ENVTEST_OFFLINE": "1", "KUBEBUILDER_ASSETS": "",
	} {
		t.Setenv(name, value)
	}
	return filepath.Join(home, "cache", "freshmapper", "envtest"), filepath.Join(home, "data", "kubebuilder-envtest", "k8s")
}

// envtest runs the script.
func envtest(args ...string) (stdout, stderr string, err error) {
	var out, progress strings.Builder
	cmd := exec.Command("../envtest.sh", args...)
	cmd.Stdout, cmd.Stderr = &out, &progress
	err = cmd.Run()
	return strings.TrimSpace(out.String()), progress.String(), err
}

// What is nearer to the user comes first, then the newest that fits.
func TestFind(t *testing.T) {
	cache, store := home(t)
	is := func(name, want string) (said string) {
		t.Helper()
		dir, said, err := envtest(name)
		if dir != want || err != nil {
			t.Errorf("%s: %s, %v, want %s\n%s", name, dir, err, want, said)
		}
		return said
	}
	is("latest", assets(t, filepath.Join(cache, "1.31.2-"+platform), "v1.31.2"))
	assets(t, filepath.Join(store, "1.9.0-"+platform), "v1.30.0")
	assets(t, filepath.Join(store, "1.32.9-"+platform), "v1.32.9")
	assets(t, filepath.Join(store, "1.99.1-other-machine"), "v1.99.1")
	program(t, filepath.Join(store, "1.99.0-"+platform, "etcd"), "exit 1\n")
	old := assets(t, filepath.Join(store, "1.29.1-"+platform), "v1.29.1")
	is("latest", assets(t, filepath.Join(store, "1.32.10-"+platform), "v1.32.10"))
	is("legacy", old)
	given := assets(t, filepath.Join(filepath.Dir(cache), "given"), "v1.40.0")
	t.Setenv("KUBEBUILDER_ASSETS", given)
	is("latest", given)
	if said := is("legacy", old); !strings.Contains(said, `its version is "Kubernetes v1.40.0", and legacy means 1.26 to 1.29`) {
		t.Errorf("KUBEBUILDER_ASSETS do not fit, but it said %q", said)
	}
}

// builder puts a go command in PATH that runs a line instead of building; $to is the file.
func builder(t *testing.T, line string) {
	t.Helper()
	real, err := exec.LookPath("go")
	must(t, err)
	bin := t.TempDir()
	program(t, filepath.Join(bin, "go"), `case "$*" in *build*) ;; *) exec `+real+` "$@" ;; esac
while [ "$1" != -o ]; do shift; done
to=$2
`+line+"\n")
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
}

// Of runs that find nothing one builds, and the others wait for it.
func TestOneBuildsAndTheOthersWait(t *testing.T) {
	cache, _ := home(t)
	builder(t, `echo built >&2; sleep 1; mkdir -p "${to%/*}"; printf '#!/bin/sh\necho Kubernetes v1.28.15\n' >"$to"; chmod +x "$to"`)
	must(t, os.MkdirAll(filepath.Join(cache, ".tmp.99999999", "out"), 0o500))
	must(t, os.Symlink("99999999", filepath.Join(cache, "lock"))) // of a run that was killed
	found := make(chan string, 3)
	for range 3 {
		go func() {
			dir, said, err := envtest("legacy")
			if err != nil {
				dir = said
			}
			found <- dir
		}()
	}
	for range 3 {
		if dir := <-found; !strings.HasPrefix(dir, cache+"/1.28.") {
			t.Errorf("found %s", dir)
		}
	}
	logs, err := filepath.Glob(filepath.Join(cache, "*.log"))
	must(t, err)
	log, err := os.ReadFile(logs[0])
	if err != nil || strings.Count(string(log), "built") != 2 {
		t.Errorf("it built not just a server and etcd: %s, %v", log, err)
	}
	if entries, err := os.ReadDir(cache); err != nil || len(entries) != 2 { // a log, too
		t.Errorf("left: %v, %v", entries, err)
	}
}
