// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"net/mail"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper/hack/fork/forktest"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

var author = &mail.Address{Name: "A U Thor", Address: "author@example.com"}

func TestUsage(t *testing.T) {
	taken := t.TempDir()
	if err := os.WriteFile(filepath.Join(taken, "notes.txt"), []byte("mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	forktest.Command(run).Usage(t, map[string]string{
		"":                                      "-o DIR is missing",
		"-o a b":                                `unexpected argument "b"`,
		"-o a -author me":                       `-author "me"`,
		"-o " + taken:                           "notes.txt",
		"-o " + t.TempDir() + " -base v0.24.1":  "is not that of " + newest,
		"-o " + t.TempDir() + " -base v0.999.0": "v0.999.0",
	})
}

// A second run replaces the patches of the first, and writes the same bytes.
func TestReproducible(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	dir := filepath.Join(t.TempDir(), "series")
	var all [2]string
	for i := range all {
		var stdout, stderr bytes.Buffer
		if code := run([]string{"-o", dir}, &stdout, &stderr); code != 0 {
			t.Fatal(&stderr)
		}
		names, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil || len(names) != 6 {
			t.Fatalf("%q, %v", names, err)
		}
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all[i] += name + "\n" + string(data)
		}
		if err := os.WriteFile(filepath.Join(dir, "0009-old.patch"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if all[0] != all[1] {
		t.Error("the second run writes something else")
	}
}

// Upstream's robots refuse other titles, and messages that mention issues. There is a
// text to paste for each patch, and the first three are as small as promised.
func TestUpstreamCouldTakeTheSeries(t *testing.T) {
	mails, err := makeSeries(context.Background(), newest, author)
	if err != nil {
		t.Fatal(err)
	}
	texts, err := filepath.Glob("proposal/[1-9]-*.md")
	if err != nil || len(texts) != len(mails) {
		t.Fatalf("%d patches, texts %q: %v", len(mails), texts, err)
	}
	first := 0
	for i, m := range mails {
		if i < 3 {
			first += m.code
		}
		title, body, _ := strings.Cut(m.message, "\n")
		if !strings.HasPrefix(title, "✨ ") && !strings.HasPrefix(title, "🐛 ") && !strings.HasPrefix(title, "⚠️ ") || len(title) > 72 {
			t.Errorf("title %q", title)
		}
		if len(body) < 200 || strings.ContainsAny(title+body, "#@") {
			t.Errorf("%s: message\n%s", title, body)
		}
		text, err := os.ReadFile(texts[i])
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{title + "\n", "What does this do, and why do we need it?", "```release-note\n"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s has no %q", texts[i], want)
			}
		}
	}
	if first > 160 {
		t.Errorf("the first three patches add %d lines of code: 160 is what upstream is asked to read", first)
	}
}

// Each patch applies, builds, is tidy and passes upstream's tests and its own of the
// mapper and the client, without those behind it. With KUBEBUILDER_ASSETS set they run
// on real servers, with aggregated discovery and, from setup-envtest's store, without.
// With FRESHMAPPER_LINTER set, it is a golangci-lint, which upstream's settings apply to.
func TestEachPatchPasses(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles controller-runtime, and its tests, once for each patch")
	}
	ctx, dir, packages := context.Background(), t.TempDir(), []string{"./pkg/client", "./pkg/client/apiutil"}
	test := []string{"go", "test", "-trimpath", "-count=1", "-timeout=15m"}
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Log("KUBEBUILDER_ASSETS is not set: without the tests on an API server")
		test = append(test, "-skip", "^(TestApiMachinery|TestClient|TestLazyRestMapperProvider)$")
	}
	t.Setenv("KUBEBUILDER_CONTROLPLANE_START_TIMEOUT", "3m") // envtest gives 20 s, which a busy machine may need
	upstream, err := tree.Folder(ctx, newest, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS(upstream)); err != nil {
		t.Fatal(err)
	}
	forktest.Run(t, dir, "git", "init", "-q")
	forktest.Commit(t, dir)
	mails, err := makeSeries(ctx, newest, author)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mails {
		name := filepath.Join(t.TempDir(), m.file)
		if err := os.WriteFile(name, m.text, 0o600); err != nil {
			t.Fatal(err)
		}
		forktest.Run(t, dir, "git", "-c", "user.name=t", "-c", "user.email=t@example.com", "am", "-q", name)
		commands := [][]string{
			{"go", "build", "-trimpath", "./..."},
			append([]string{"go", "vet", "-trimpath"}, packages...),
			{"go", "mod", "tidy", "-diff"},
			append(test, packages...),
		}
		if linter := os.Getenv("FRESHMAPPER_LINTER"); linter != "" {
			commands = append(commands, append([]string{linter, "run"}, packages...))
		}
		for _, command := range commands {
			cmd := exec.CommandContext(ctx, command[0], command[1:]...)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=")
			said, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %s: %v\n%s", m.file, strings.Join(command, " "), err, said)
			}
			t.Logf("%s: %s\n%s", m.file, strings.Join(command, " "), said)
		}
	}
}
