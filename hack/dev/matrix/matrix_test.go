// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"maps"
	"strings"
	"testing"
)

// given are two sides in which all is well, with changes. The names of tests follow their
// state.
func given(changes map[string]string) line {
	files := map[string]string{
		"stock build": "ok", "stock vet": "ok", "stock 1": "passed TestA TestS, skipped TestB",
		"fork build": "ok", "fork vet": "ok", "fork 1": "passed TestA TestS TestOurs, skipped TestB",
	}
	maps.Copy(files, changes)
	l := line{version: "v0.25.2"}
	for name, s := range map[string]*side{"stock": &l.stock, "fork": &l.fork} {
		*s = side{build: files[name+" build"], vet: files[name+" vet"], packages: map[string]results{}, retried: map[string]bool{}}
		for n, try := range []string{files[name+" 1"], files[name+" 2"]} {
			tried := results{}
			for _, group := range strings.Split(try, ", ") {
				words := strings.Fields(group)
				for _, test := range words[min(1, len(words)):] {
					tried[test] = words[0]
				}
			}
			s.try(n+1, "pkg/client", tried)
		}
	}
	if changes["gone"] != "" {
		l.fork.packages = map[string]results{}
	}
	return l
}

func TestPage(t *testing.T) {
	tests := map[string]struct {
		changes map[string]string
		worse   bool
		want    []string
	}{
		"the same": {nil, false, []string{
			"| v0.25.2 | ok | ok | ok | ok |", "| v0.25.2 | pkg/client | 2 passed, 1 skipped | 2 passed, 1 skipped | 1 passed | same |",
			"Kubernetes v1.37.1", "## Worse on the fork\n\nNone.",
		}},
		"worse": {map[string]string{"fork 1": "failed TestA, passed TestB"}, true, []string{
			"**3 worse**", "- pkg/client: TestA (stock passed, fork failed): v0.25.2",
			"- pkg/client: TestB (stock skipped, fork passed): v0.25.2", "- pkg/client: TestS (stock passed, fork absent): v0.25.2",
		}},
		"ours": {map[string]string{"fork 1": "passed TestA TestS, skipped TestB, failed TestOurs"}, true, []string{
			"- pkg/client: TestOurs (ours, failed): v0.25.2", "| 1 failed | **1 worse** |",
		}},
		"broken on both": {map[string]string{"stock 1": "failed TestA", "fork 1": "failed TestA"}, false, []string{
			"## Failing on stock too\n\n- pkg/client: TestA: v0.25.2", "| none | same |",
		}},
		"better":         {map[string]string{"stock 1": "failed TestA"}, false, []string{"| 1 better |", "## Better on the fork\n\n- pkg/client: TestA: v0.25.2"}},
		"retried":        {map[string]string{"fork 1": "failed TestA, passed TestS, skipped TestB", "fork 2": "passed TestA, failed TestS"}, false, []string{"| same |", "## Passed at the second try\n\n- pkg/client: TestA (fork): v0.25.2\n"}},
		"no build":       {map[string]string{"fork build": "failed"}, true, []string{"| v0.25.2 | ok | failed | ok | ok |"}},
		"no vet":         {map[string]string{"fork vet": "failed"}, true, []string{"| v0.25.2 | ok | ok | ok | failed |"}},
		"no vet at all":  {map[string]string{"fork vet": "failed", "stock vet": "failed"}, false, []string{"| failed | failed |"}},
		"a package less": {map[string]string{"gone": "yes"}, true, []string{"| v0.25.2 | pkg/client | 2 passed, 1 skipped | 3 absent | none | **3 worse** |"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			text, good := write("Kubernetes v1.37.1", []line{given(test.changes)})
			if good == test.worse {
				t.Errorf("good is %v", good)
			}
			for _, want := range test.want {
				if !strings.Contains(text, want) {
					t.Errorf("no %q in\n%s", want, text)
				}
			}
		})
	}
}

// Specs are told apart by their names, which may have addresses in them.
func TestReports(t *testing.T) {
	const said = `{"Action":"run","Test":"TestA"}
go: a warning
{"Action":"pass","Test":"TestA"}
{"Action":"run","Test":"TestB"}
{"Action":"skip","Test":"TestC"}
{"Action":"fail"}`
	const report = `[{"SuiteDescription": "S", "SpecReports": [
		{"LeafNodeType": "BeforeSuite", "State": "passed"},
		{"LeafNodeType": "It", "LeafNodeText": "is 0x3532013206a8", "ContainerHierarchyTexts": ["a"], "State": "passed"},
		{"LeafNodeType": "It", "LeafNodeText": "is 0x3532016cdae8", "ContainerHierarchyTexts": ["a"], "State": "failed"},
		{"LeafNodeType": "It", "LeafNodeText": "b", "State": "pending"},
		{"LeafNodeType": "AfterSuite", "State": "panicked"}]}]`
	got := results{}
	got.addTests([]byte(said))
	if err := got.addSpecs([]byte(report)); err != nil {
		t.Fatal(err)
	}
	want := results{
		"TestA": "passed", "TestB": "failed", "TestC": "skipped",
		"S: a is 0x…": "passed", "S: a is 0x… (2)": "failed", "S: b": "skipped", "S: AfterSuite": "failed",
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if err := got.addSpecs([]byte(`[{"`)); err == nil {
		t.Error("half a report of ginkgo's is taken for one")
	}
}
