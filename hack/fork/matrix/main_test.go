// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper/hack/fork/gotool"
)

// given writes results: the lines of go test as "action test", the specs as
// "state text".
func given(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		full := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		switch filepath.Ext(name) {
		case ".go":
			text = goTest(text)
		case ".ginkgo":
			text = ginkgo(text)
		}
		if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func goTest(text string) string {
	out := "{\"Action\":\"start\",\"Package\":\"p\"}\nnot an event\n"
	for _, line := range gotool.SplitLines(text) {
		action, test, _ := strings.Cut(strings.TrimSpace(line), " ")
		out += `{"Action":"` + action + `","Package":"p","Test":"` + test + `"}` + "\n"
	}
	return out
}

func ginkgo(text string) string {
	var specs []string
	for _, line := range gotool.SplitLines(text) {
		state, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		kind, name, found := strings.Cut(name, "@")
		if !found {
			kind, name = "It", kind
		}
		specs = append(specs, `{"ContainerHierarchyTexts":["deep"],"LeafNodeType":"`+kind+`","LeafNodeText":"`+name+`","State":"`+state+`"}`)
	}
	return `[{"SuiteDescription":"S","SpecReports":[` + strings.Join(specs, ",") + `]}]`
}

// minimal are results in which all is well, with changes.
func minimal(changes map[string]string) map[string]string {
	files := map[string]string{
		"server.txt":                              "Kubernetes v1.37.1",
		"v0.25.2/stock/build.txt":                 "ok\n",
		"v0.25.2/stock/vet.txt":                   "ok\n",
		"v0.25.2/stock/pkg_client/1.go":           "run TestA\npass TestA\nrun TestB\nskip TestB\npass TestS\n",
		"v0.25.2/stock/pkg_client/1.ginkgo":       "passed one\npassed two\npassed two\npending three\npassed BeforeSuite@\n",
		"v0.25.2/fork/build.txt":                  "ok\n",
		"v0.25.2/fork/vet.txt":                    "ok\n",
		"v0.25.2/fork/pkg_client/1.go":            "pass TestA\nskip TestB\npass TestS\npass TestOurs\n",
		"v0.25.2/fork/pkg_client/1.ginkgo":        "passed two\npassed two\npassed one\npending three\n",
		"v0.25.2/fork/pkg_client_apiutil/ignored": "",
	}
	for name, text := range changes {
		files[name] = text
	}
	return files
}

func TestReport(t *testing.T) {
	const fork = "v0.25.2/fork/"
	tests := map[string]struct {
		changes map[string]string
		code    int
		want    []string
	}{
		"the same": {nil, 0, []string{
			"| v0.25.2 | ok | ok | ok | ok |",
			"| v0.25.2 | pkg/client | 5 passed, 2 skipped | 5 passed, 2 skipped | 1 passed | same |",
			"Kubernetes v1.37.1", "## Worse on the fork\n\nNone.",
		}},
		"worse": {map[string]string{fork + "pkg_client/1.go": "fail TestA\npass TestB\n"}, 1, []string{
			"**3 worse**", "- pkg/client: TestA (stock passed, fork failed): v0.25.2",
			"- pkg/client: TestB (stock skipped, fork passed): v0.25.2",
			"- pkg/client: TestS (stock passed, fork absent): v0.25.2",
		}},
		"a spec": {map[string]string{fork + "pkg_client/1.ginkgo": "panicked one\npassed two\npassed two\nskipped three\n"}, 1, []string{
			"- pkg/client: S: deep one (stock passed, fork failed): v0.25.2", "**1 worse**",
		}},
		"fewer specs": {map[string]string{fork + "pkg_client/1.ginkgo": "passed one\npassed two\nskipped three\n"}, 1, []string{
			"- pkg/client: S: deep two (2) (stock passed, fork absent): v0.25.2",
		}},
		"a suite's beginning": {map[string]string{fork + "pkg_client/1.ginkgo": "failed BeforeSuite@\nskipped one\n"}, 1, []string{
			"- pkg/client: S: BeforeSuite (ours, failed)",
		}},
		"ended early": {map[string]string{fork + "pkg_client/1.go": "run TestA\nskip TestB\npass TestS\n"}, 1, []string{
			"TestA (stock passed, fork failed)",
		}},
		"ours": {map[string]string{fork + "pkg_client/1.go": "pass TestA\nskip TestB\npass TestS\nfail TestOurs\n"}, 1, []string{
			"- pkg/client: TestOurs (ours, failed): v0.25.2", "| 1 failed | **1 worse** |",
		}},
		"broken on both": {map[string]string{
			"v0.25.2/stock/pkg_client/1.go": "fail TestA\nskip TestB\npass TestS\n", fork + "pkg_client/1.go": "fail TestA\nskip TestB\npass TestS\n",
		}, 0, []string{"## Failing on stock too\n\n- pkg/client: TestA: v0.25.2", "| none | same |"}},
		"better": {map[string]string{"v0.25.2/stock/pkg_client/1.go": "fail TestA\nskip TestB\npass TestS\n"}, 0, []string{
			"| 1 better |", "## Better on the fork\n\n- pkg/client: TestA: v0.25.2",
		}},
		"retried": {map[string]string{
			fork + "pkg_client/1.go": "fail TestA\nskip TestB\npass TestS\n", fork + "pkg_client/2.go": "pass TestA\nskip TestB\npass TestS\n",
		}, 0, []string{"| same |", "## Passed at the second try\n\n- pkg/client: TestA (fork): v0.25.2"}},
		"no build":      {map[string]string{fork + "build.txt": "failed"}, 1, []string{"| v0.25.2 | ok | failed | ok | ok |"}},
		"no vet":        {map[string]string{fork + "vet.txt": "failed"}, 1, []string{"| v0.25.2 | ok | ok | ok | failed |"}},
		"no vet at all": {map[string]string{fork + "vet.txt": "failed", "v0.25.2/stock/vet.txt": "failed"}, 0, []string{"| failed | failed |"}},
		"a package less": {map[string]string{"v0.25.2/stock/pkg_cache/1.go": "pass TestC"}, 1, []string{
			"| v0.25.2 | pkg/cache | 1 passed | 1 absent | none | **1 worse** |",
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			file := filepath.Join(t.TempDir(), "MATRIX.md")
			code := run([]string{"-results", given(t, minimal(test.changes)), "-o", file}, &stdout, &stderr)
			if code != test.code {
				t.Errorf("code %d: %s", code, &stderr)
			}
			for _, want := range test.want {
				if !strings.Contains(stdout.String(), want) {
					t.Errorf("no %q in\n%s", want, &stdout)
				}
			}
			if written, err := os.ReadFile(file); err != nil || !bytes.Equal(written, stdout.Bytes()) {
				t.Errorf("the file: %v\n%s", err, written)
			}
		})
	}
}

func TestReportRefuses(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"nothing":      {},
		"no release":   {"server.txt": ""},
		"no fork":      {"server.txt": "", "v0.25.2/stock/build.txt": "ok", "v0.25.2/stock/vet.txt": "ok"},
		"not a report": minimal(map[string]string{"v0.25.2/fork/pkg_client/1.ginkgo": `passed "`}),
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run([]string{"-results", given(t, files)}, &stdout, &stderr); code != 1 || stdout.Len() > 0 {
				t.Errorf("code %d, stdout %s", code, &stdout)
			}
		})
	}
}
