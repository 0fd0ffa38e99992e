// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper/hack/dev/gotest"
	"github.com/freshmapper/freshmapper/hack/fork/gotool"
)

// given makes lines of files: what builds came to, tests as "state name", ginkgo's
// specs as "state text".
func given(t *testing.T, files map[string]string) []line {
	t.Helper()
	l := line{version: "v0.25.2"}
	for name, s := range map[string]*side{"stock/": &l.stock, "fork/": &l.fork} {
		s.build, s.vet, s.packages = files[name+"build"], files[name+"vet"], map[string]outcomes{}
		for _, pkg := range []string{"pkg/cache", "pkg/client"} {
			tests := outcomes{}
			for try := 1; files[fmt.Sprintf("%s%s %d.go", name, pkg, try)] != ""; try++ {
				base := fmt.Sprintf("%s%s %d", name, pkg, try)
				var specs []byte
				if text := files[base+".ginkgo"]; text != "" {
					specs = []byte(ginkgo(text))
				}
				if err := tests.add(try, goTest(files[base+".go"]), specs); err != nil {
					t.Fatal(err)
				}
				s.packages[pkg] = tests
			}
		}
	}
	return []line{l}
}

func goTest(text string) *gotest.Report {
	report := &gotest.Report{Tests: []*gotest.Test{{Package: "p", State: gotest.Failed}}}
	for _, line := range gotool.SplitLines(text) {
		state, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		is := map[string]gotest.State{"pass": gotest.Passed, "skip": gotest.Skipped, "fail": gotest.Failed}[state]
		report.Tests = append(report.Tests, &gotest.Test{Package: "p", Name: name, State: is})
	}
	return report
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
		"stock/build":               "ok",
		"stock/vet":                 "ok",
		"stock/pkg/client 1.go":     "pass TestA\nskip TestB\npass TestS\n",
		"stock/pkg/client 1.ginkgo": "passed one\npassed two\npassed two\npending three\npassed BeforeSuite@\n",
		"fork/build":                "ok",
		"fork/vet":                  "ok",
		"fork/pkg/client 1.go":      "pass TestA\nskip TestB\npass TestS\npass TestOurs\n",
		"fork/pkg/client 1.ginkgo":  "passed two\npassed two\npassed one\npending three\n",
	}
	for name, text := range changes {
		files[name] = text
	}
	return files
}

func TestReport(t *testing.T) {
	const fork = "fork/"
	tests := map[string]struct {
		changes map[string]string
		worse   bool
		want    []string
	}{
		"the same": {nil, false, []string{
			"| v0.25.2 | ok | ok | ok | ok |",
			"| v0.25.2 | pkg/client | 5 passed, 2 skipped | 5 passed, 2 skipped | 1 passed | same |",
			"Kubernetes v1.37.1", "## Worse on the fork\n\nNone.",
		}},
		"worse": {map[string]string{fork + "pkg/client 1.go": "fail TestA\npass TestB\n"}, true, []string{
			"**3 worse**", "- pkg/client: TestA (stock passed, fork failed): v0.25.2",
			"- pkg/client: TestB (stock skipped, fork passed): v0.25.2",
			"- pkg/client: TestS (stock passed, fork absent): v0.25.2",
		}},
		"a spec": {map[string]string{fork + "pkg/client 1.ginkgo": "panicked one\npassed two\npassed two\nskipped three\n"}, true, []string{
			"- pkg/client: S: deep one (stock passed, fork failed): v0.25.2", "**1 worse**",
		}},
		"fewer specs": {map[string]string{fork + "pkg/client 1.ginkgo": "passed one\npassed two\nskipped three\n"}, true, []string{
			"- pkg/client: S: deep two (2) (stock passed, fork absent): v0.25.2",
		}},
		"a suite's beginning": {map[string]string{fork + "pkg/client 1.ginkgo": "failed BeforeSuite@\nskipped one\n"}, true, []string{
			"- pkg/client: S: BeforeSuite (ours, failed)",
		}},
		"ours": {map[string]string{fork + "pkg/client 1.go": "pass TestA\nskip TestB\npass TestS\nfail TestOurs\n"}, true, []string{
			"- pkg/client: TestOurs (ours, failed): v0.25.2", "| 1 failed | **1 worse** |",
		}},
		"broken on both": {map[string]string{
			"stock/pkg/client 1.go": "fail TestA\nskip TestB\npass TestS\n", fork + "pkg/client 1.go": "fail TestA\nskip TestB\npass TestS\n",
		}, false, []string{"## Failing on stock too\n\n- pkg/client: TestA: v0.25.2", "| none | same |"}},
		"better": {map[string]string{"stock/pkg/client 1.go": "fail TestA\nskip TestB\npass TestS\n"}, false, []string{
			"| 1 better |", "## Better on the fork\n\n- pkg/client: TestA: v0.25.2",
		}},
		"retried": {map[string]string{
			fork + "pkg/client 1.go": "fail TestA\nskip TestB\npass TestS\n", fork + "pkg/client 2.go": "pass TestA\nskip TestB\npass TestS\n",
		}, false, []string{"| same |", "## Passed at the second try\n\n- pkg/client: TestA (fork): v0.25.2"}},
		"no build":      {map[string]string{fork + "build": "failed"}, true, []string{"| v0.25.2 | ok | failed | ok | ok |"}},
		"no vet":        {map[string]string{fork + "vet": "failed"}, true, []string{"| v0.25.2 | ok | ok | ok | failed |"}},
		"no vet at all": {map[string]string{fork + "vet": "failed", "stock/vet": "failed"}, false, []string{"| failed | failed |"}},
		"a package less": {map[string]string{"stock/pkg/cache 1.go": "pass TestC"}, true, []string{
			"| v0.25.2 | pkg/cache | 1 passed | 1 absent | none | **1 worse** |",
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var said strings.Builder
			if good := write(&said, "Kubernetes v1.37.1", given(t, minimal(test.changes))); good == test.worse {
				t.Errorf("good is %v", good)
			}
			for _, want := range test.want {
				if !strings.Contains(said.String(), want) {
					t.Errorf("no %q in\n%s", want, &said)
				}
			}
		})
	}
}

func TestAddRefuses(t *testing.T) {
	if err := (outcomes{}).add(1, &gotest.Report{}, []byte(`[{"`)); err == nil {
		t.Error("half a report of ginkgo's is taken for one")
	}
}

// Specs are told apart by their names, which may have addresses in them.
func TestAddSpecs(t *testing.T) {
	const report = `[{"SuiteDescription": "S", "SpecReports": [
		{"LeafNodeType": "BeforeSuite", "State": "passed"},
		{"LeafNodeType": "It", "LeafNodeText": "is 0x3532013206a8", "ContainerHierarchyTexts": ["a"], "State": "passed"},
		{"LeafNodeType": "It", "LeafNodeText": "is 0x3532016cdae8", "ContainerHierarchyTexts": ["a"], "State": "failed"},
		{"LeafNodeType": "It", "LeafNodeText": "b", "State": "pending"},
		{"LeafNodeType": "AfterSuite", "State": "panicked"}]}]`
	got := map[string]gotest.State{}
	if err := AddSpecs(got, []byte(report)); err != nil {
		t.Fatal(err)
	}
	want := map[string]gotest.State{"S: a is 0x…": gotest.Passed, "S: a is 0x… (2)": gotest.Failed, "S: b": gotest.Skipped, "S: AfterSuite": gotest.Failed}
	if !maps.Equal(got, want) {
		t.Errorf("%v", got)
	}
}
